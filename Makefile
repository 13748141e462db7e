# Two commands are enough on a fresh machine: `make demo` and `make test`. Everything they need is installed below
# this folder (.venv, .tools); nothing needs root. Variables: PYTHON=python3.12  SPARK=0  DEMO_ROWS=20000  ARGS="-k name"
PYTHON ?= python3
VENV ?= .venv
# PySpark 4.3 needs Python 3.11: with an older one its tests are left out.
ifndef SPARK
SPARK := $(shell $(PYTHON) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null || echo 1)
endif
# `make test` and `make test-full` run in this many processes at once; JOBS=0 runs all in one. Many of the short tests
# wait for something: three processes keep two cores busy.
JOBS ?= 3
ARGS ?=
CASES ?=
BEFORE ?=
PY := $(VENV)/bin/python
comma := ,
EXTRAS := dev,demo,nkeys$(if $(filter 0,$(SPARK)),,$(comma)spark)

DOCS_STAMP = $(VENV)/.installed-docs
FULL_STAMP = $(VENV)/.installed-full
STAMP = $(VENV)/.installed-$(if $(filter 0,$(SPARK)),plain,spark)

SHORT := not slow and not faults and not scale and not spark_modes and not docker
# Said before and, because pytest's own output is long, after the tests.
SAY_SPARK = $(if $(filter 0,$(SPARK)),echo "Left out: the Spark tests (SPARK=0, or a Python before 3.11)" >&2,true)
NO_SPARK = $(if $(filter 0,$(SPARK)), and not spark and not spark_modes)
JAVA = $(if $(filter 0,$(SPARK)),true,JAVA_HOME="$$($(PY) tools/java.py)" && export JAVA_HOME)
SERVER = NATS_SERVER="$$($(PY) tools/nats_server.py)" && export NATS_SERVER
export PYSPARK_PYTHON = $(abspath $(PY))
export PYSPARK_DRIVER_PYTHON = $(abspath $(PY))
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help needs-spark setup demo demo-partitions demo-crash demo-cluster demo-archive test test-full test-servers test-pythons test-sparks docker-test lint coverage fuzz bench bench-check bench-spark docs dist release-check clean mutants chaos upgrade soak networks

help:
	@echo "make demo          flights through JetStream and Spark (DEMO_ROWS=20000 for less)"
	@echo "make demo-archive  a live stream archived into Parquet by Spark, and restored from it"
	@echo "make demo-partitions  the same with foreachPartition code (demo-crash: demo with kills, demo-cluster: standalone)"
	@echo "make test          the short tier, about 5 minutes    (ARGS='-k name' is passed to pytest)"
	@echo "make test-full     the full counts, kills and faults  make test-servers   2.9.10, 2.10.27, the newest, its flags"
	@echo "make test-pythons  every interpreter, also no GIL      make docker-test    against a container"
	@echo "make test-sparks   PySpark 3.5 to 4.3, the core of the Spark tests"
	@echo "make bench         beside other clients, 5 minutes     (CASES=fetch,ordered or CASES=all; BEFORE=a revision)"
	@echo "make docs          the site, into build/docs           make dist      packages, checked; uploads nothing"
	@echo "make chaos         histories under faults, judged       make upgrade   2.10.27 -> newest -> 2.10.27 under load"
	@echo "make soak          an hour over a bad link             make fuzz      the parser and the whole client"
	@echo "make networks      bad networks, beside nats-py        make mutants   do the tests notice small faults?"
	@echo "make lint | coverage | bench-check | bench-spark | setup | clean"

setup: $(STAMP)
	@$(PY) tools/nats_server.py >/dev/null

$(STAMP): setup.cfg pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "$(PYTHON) was not found: install Python 3.10 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "jsclient needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "This Python cannot make virtual environments: install the package python3-venv (as root: apt-get install python3-venv)." >&2; exit 1; }
	@echo "Installing into $(VENV) ($(EXTRAS)); the first time takes about a minute ..." >&2
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q -e '.[$(EXTRAS)]' >$(VENV)/install.log 2>&1 || { \
	  sed -n 's/^ *ERROR: /pip: /p' $(VENV)/install.log | head -3 >&2; \
	  echo "pip could not install jsclient[$(EXTRAS)]: is the network reachable? All it said is in $(VENV)/install.log" >&2; exit 1; }
	@touch $@

demo demo-partitions demo-crash demo-cluster demo-archive bench-spark: needs-spark

needs-spark:
	@test "$(SPARK)" != 0 || { echo "Spark is needed here, and PySpark 4.3 needs Python 3.11 or newer: make PYTHON=python3.12 (and no SPARK=0)" >&2; exit 1; }

demo: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tools.demo.pipeline

demo-partitions: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tools.demo

demo-crash: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tools.demo.pipeline --crash

demo-cluster: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tools.demo.pipeline --cluster

demo-archive: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tools.demo.archive

test: $(STAMP)
	@$(SAY_SPARK); $(SERVER) && $(JAVA) && $(PY) -m pytest -n $(JOBS) -m "$(SHORT)$(NO_SPARK)" $(ARGS) && $(SAY_SPARK)

test-full: $(STAMP) $(FULL_STAMP)
	@$(SERVER) && $(JAVA) && NATS_SERVER_OLD="$$($(PY) tools/nats_server.py --suite trixie)" && export NATS_SERVER_OLD && \
	  $(PY) -m tools.parity && \
	  JSCLIENT_FULL=1 $(PY) -m pytest -n $(JOBS) -m "not docker$(NO_SPARK)" $(ARGS) && \
	  $(PY) tools/mutants.py && $(SAY_SPARK)

