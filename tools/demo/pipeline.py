"""The flight pipeline: script -> JetStream -> Structured Streaming -> JetStream -> batch read -> table and chart.

    python -m tools.demo.pipeline              local[2], or SPARK_MASTER=spark://...
    python -m tools.demo.pipeline --crash      kills a Python worker, the nats-server and the driver on the way
    python -m tools.demo.pipeline --cluster    on a standalone cluster of a master and two workers, started here

Every figure is compared with one computed straight from the file; a single lost, doubled or changed record shows.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsclient
from jsclient.errors import JsClientError
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, ServerNotFound
from tools.demo.cluster import standalone
from tools.demo.flights import ROWS, DemoError, Expected, Flight, Totals, data_file, differences, read_flights
from tools.demo.progress import Bar
from tools.demo.publish import STREAM, publish_flights

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / ".tools" / "flight-delays.png"
RESULTS = "RESULTS"
PER_BATCH = 10_000  # flights at least
STARTS = 12  # of the Spark program before we give up
END_OF_TIME = "2100-01-01T00:00:00Z"


def flights_by_time(rows: int) -> list[Flight]:
    """The records in the order of their scheduled hour; the file has October after January, which is late by months."""
    return sorted(read_flights(rows), key=lambda flight: flight.time_hour)


def close_the_last_day(js: JetStream) -> None:
    """A watermark moves with the data only: without something later, the last day would stay open for ever.

    Its own window never closes, so it never becomes a result.
    """
    blank = dict.fromkeys(Flight.__struct_fields__, 0)
    text = {"carrier": "end", "tailnum": None, "origin": "", "dest": "", "time_hour": END_OF_TIME}
    js.publish(f"{STREAM.lower()}.end", json.dumps({**blank, **text}).encode(), msg_id="end")


class Driver:
    """The Spark program in a process group of its own, started again until it is through."""

    def __init__(self, url: str, folder: Path, master: str, rows: int, bar: Bar) -> None:
        self.result = folder / "table.json"
        self.log = folder / "spark.log"
        self.starts = 0
        self.batches: set[int] = set()
        self._total = rows
        self._bar = bar
        self._done = 0
        per_trigger = str(max(PER_BATCH, rows // 8))
        module = "tools.demo.pipeline_job"
        self._command = [sys.executable, "-m", module, url, str(folder), master, per_trigger, str(self.result)]
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while True:
            self.starts += 1
            if self.starts > STARTS:
                raise DemoError(f"the Spark program failed {STARTS} times:\n{self.log.read_text()[-2000:]}")
            with self.log.open("a") as log:
                self._process = subprocess.Popen(
                    self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
                )
                assert self._process.stdout is not None
                for line in self._process.stdout:
                    self._progress(line)
                if self._process.wait() == 0:
                    self._bar.step(self._total - self._done)
                    return

    def _progress(self, line: str) -> None:
        if line.startswith("{"):
            batch = json.loads(line)
            self.batches.add(batch["batch"])
            done = max(self._done, self._total - batch["behind"])
            self._bar.step(done - self._done)
            self._done = done
            self._bar.say(f"batch {batch['batch']}: {done:,} of {self._total:,} flights")

    def kill(self) -> None:
        """SIGKILL to the driver, its Java and its workers."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


