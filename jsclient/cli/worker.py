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
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient import Connection, errors, groups, handlers
from jsclient.cli.arguments import OneOf, Options, arg, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.output import line
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate, new_lock
from jsclient.workers import WorkerPool
from jsclient.workers.health import Endpoint
from jsclient.workers.options import THREADS, PoolOptions
from jsclient.workers.signals import SIGNALS, ignore_signals
from jsclient.workers.supervisor import RECYCLED, REPORTS_EVERY, Supervisor, processes_of, this_program
from jsclient.workers.waits import waits_of

if TYPE_CHECKING:
    from jsclient.groups import GroupPool
    from jsclient.jetstream import JetStream

STOP_TIMEOUT: Final = 20.0
"""Seconds for running handlers. With the 5 s until a process is killed, it ends before Kubernetes' 30 s are over."""
_STOP: Final = f"seconds for running handlers (default {STOP_TIMEOUT:.0f})"

log: logging.Logger = logging.getLogger("jsclient.workers")


cli: Commands = Commands()


def _delays(text: str) -> list[float]:
    return [seconds(part) for part in text.split(",")]


def load(name: str) -> Callable[[Any], Any]:
    """The function that `module:function` names. It looks into the current folder first, as `python -m` does."""
    module, colon, path = name.partition(":")
    if not colon or not path:
        raise errors.ConfigError(f"a function is given as MODULE:FUNCTION, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module may raise anything
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise errors.ConfigError(f"{name!r} cannot be loaded: {what}") from error
    handlers.required(found, repr(name))
    loaded: Callable[[Any], Any] = found
    return loaded


@cli.alone(
    "worker",
    arg("handler", metavar="MODULE:FUNCTION", help="called with each message; looked for here, too"),
    arg("--stream", required=True),
    OneOf(
        arg("--consumer", help="a pull consumer, shared by all processes; no order"),
        arg("--group", help="a partitioned group: messages of a key in order, in all processes"),
        required=True,
    ),
    arg("--key", metavar="MODULE:FUNCTION", help="with --group: the key (default: the subject)"),
    arg("--processes", default="1", metavar="N|auto", help="auto: one per core that it may use (default 1)"),
    arg("--threads", type=positive, default=THREADS, help=f"of each process (default {THREADS})"),
    arg("--attempts", type=positive, help="give a message up when it fails so often"),
    arg("--retries", type=int, help="give a message up when it asks for another try more often (100)"),
    arg("--backoff", type=_delays, metavar="S,S,...", help="seconds before each new attempt"),
    arg("--jitter", type=float, help="spread these by a part, such as 0.2: they differ by up to 20%%"),
    arg("--time-limit", type=seconds, help="seconds for a message; then its process is replaced"),
    arg("--max-tasks-per-child", type=positive, help="replace a process after so many messages"),
    arg("--dead-letter", metavar="SUBJECT", help="where messages go that are given up"),
    arg("--later", metavar="SUBJECT", help="with --consumer: where messages wait for a late retry"),
    arg("--confirm", action="store_true", help="wait for the confirmation of each ack"),
    arg("--stop-timeout", type=seconds, default=STOP_TIMEOUT, help=_STOP),
    arg("--http", metavar="[HOST:]PORT", help="serve /healthz, /readyz and /metrics there"),
    arg("--child", type=int, help=argparse.SUPPRESS),
)
def run(options: Options) -> int:
    """Run a worker pool.

    SIGTERM and SIGINT stop: running handlers may end, the rest goes back; a third Ctrl-C kills. SIGHUP replaces the
    processes one by one, with newly loaded code. A crashed process is started again, after 0.2 s to 30 s.
    """
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
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    load(options.handler)
    _look(options)
    arguments = options.arguments if options.arguments is not None else sys.argv[1:]
    supervisor = Supervisor(this_program([*arguments, "--child"]), processes, options.stop_timeout)
    endpoint = Endpoint(supervisor, options.http) if options.http else None
    work = "1 process works" if processes == 1 else f"{processes} processes work"
    where = f", http on port {endpoint.port}" if endpoint is not None else ""
    try:
        return supervisor.run(lambda: line(f"{work}{where}"), last=True)
    finally:
        if endpoint is not None:
            endpoint.close()


def _look(options: Options) -> None:
    """Detect here problems that would end every process or lose a message later, and report them in one sentence."""
    given = _given(options)
    pool_options = PoolOptions(**{name: value for name, value in given.items() if name != "key"})
    try:
        nc = connect(options)
    except errors.AuthError:
        raise
    except errors.NatsConnectionError as error:
        log.warning("%s The processes try again.", error)
        return
    with nc:
        js = jetstream(nc, options)
        if options.group:
            groups.open_group(js, options.stream, options.group)
        else:
            try:
                waits_of(js.consumer(options.stream, options.consumer), pool_options)
            except errors.NotPullConsumer as error:
                raise errors.ConfigError(f"{errors.brief(error)}; a worker needs a pull consumer") from None
        if options.dead_letter:
            _stored(js, options.dead_letter)


def _stored(js: JetStream, subject: str) -> None:
    try:
        js.stream_name_by_subject(subject)
    except errors.NoStreamForSubject:
        advice = f"jsclient stream add DEAD --subjects {subject}"
        raise errors.ConfigError(f"no stream stores the dead letters of {subject!r}: {advice}") from None
    except (errors.TimedOut, errors.PermissionViolation, errors.NoResponders) as error:
        log.warning("no look at the stream of the dead letters: %s", errors.brief(error))


# --- one process ----------------------------------------------------------------------------------------


class _Limits:
    """Ends this process when it has handled enough messages, or when one took too long."""

    def __init__(self, options: Options) -> None:
        self._most: int | None = options.max_tasks_per_child
        self._begun = 0
        self._lock = new_lock()
        self.reached = False
        self.told = False
        """A signal came while the pool was being made. Handlers may run already."""
        self.making = False
        self.pool: WorkerPool | GroupPool | None = None
        self.known = Gate()
        """Set after `pool` is set. A pool calls handlers before its constructor returns."""

    def counted(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The handler; its N-th call ends the process."""
        if self._most is None:
            return handler

        def handle(message: Any) -> Any:
            self.known.wait()
            with self._lock:
                self._begun += 1
                last = self._begun == self._most
            try:
                return handler(message)
            finally:
                if last:
                    self._end()

        return handle

    def event(self, event: Any) -> None:
        if event.kind == "hung":
            self._end()

    def _end(self) -> None:
        self.reached = True
        if self.pool is not None:
            self.pool.stop(wait=False)  # this thread starts no further handler
        os.kill(os.getpid(), signal.SIGTERM)


def _work(options: Options) -> int:
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # for the parent; a closed terminal sends it to all processes
    limits = _Limits(options)

    def early(number: int, frame: Any) -> None:
        """Handles signals before `run_until_signal` takes over, and after it."""
        if limits.pool is not None:
            limits.pool.stop(wait=False)
        elif limits.making:
            limits.told = True
        elif not limits.reached:
            sys.exit(0)  # there is nothing to stop yet

    for number in SIGNALS:
        signal.signal(number, early)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the parent starts processes with SIGINT blocked
    handler = limits.counted(load(options.handler))
    with connect(options) as nc:
        limits.making = True
        try:
            pool = limits.pool = _pool(nc, options, handler, limits)
        finally:
            limits.known.set()
        if limits.reached or limits.told:
            pool.stop(wait=False)
        over = Gate()
        reporter = Thread("jsclient-worker-report", _report, pool, nc, options, over)
        try:
            try:
                start_all([reporter], "what this process reports to its parent")
            except errors.NoThread:
                pool.stop(options.stop_timeout)
                raise
            report = pool.run_until_signal(options.stop_timeout)
        finally:
            ignore_signals()
            over.set()
        for message in report.cut_off:
            log.warning("the handler of %r was cut off; the server delivers the message again", message)
        if not report.finished and not report.cut_off:
            log.warning("stopped before all handlers had finished: %s", report)
        if limits.reached:
            return RECYCLED
        return 0 if report.finished else 1


def _given(options: Options) -> dict[str, Any]:
    """Options of the pool."""
    names = ("threads", "attempts", "retries", "backoff", "jitter", "dead_letter", "later", "confirm", "stop_timeout")
    given = {name: getattr(options, name) for name in names}
    given["progress_limit"] = options.time_limit
    given["key"] = load(options.key) if options.key else None
    return {name: value for name, value in given.items() if value is not None}


def _pool(nc: Any, options: Options, handler: Callable[[Any], Any], limits: _Limits) -> WorkerPool | GroupPool:
    js, given = jetstream(nc, options), _given(options)
    if options.time_limit is not None:
        given["on_event"] = limits.event
    if not options.group:
        return WorkerPool(js.consumer(options.stream, options.consumer), handler, **given)
    return groups.GroupPool(groups.open_group(js, options.stream, options.group), handler, **given)


def _report(pool: WorkerPool | GroupPool, nc: Connection, options: Options, over: Gate) -> None:
    """Report the state to the parent; end if the parent is gone."""
    told = False
    while not over.is_set():
        snapshot = pool.snapshot()
        if pool.stopping and snapshot.in_flight and not told:
            told = True
            oldest = snapshot.oldest_unacked_age
            text = "stopping: waits up to %g s for %d handlers, the oldest of which runs for %.1f s"
            log.warning(text, options.stop_timeout, snapshot.in_flight, oldest)
        figures = {**attrs.asdict(snapshot), "connected": nc.health().connected}
        try:
            os.write(options.child, json.dumps(figures).encode() + b"\n")
        except OSError:
            pool.stop(wait=False)
            return
        over.wait(REPORTS_EVERY)
