"""`make demo`: publish every flight, add up in Spark, read the results, compare with the file. Exit status 1 on any
difference, with one clear line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import jsclient
from jsclient.errors import JsClientError
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, ServerNotFound
from tools.demo.flights import ROWS, DemoError, Expected, Totals, data_file, differences, read_flights
from tools.demo.progress import Bar
from tools.demo.publish import publish_flights

RESULTS = "RESULTS"


class Legs:
    """How long each leg took and how many rows went through it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def leg(self, name: str, rows: int) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.lines.append(f"  {name:<44} {rows:>9,} rows in {seconds:6.1f} s  {rows / seconds:>11,.0f} rows/s")


def read_results(js: JetStream, carriers: int) -> dict[str, Totals]:
    """What a plain script does: fetch the result messages and acknowledge them."""
    consumer = js.stream(RESULTS).create_or_update_consumer(ConsumerConfig(durable_name="table"))
    found: dict[str, Totals] = {}
    while messages := consumer.fetch(carriers, timeout=5 if len(found) < carriers else 0):
        for message in messages:
            totals = msgspec.json.decode(message.data, type=Totals)
            if totals.carrier in found:
                raise DemoError(f"carrier {totals.carrier}: its result came twice")
            found[totals.carrier] = totals
            message.double_ack()
    return found


def run(rows: int) -> list[str]:
    """The whole demo; returns the differences (none, when all is well)."""
    from tools.demo import spark_job  # starts slowly, so arguments and data are checked before

    legs, expected = Legs(), Expected()
    with (
        NatsServer() as server,
        spark_job.temporary_folder() as folder,
        jsclient.connect(server.url, name="demo") as nc,
    ):
        js = JetStream(nc)
        print(f"nats-server {nc.server_info.version} is up; {rows:,} flight records are on their way.", flush=True)
        with Bar("publish", rows) as bar, legs.leg("script publishes JSON into JetStream", rows):
            stored = publish_flights(js, read_flights(rows), expected, bar)
        if stored != rows:
            raise DemoError(f"{stored:,} records were stored instead of {rows:,}")
        js.create_stream(StreamConfig(name=RESULTS, subjects=["results.*"]))
        carriers = expected.totals()
        with spark_job.session(Path(folder)) as spark:
            options = jsclient.ConnectOptions(servers=server.url, name="executor")
            with (
                Bar("spark", rows) as bar,
                nc.subscribe(spark_job.PROGRESS, lambda message: bar.step(int(message.data))),
                legs.leg("Spark executors read and add up", rows),
            ):
                results = spark_job.collect(spark_job.aggregate(spark, options, stored))
            with legs.leg("foreachPartition publishes the results", len(carriers)):
                results.foreachPartition(spark_job.Publisher(options))
        with legs.leg("script reads the results", len(carriers)):
            found = read_results(js, len(carriers))
    show(found, legs)
    return differences(carriers, found)


def show(found: dict[str, Totals], legs: Legs) -> None:
    print("\n  carrier   flights   mean departure delay   mean arrival delay   cancelled")
    for carrier in sorted(found):
        line = found[carrier]
        print(
            f"  {carrier:<7} {line.flights:>9,} {minutes(line.mean_dep_delay):>22} {minutes(line.mean_arr_delay):>20} "
            f"{line.cancelled:>11,}"
        )
    total = sum(line.flights for line in found.values())
    print(f"  {'all':<7} {total:>9,}\n")
    print("\n".join(legs.lines))


def minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} min"


def wanted_rows() -> int:
    text = os.environ.get("DEMO_ROWS") or str(ROWS)
    if not text.isdecimal() or not 1 <= int(text) <= ROWS:
        raise DemoError(f"DEMO_ROWS must be a number from 1 to {ROWS}, got {text!r}")
    return int(text)


def main() -> int:
    start = time.perf_counter()
    try:
        rows = wanted_rows()
        data_file()
        wrong = run(rows)
    except (DemoError, ServerNotFound, JsClientError, RuntimeError) as error:
        print(f"demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo interrupted", file=sys.stderr)
        return 130
    if wrong:
        print("\n".join(["", "demo failed: not every record is accounted for", *wrong]), file=sys.stderr)
        return 1
    seconds = time.perf_counter() - start
    print(f"\nAll {rows:,} records are accounted for: none missing, doubled or different ({seconds:.0f} s in all).")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