class Crashes:
    """Kills one thing after another, each after another batch was finished."""

    def __init__(self, server: NatsServer, driver: Driver) -> None:
        self._server = server
        self._driver = driver
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crashes")
        self.done: list[str] = []
        self._thread.start()

    def _run(self) -> None:
        plan: list[tuple[str, Callable[[], bool]]] = [
            ("SIGKILL to a Python worker", self._kill_worker),
            ("SIGKILL to the nats-server, and started again", self._kill_server),
            ("SIGKILL to the driver", self._kill_driver),
        ]
        for number, (name, kill) in enumerate(plan, 1):
            while len(self._driver.batches) < number or not kill():
                if self._stop.wait(0.05):
                    return
            self.done.append(name)
            print(f"  {name}", flush=True)

    def _kill_worker(self) -> bool:
        """A process that is connected to the server now and is neither us nor the source's own runner."""
        try:
            with urllib.request.urlopen(f"{self._server.monitor_url}/connz?limit=1000", timeout=5) as answer:
                clients = json.load(answer)["connections"]
        except OSError:
            return False
        workers = [c for c in clients if c.get("name", "").startswith("jsclient-spark-") and c["out_msgs"] > 1000]
        for client in workers:
            try:
                os.kill(int(client["name"].rpartition("-")[2]), signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        return False

    def _kill_server(self) -> bool:
        self._server.kill()
        self._server.start()
        return True

    def _kill_driver(self) -> bool:
        self._driver.kill()
        return True

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        return self.done


# --- the legs -------------------------------------------------------------------------------------------------------


def run(rows: int, master: str, crash: bool, cluster: bool) -> list[str]:
    """Everything; returns the differences (none, when all is well)."""
    expected, started = Expected(), time.perf_counter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jsclient-", ignore_cleanup_errors=True)))
        server = stack.enter_context(NatsServer())
        environment(folder)
        if cluster:
            master = stack.enter_context(standalone(folder))
        with jsclient.connect(server.url, name="demo") as nc, Bar("publish", rows) as bar:
            js = JetStream(nc)
            print(f"nats-server {nc.server_info.version}, Spark on {master}, {rows:,} flights", flush=True)
            print("1. A script publishes the flights into a stream.", flush=True)
            publish_flights(js, flights_by_time(rows), expected, bar)
            close_the_last_day(js)
            js.create_stream(StreamConfig(name=RESULTS, subjects=["results.*"]))
        published = time.perf_counter()
        print("2. Spark reads the stream, adds up each day, and writes the sums into another stream.", flush=True)
        with Bar("spark", rows) as bar:
            driver = Driver(server.url, folder, master, rows, bar)
            stack.callback(driver.kill)
            crashes = Crashes(server, driver) if crash else None
            try:
                driver.run()
            finally:
                killed = crashes.stop() if crashes else []
        found = {row["carrier"]: totals(row) for row in json.loads(driver.result.read_text())}
    if crash and len(killed) < 3:
        raise DemoError(f"only {len(killed)} of 3 kills came before the end; use more rows (DEMO_ROWS)")
    print("3. The sums read back, as a table and a chart; then every figure is compared with the file's.")
    show(found)
    chart(found)
    print(
        f"  script -> stream: {published - started:.1f} s; Spark -> results -> table: "
        f"{time.perf_counter() - published:.1f} s, {driver.starts} start(s), {len(driver.batches)} batches"
    )
    return differences(expected.totals(), found)


def environment(folder: Path) -> None:
    """For the Spark program and its workers: our code, this Python, files below `folder`."""
    os.environ.update(PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    (folder / "local").mkdir()


def totals(row: dict[str, Any]) -> Totals:
    def mean(name: str) -> float | None:
        return row[f"{name}_sum"] / row[f"{name}_count"] if row[f"{name}_count"] else None

    # A stream cannot count distinct rows; the sums of the fingerprints tell lost and doubled ones just as well.
    flights = row["flights"]
    return Totals(row["carrier"], flights, mean("dep"), mean("arr"), row["cancelled"], flights, row["fingerprints"])


def show(found: dict[str, Totals]) -> None:
    print("\n  carrier   flights   mean departure delay   mean arrival delay   cancelled")
    for line in (found[carrier] for carrier in sorted(found)):
        dep, arr = minutes(line.mean_dep_delay), minutes(line.mean_arr_delay)
        print(f"  {line.carrier:<7} {line.flights:>9,} {dep:>22} {arr:>20} {line.cancelled:>11,}")
    print(f"  {'all':<7} {sum(line.flights for line in found.values()):>9,}\n")


def minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} min"


def chart(found: dict[str, Totals]) -> None:
    """Bars of the mean delays per carrier, as a PNG below .tools."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    carriers = sorted(found)
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for shift, name in ((-0.2, "departure"), (0.2, "arrival")):
        heights = [getattr(found[c], f"mean_{name[:3]}_delay") or 0.0 for c in carriers]
        axes.bar([i + shift for i in range(len(carriers))], heights, 0.4, label=name)
    axes.set_xticks(range(len(carriers)), carriers)
    axes.set_ylabel("mean delay, minutes")
    axes.set_title("Delays per carrier, New York 2013")
    axes.legend()
    CHART.parent.mkdir(exist_ok=True)
    figure.savefig(CHART, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    print(f"  chart: {CHART.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--crash", action="store_true", help="kill a worker, the server and the driver on the way")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster started here")
    options = parser.parse_args()
    # Ends through the `with` blocks, or Spark's processes would be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.perf_counter()
    try:
        text = os.environ.get("DEMO_ROWS") or str(ROWS)
        if not text.isdecimal() or not 1 <= int(text) <= ROWS:
            raise DemoError(f"DEMO_ROWS must be a number from 1 to {ROWS}, got {text!r}")
        data_file()
        wrong = run(int(text), os.environ.get("SPARK_MASTER") or "local[2,4]", options.crash, options.cluster)
    except (DemoError, ServerNotFound, JsClientError, RuntimeError) as error:
        print(f"demo failed: {error}", file=sys.stderr)
        return 1
    if wrong:
        print("\n".join(["demo failed: the results are not those of the file", *wrong]), file=sys.stderr)
        return 1
    print(f"All {int(text):,} records arrived once and unchanged ({time.perf_counter() - started:.0f} s).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
