"""`check`: looks at driver and executors before a job runs, and shows in a table what is missing."""

from __future__ import annotations

import json
import pickle
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from jsclient.jetstream.api import names
from jsclient.spark import preflight_probe
from jsclient.spark.preflight_server import Settings
from jsclient.spark.privileges import needs
from jsclient.spark.versions import SOURCES, running

CLOCK_OFF: Final = 2.0
"""Seconds between two clocks at which start times and ages of messages become misleading."""
ROUNDS: Final = 3
"""Spark decides where a task runs, so an executor may need another round."""
LEVELS: Final = ("fail", "warn", "ok")


@attrs.frozen
class CheckRow:
    """One finding.

    Attributes:
        level: "ok", "warn" or "fail".
        check: The subject of the finding, for example "import" or "permission".
        where: The driver or the executors with this finding.
        text: The finding.
        advice: The remedy; empty if nothing needs to be done.
    """

    level: str
    check: str
    where: str
    text: str
    advice: str = ""


@attrs.frozen(repr=False)
class CheckReport:
    """The findings of `check`; its text is the table.

    Attributes:
        rows: The findings, failures first.
    """

    rows: tuple[CheckRow, ...]

    @property
    def ok(self) -> bool:
        """True if nothing failed. Warnings do not count."""
        return all(row.level != "fail" for row in self.rows)

    def __str__(self) -> str:
        checks = max(len(row.check) for row in self.rows)
        places = max(len(row.where) for row in self.rows)
        lines = []
        for row in self.rows:
            lines.append(f"{row.level:4}  {row.check:{checks}}  {row.where:{places}}  {row.text}")
            if row.advice:
                lines.append(f"      -> {row.advice}")
        return "\n".join(lines)

    __repr__ = __str__


def check(
    spark: Any,
    options: Mapping[str, str],
    way: str | None = None,
    *,
    format: Literal["jetstream", "jetstream-kv", "jetstream-objects"] = "jetstream",
) -> CheckReport:
    """Look at the driver and at every executor, and return a table of what is missing for a job with these options.

    `way` is read, readStream, write or writeStream. Without it, options with a stream are for read, others for write.
    `format` is the data source that the options belong to.
    The checks are versions, imports, the connection to the servers, streams, permissions and clocks. It writes nothing.

    Small tasks look at the executors. Spark decides where they run, so the row "executors" shows how many answered.
    Executors that start later are not checked. With Spark Connect the number of executors and the Python of the driver
    are unknown. Raises JetStreamSparkError for bad options only; everything else is a row of the report.
    """
    if way is None:
        way = "read" if {"stream", "bucket"} & {name.lower() for name in options} else "write"
    settings = settings_of(options, way, format)
    sent = pickle.dumps(settings)
    context = _context(spark)
    own = "client" if context is None else "driver"
    driver = json.loads(preflight_probe.probe(None if context is None else sent))
    rows = list(format_found(spark, format))
    started, found = time.time(), list[dict[str, Any]]()
    try:
        found, expected = from_executors(spark, context, sent)
        rows.append(_coverage(len(found), expected))
    except Exception as error:
        text = settings.options.hide(_reason(str(error) or type(error).__name__))
        advice = "the log of the executor has more; PYSPARK_PYTHON names the Python of executors"
        rows.append(CheckRow("fail", "executors", "cluster", text, advice))
    rows += _merged(own, driver, found, started)
    return CheckReport(tuple(sorted(rows, key=lambda row: LEVELS.index(row.level))))


def settings_of(options: Mapping[str, str], way: str, format: str) -> Settings:
    checked, needed = needs(options, way, format)
    given = {name.lower(): value for name, value in options.items()}
    streams = tuple(name for name in checked.stream_names if name)
    if format == "jetstream-kv":
        streams = (f"KV_{given.get('bucket') or given['path']}",)
    optional: frozenset[str] = frozenset()
    if format == "jetstream" and way.startswith("write") and checked.delivery_semantics != "exactly-once":
        # Rows are written without them, but the driver cannot keep a journal and check the duplicate window.
        prefixes = (names.api_prefix(checked.domain, checked.api_prefix), f"$KV.{checked.journal_bucket}.")
        optional = frozenset(subject for subject in needed["publish"] if subject.startswith(prefixes))
    return Settings(checked, streams, tuple(needed["publish"]), tuple(needed["subscribe"]), optional)