test-servers: $(STAMP)
	@failed=""; for row in bookworm trixie newest flagged; do \
	  suite=$$row; settings=""; \
	  if [ $$row = flagged ]; then suite=newest; settings="feature_flags { js_ack_fc_v2: true }"; fi; \
	  NATS_SERVER="$$($(PY) tools/nats_server.py --suite $$suite)" || exit 1; export NATS_SERVER; \
	  echo "== $$($$NATS_SERVER --version) $$settings"; \
	  NATS_SERVER_CONFIG="$$settings" $(PY) -m pytest tests/live -m "$(SHORT)" $(ARGS) || failed="$$failed $$row"; \
	  unset NATS_SERVER; \
	done; test -z "$$failed" || { echo "failed on:$$failed" >&2; exit 1; }

test-pythons: $(STAMP)
	@$(SERVER) && $(PY) tools/pythons.py $(ARGS)

# ARGS="--only 4.0,4.1": each PySpark gets an environment of its own, about 1 GB.
test-sparks: $(STAMP)
	@$(SERVER) && JAVA_HOME="$$($(PY) tools/java.py)" && export JAVA_HOME && $(PY) tools/sparks.py $(ARGS)

docker-test: $(STAMP)
	@NATS_IMAGE_BINARY="$$($(PY) tools/nats_server.py)" && export NATS_IMAGE_BINARY && \
	  sh tools/docker_engine.sh run $(abspath $(PY)) -m pytest tests/docker -m docker $(ARGS)

lint: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(if $(filter 0,$(SPARK)),--allow-subclassing-any --no-warn-unused-ignores)
	@$(VENV)/bin/lint-imports setup.cfg --no-cache >$(VENV)/imports.log 2>&1 || { cat $(VENV)/imports.log; exit 1; }
	@$(PY) tools/rules.py
	@$(PY) tools/prose.py
	@$(PY) tools/typing_check.py

# Lines and branches of the tests that need no Spark. It fails below `fail_under` of setup.cfg, a number that may only
# rise. REPORT="--include='jsclient/jetstream/*'" shows a part, without a limit.
coverage: $(STAMP)
	@$(SERVER) && $(PY) -m coverage run -m pytest -q -m "$(SHORT)" tests/unit tests/protocol tests/live $(ARGS)
	@$(PY) -m coverage report --skip-covered --show-missing $(if $(REPORT),--fail-under=0 $(REPORT))

# The parser beside slow, obvious code; then the whole client against a server that answers anything.
fuzz: $(STAMP)
	@$(PY) tools/fuzz.py $(ARGS)
	@$(PY) tools/fuzz_client.py $(ARGS)

# Small faults in the code, one at a time: do the tests notice each? ARGS="--part 1/1" tries all of them.
mutants: $(STAMP)
	@$(SERVER) && $(PY) tools/mutants.py $(ARGS)

# Histories of a cluster under faults, judged: ARGS="--seed 7 --seconds 300 --runs 3"; reports lie in build/chaos.
chaos: $(STAMP)
	@$(SERVER) && $(PY) -m tests.chaos $(ARGS)

# A cluster goes from 2.10.27 to the newest server and back, one node at a time, with every kind of user at work
# (ARGS=--spark: and a streaming query).
upgrade: $(STAMP)
	@$(SERVER) && $(JAVA) && $(PY) -m tests.chaos.upgrade --old "$$($(PY) tools/nats_server.py --suite trixie)" $(ARGS)

# An hour over a bad link; the report and the picture lie in build/soak. ARGS="--seconds 600 --rate 500"
soak: $(STAMP)
	@$(SERVER) && $(PY) -m tests.chaos.soak $(ARGS)

# Every path over slow, far, lossy and dying links, beside nats-py: about 20 minutes. ARGS="--rounds 1 --cases 300ms,fetch"
networks: $(STAMP)
	@$(SERVER) && exec $(PY) -m tools.bench.networks $(ARGS)

bench: $(STAMP)
	@$(SERVER) && exec $(PY) -m tools.bench --json .tools/bench.jsonl $(if $(CASES),--cases '$(CASES)') $(if $(BEFORE),--before '$(BEFORE)') $(ARGS)

bench-check: $(STAMP)
	@$(SERVER) && exec $(PY) -m tools.bench --check $(ARGS)

bench-spark: $(STAMP)
	@$(SERVER) && $(JAVA) && exec $(PY) -m tools.bench --spark $(ARGS)

$(FULL_STAMP): setup.cfg pyproject.toml | $(STAMP)
	@echo "Installing what only the full tier needs into $(VENV) ..." >&2
	@$(PY) -m pip install -q -e '.[docs,full]' >$(VENV)/install-full.log 2>&1 || { \
	  sed -n 's/^ *ERROR: /pip: /p' $(VENV)/install-full.log | head -3 >&2; exit 1; }
	@touch $@


$(DOCS_STAMP): setup.cfg pyproject.toml
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing what builds the site into $(VENV) ..." >&2
	@$(PY) -m pip install -q -e '.[docs,nkeys]' >$(VENV)/install-docs.log 2>&1 || { \
	  sed -n 's/^ *ERROR: /pip: /p' $(VENV)/install-docs.log | head -3 >&2; exit 1; }
	@touch $@

docs: $(DOCS_STAMP)
	@$(PY) -m tools.docs $(ARGS)

dist: $(STAMP)
	@$(SERVER) && $(PY) tools/dist.py $(if $(URL),--url $(URL)) $(ARGS)

# What a tag needs: a dated entry in CHANGELOG.md, a clean tree, packages that pass `make dist`.
release-check: $(STAMP)
	@$(SERVER) && $(PY) tools/dist.py --release $(if $(URL),--url $(URL)) $(ARGS)

clean:
	rm -rf $(VENV) .venv-* .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
