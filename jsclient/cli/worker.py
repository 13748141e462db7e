"""`worker module:function`: a worker pool as a service, in several processes."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from jsclient import Connection, errors, groups, handlers
from jsclient.cli.arguments import command, connect, jetstream, positive, seconds
from jsclient.cli.output import line
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate
from jsclient.workers import WorkerPool
from jsclient.workers.health import Endpoint
from jsclient.workers.options import STOP_TIMEOUT, THREADS
from jsclient.workers.signals import SIGNALS
from jsclient.workers.supervisor import REPORTS_EVERY, Supervisor, processes_of, this_program

if TYPE_CHECKING:
    from jsclient.groups import GroupPool

log: logging.Logger = logging.getLogger("jsclient.workers")


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    worker = command(commands, common, "worker", run)
    worker.add_argument("handler", metavar="MODULE:FUNCTION", help="called with each message; looked for here, too")
    worker.add_argument("--stream", required=True)
    source = worker.add_mutually_exclusive_group(required=True)
    source.add_argument("--consumer", help="a pull consumer, shared by all processes; no order")
    source.add_argument("--group", help="a partitioned group: messages of a key in order, in all processes")
    worker.add_argument("--key", metavar="MODULE:FUNCTION", help="with --group: the key (default: the subject)")
    worker.add_argument(
        "--processes", default="1", metavar="N|auto", help="auto: one per core that it may use (default 1)"
    )
    worker.add_argument("--threads", type=positive, default=THREADS, help=f"of each process (default {THREADS})")
    worker.add_argument("--attempts", type=positive, help="give a message up when it fails so often")
    worker.add_argument("--retries", type=int, help="give a message up when it asks for another try more often (100)")
    worker.add_argument("--backoff", type=_delays, metavar="S,S,...", help="seconds before each new attempt")
    worker.add_argument("--dead-letter", metavar="SUBJECT", help="where messages go that are given up")
    worker.add_argument("--later", metavar="SUBJECT", help="with --consumer: where messages wait for a late retry")
    worker.add_argument("--confirm", action="store_true", help="wait for the confirmation of each ack")
    worker.add_argument("--stop-timeout", type=seconds, default=STOP_TIMEOUT, help="seconds for running handlers")
    worker.add_argument("--http", metavar="[HOST:]PORT", help="serve /healthz, /readyz and /metrics there")
    worker.add_argument("--child", type=int, help=argparse.SUPPRESS)
    worker.epilog = (
        "SIGTERM and SIGINT stop: running handlers may end, the rest goes back; a third Ctrl-C kills. SIGHUP replaces "
        "the processes one by one, with newly loaded code. A crashed process is started again, after 0.2 s to 30 s."
    )


def _delays(text: str) -> list[float]:
    return [seconds(part) for part in text.split(",")]


def load(name: str) -> Callable[[Any], Any]:
    """What `module:function` names; the current folder is looked into first, as `python -m` does."""
    module, colon, path = name.partition(":")
    if not colon or not path:
        raise errors.ConfigError(f"a function is given as MODULE:FUNCTION, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise errors.ConfigError(f"{name!r} cannot be loaded: {error}") from error
    handlers.required(found, repr(name))
    loaded: Callable[[Any], Any] = found
    return loaded


def run(options: argparse.Namespace) -> int:
    if options.child is not None:
        return _work(options)
    if options.key and not options.group:
        raise errors.ConfigError("--key needs --group: processes that share a consumer keep no order")
    try:
        processes = processes_of(options.processes)
    except ValueError:
        processes = 0
    if processes < 1:
        raise errors.ConfigError(f"--processes is a number or auto, not {options.processes!r}")
    load(options.handler)  # better said once, here, than by every process
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    arguments = options.arguments if options.arguments is not None else sys.argv[1:]
    supervisor = Supervisor(this_program([*arguments, "--child"]), processes, options.stop_timeout)
    endpoint = Endpoint(supervisor, options.http) if options.http else None
    where = f", http on port {endpoint.port}" if endpoint is not None else ""
    try:
        return supervisor.run(lambda: line(f"{processes} processes work{where}"))
    finally:
        if endpoint is not None:
            endpoint.close()


# --- one process ----------------------------------------------------------------------------------------


def _work(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # is for the parent, and a closed terminal tells all of us
    begun: list[WorkerPool | GroupPool] = []

    def early(number: int, frame: Any) -> None:
        """Before `run_until_signal` takes over, and after it."""
        if not begun:
            sys.exit(0)  # there is nothing to stop yet
        begun[0].stop(wait=False)

    for number in SIGNALS:
        signal.signal(number, early)
    handler = load(options.handler)
    with connect(options) as nc:
        pool = _pool(nc, options, handler)
        begun.append(pool)
        over = Gate()
        reporter = Thread("jsclient-worker-report", _report, pool, nc, options.child, over)
        try:
            try:
                start_all([reporter], "what this process reports to its parent")
            except errors.NoThread:
                pool.stop(options.stop_timeout)
                raise
            report = pool.run_until_signal(options.stop_timeout)
        finally:
            over.set()
        if not report.finished:
            log.warning("stopped before all handlers had finished: %s", report)
        return 0 if report.finished else 1


def _pool(nc: Any, options: argparse.Namespace, handler: Callable[[Any], Any]) -> WorkerPool | GroupPool:
    js = jetstream(nc, options)
    given: dict[str, Any] = {
        name: value
        for name in ("threads", "attempts", "retries", "backoff", "dead_letter", "later", "confirm", "stop_timeout")
        if (value := getattr(options, name)) is not None
    }
    if not options.group:
        return WorkerPool(js.consumer(options.stream, options.consumer), handler, **given)
    if options.key:
        given["key"] = load(options.key)
    return groups.GroupPool(groups.open_group(js, options.stream, options.group), handler, **given)


def _report(pool: WorkerPool | GroupPool, nc: Connection, pipe: int, over: Gate) -> None:
    """Tell the parent how it goes; when that is gone, so are we."""
    while not over.is_set():
        figures = {**attrs.asdict(pool.snapshot()), "connected": nc.health().connected}
        try:
            os.write(pipe, json.dumps(figures).encode() + b"\n")
        except OSError:
            pool.stop(wait=False)
            return
        over.wait(REPORTS_EVERY)