def _context(spark: Any) -> Any:
    """The SparkContext; None with Spark Connect."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def format_found(spark: Any, format: str) -> Iterator[CheckRow]:
    """Spark looks for formats on the driver, also with Spark Connect."""
    if running()[1] < SOURCES:
        return
    try:
        _ = spark.read.format(format).load().schema
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            advice = "call jsclient.spark.register(spark); jsclient must be installed on the driver"
            yield CheckRow("warn", "format", "driver", f"Spark does not find {format!r}", advice)
        else:
            advice = "the driver starts Python processes, too: PYSPARK_PYTHON must lead to a Python with jsclient there"
            yield CheckRow("fail", "format", "driver", _reason(str(error)), advice)
    else:
        yield CheckRow("ok", "format", "driver", format)


def from_executors(spark: Any, context: Any, settings: bytes) -> tuple[list[dict[str, Any]], int | None]:
    """An answer from each executor that ran a task, and the number of executors, if Spark reports it."""
    import pyspark
    from pyspark.sql import functions

    cloudpickle: Any = pyspark.cloudpickle
    found: dict[str, dict[str, Any]] = {}
    cloudpickle.register_pickle_by_value(preflight_probe)
    try:
        look = functions.udf(preflight_probe.in_task(settings), "string", useArrow=False).asNondeterministic()
        for _ in range(ROUNDS):
            tasks = 2 * (_executors(context) or 0) or _cores(spark)
            for row in spark.range(0, tasks, 1, tasks).select(look("id").alias("answer")).collect():
                answer = json.loads(row.answer)
                found.setdefault(answer["place"], answer)
            expected = _executors(context)
            if expected is None or len(found) >= expected:
                break
    finally:
        cloudpickle.unregister_pickle_by_value(preflight_probe)
    return list(found.values()), expected


def _executors(context: Any) -> int | None:
    try:
        listed = len(context._jsc.sc().statusTracker().getExecutorInfos())
    except Exception:
        return None
    return max(1, listed - 1)  # the driver is in the list; in local mode it is the only executor


def _cores(spark: Any) -> int:
    from pyspark.sql import functions

    return int(spark.range(1 << 12).select(functions.spark_partition_id()).distinct().count())


def _coverage(answered: int, expected: int | None) -> CheckRow:
    if expected is None:
        advice = "the Python of the driver was not checked either, apart from the format"
        return CheckRow("warn", "executors", "cluster", f"{answered} answered; Spark does not report how many", advice)
    text = f"{answered} of {expected} answered"
    if answered < expected:
        return CheckRow("warn", "executors", "cluster", text, "check again when the cluster has free cores")
    return CheckRow("ok", "executors", "cluster", text)


_PYTHON_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt): .+", re.MULTILINE)
_NO_PROGRAM: Final = re.compile(r"Cannot run program [^\n]+")


def _reason(text: str) -> str:
    """The line of Spark's error that names the cause."""
    program = _NO_PROGRAM.search(text)
    errors = _PYTHON_ERROR.findall(text)
    return (program[0] if program else errors[-1] if errors else text.splitlines()[0])[:300]


def _merged(own: str, driver: dict[str, Any], others: list[dict[str, Any]], started: float) -> Iterator[CheckRow]:
    """One row for each finding, with all processes that have it."""
    places: dict[tuple[str, str, str, str], list[str]] = {}
    for answer in (driver, *others):
        findings = [tuple(finding) for finding in answer["findings"]]
        findings.append(version_finding(answer["versions"], driver["versions"]))
        findings += clock_finding(answer, started) if answer is not driver or answer["clock"] is not None else []
        for finding in findings:
            places.setdefault(finding, []).append(own if answer is driver else f"executor {answer['place']}")
    for (level, check, text, advice), having in places.items():
        executors = [name for name in having if name != own]
        if executors and len(executors) == len(others):
            executors = [f"{len(others)} executors" if len(others) > 1 else "executor"]
        yield CheckRow(level, check, ", ".join([own] * (own in having) + executors), text, advice)


def version_finding(found: dict[str, str], driver: dict[str, str]) -> tuple[str, str, str, str]:
    other = {name: version for name, version in found.items() if driver.get(name) not in (None, version)}
    if not other:
        return "ok", "versions", ", ".join(f"{name} {version}" for name, version in found.items()), ""
    text = ", ".join(f"{name} {version} and not {driver[name]}" for name, version in other.items())
    level = "fail" if {"jsclient", "python"} & set(other) else "warn"
    return level, "versions", text, "install the versions of the driver on the executors"


def clock_finding(answer: dict[str, Any], started: float) -> Iterator[tuple[str, str, str, str]]:
    whose, off = "server's", answer["clock"]
    if off is None:
        whose, off = "driver's", max(0.0, started - answer["now"], answer["now"] - time.time())
    if off <= CLOCK_OFF:
        yield "ok", "clock", f"within {CLOCK_OFF:g} s of the {whose} clock", ""
    else:
        advice = "synchronize the clocks: start times and ages of messages depend on them"
        yield "warn", "clock", f"{off:.1f} s from the {whose} clock", advice
