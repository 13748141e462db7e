"""A service: endpoints with their worker threads and counters, and the verbs by which tools find it (ADR-32)."""

from __future__ import annotations

import datetime as dt
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, overload

import attrs
import msgspec

from jsclient import codecs, waiting
from jsclient._engine import SLICE, Taker, start_all
from jsclient.codecs import Codec
from jsclient.connection import Connection, engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.errors import (
    ConfigError,
    ConnectionClosed,
    DrainTimeout,
    InvalidName,
    JsClientError,
    NatsConnectionError,
    PermissionViolation,
    ServiceError,
    SubscriptionClosed,
    TimedOut,
    brief,
)
from jsclient.hints import Unpack
from jsclient.instruments import handling
from jsclient.nuid import next_nuid
from jsclient.services.models import (
    DEFAULT_QUEUE_GROUP,
    VERBS,
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    control_subject,
)
from jsclient.services.request import Request, TypedRequest, one_line, typed_handler
from jsclient.shared_options import with_shared_options
from jsclient.states import LinkEvent
from protocol.described import described

if TYPE_CHECKING:
    from jsclient.subscription import Subscription
    from protocol import Msg

logger: logging.Logger = logging.getLogger("jsclient.services")

STOP_TIMEOUT: Final = 30.0  # seconds for the requests that are queued or in work, as for a drain
PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 64 << 20

T = TypeVar("T")

Handler = Callable[[Request], object]

_NAME = re.compile(r"[A-Za-z0-9\-_]+")
_SUBJECT = re.compile(r"[^\s>]+(?:\.>)?|>")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)


@described
@attrs.frozen(kw_only=True)
class ServiceConfig:
    """What a service is. `queue_group` None means "q"; "" means none: every instance gets every request.

    `stats_handler(endpoint)` returns what STATS shows as `data` of an endpoint (anything that JSON can carry).
    `on_stop(service)` is called once when the service has stopped, also when the connection closed (`service.error`
    says why, if the application has not closed it).
    """

    name: str
    """Name of the service: letters, digits, `-` and `_`."""
    version: str
    """A semantic version, for example 1.0.0."""
    description: str = ""
    """Text for people."""
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    """Keys and values for people and tools."""
    queue_group: str | None = None
    """None means "q"; "" means none: every instance gets every request."""
    stats_handler: StatsHandler | None = None
    """`(endpoint)` -> what STATS shows as its data."""
    on_error: Callable[[Endpoint, BaseException], object] | None = None
    """`(endpoint, error)`: what a handler raised, an answer that could not be sent, and what ended an endpoint. Called
    in the thread of the endpoint; without it these are logged."""
    on_stop: Callable[[Service], object] | None = None
    """`(service)`: called once when the service has stopped."""
    codec: Codec = codecs.JSON
    """How endpoints with `decode=` read requests and write answers."""

    def __attrs_post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidName(f"service name {self.name!r} must be letters, digits, '-' and '_' only, and not empty")
        if not _SEMVER.fullmatch(self.version):
            raise ConfigError(f"version {self.version!r} of service {self.name} is not a semantic version like 1.2.3")
        _check_queue_group(self.queue_group)
        codecs.check(self.codec)


def _check_queue_group(group: str | None) -> None:
    if group and not _SUBJECT.fullmatch(group):
        raise InvalidName(f"queue group {group!r} must have no spaces, and '>' at its end only")


@described
class EndpointDict(TypedDict, total=False):
    """Keyword arguments of `add_endpoint`; see there."""

    subject: str | None
    """The subject below the prefix; default None: the name."""
    queue_group: str | None
    """Default None: that of the group or the service; "" means none."""
    metadata: Mapping[str, str] | None
    """Words about the endpoint that `info` shows; default None: none."""
    workers: int
    """Threads that call the handler; 1 (default) keeps the order of requests."""
    pending_messages: int
    """Requests that may wait for the handler (65,536 by default); more are dropped."""
    pending_bytes: int
    """The same in bytes (64 MiB by default)."""
    timeout: Timeout
    """Seconds in which the server may refuse the subscription (5 by default); a later refusal is `Endpoint.error`."""


@described
class Endpoint(Taker):
    """One endpoint of a service; made by `add_endpoint`. Its counters are `stats()`.

    `error` is what ended it although the service goes on: PermissionViolation when the server refuses its
    subscription. Then INFO does not list it any more, and `stats()` tells the error.
    """

    def __init__(
        self,
        service: Service,
        name: str,
        subject: str,
        queue_group: str,
        handler: Handler,
        metadata: Mapping[str, str] | None,
    ) -> None:
        self.name = name
        """Its name."""
        self.subject = subject
        """Where it listens."""
        self.queue_group = queue_group
        """Its queue group; "" when it has none."""
        self.metadata: dict[str, str] = dict(metadata or {})
        """Words about it that `info` shows."""
        self.handler = handling(service.nc.options.instrumentation, handler)
        """For layers."""
        self._service = service
        self._lock = waiting.new_lock()
        self._requests = self._errors = self._nanoseconds = 0
        self._last_error = ""
        self._subscription: Subscription | None = None
        self._threads: list[threading.Thread] = []
        self._closing = False
        self.error: Exception | None = None
        """What ended it although the service goes on; None while it works."""

    def info(self) -> EndpointInfo:
        """What INFO says about it."""
        return EndpointInfo(name=self.name, subject=self.subject, queue_group=self.queue_group, metadata=self.metadata)

    def stats(self) -> EndpointStats:
        """The counters since the start or the last reset; times in nanoseconds."""
        data: Any = {}
        if self._service.config.stats_handler is not None:
            data = self._service.config.stats_handler(self)
        with self._lock:
            return EndpointStats(
                name=self.name,
                subject=self.subject,
                queue_group=self.queue_group,
                num_requests=self._requests,
                num_errors=self._errors,
                last_error=self._last_error,
                processing_time=self._nanoseconds,
                average_processing_time=self._nanoseconds // self._requests if self._requests else 0,
                data=data,
            )

    def reset(self) -> None:
        """Set its counters to zero."""
        with self._lock:
            self._requests = self._errors = self._nanoseconds = 0
            self._last_error = ""

    def _start(self, workers: int, pending_messages: int, pending_bytes: int, timeout: Timeout) -> None:
        self._subscription = self._service.nc.subscribe(
            self.subject,
            queue=self.queue_group,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
        )
        label = f"jsclient-worker-{self._service.config.name}-{self.name}"
        self._threads = [
            threading.Thread(target=self._work, name=f"{label}-{number}", daemon=True) for number in range(workers)
        ]
        try:
            engine_of(self._service.nc).takers.enter(self)
            start_all(self._threads, f"endpoint {self.name!r} of service {self._service.config.name}")
            self._check_accepted(timeout)
        except BaseException:
            self._subscription.close()
            raise

    def _check_accepted(self, timeout: Timeout) -> None:
        """Raises PermissionViolation when the server refuses the subscription; without a link that comes later."""
        nc = self._service.nc
        try:
            if nc.is_connected:
                nc.flush(timeout)
        except (NatsConnectionError, TimedOut):
            return
        assert self._subscription is not None
        refused = self._subscription.mailbox.closed
        if isinstance(refused, PermissionViolation):
            self._subscription.mailbox.raise_closed()

    def _work(self) -> None:
        assert self._subscription is not None
        while True:
            try:
                message = self._subscription.next(timeout=None)
            except (SubscriptionClosed, NatsConnectionError):
                return
            except Exception as error:  # the server refused the subscription, perhaps on a later link
                self._refused(error)
                return
            if self._closing:
                return  # no handler starts after close()
            self._serve(message)

    def _refused(self, error: Exception) -> None:
        with self._lock:
            first, self.error = self.error is None, self.error or error
            if first:
                self._errors += 1
                self._last_error = one_line(brief(error))
        if first:
            self._tell(error, "endpoint %s of service %s ended: %s")

    def _serve(self, message: Msg) -> None:
        request = Request(message, self._service.nc)
        started = time.perf_counter_ns()
        failure: str | None = None
        try:
            self.handler(request)
            failure = request.error_sent
        except ServiceError as error:
            failure = f"{error.code}:{error.description}"
            self._answer_error(request, error.code or "500", error.description or "error", error.data)
            if self._service.config.on_error is not None:  # it is an answer as others are: not for the log
                self._tell(error, "endpoint %s of service %s answered with an error: %s")
        except BaseException as error:  # also SystemExit: it would end this worker, and nobody would answer any more
            failure = f"500:{one_line(repr(error))}"
            self._tell(error, "the handler of endpoint %s of service %s failed: %s", trace=True)
            self._answer_error(request, "500", one_line(repr(error)), b"")
        elapsed = time.perf_counter_ns() - started
        with self._lock:
            self._requests += 1
            self._nanoseconds += elapsed
            if failure is not None:
                self._errors += 1
                self._last_error = failure

    def _answer_error(self, request: Request, code: str, description: str, data: bytes) -> None:
        if not request.reply:
            return
        try:
            request.error(code, description, data)
        except JsClientError as error:
            self._tell(error, "endpoint %s of service %s could not answer with an error: %s")

    def _tell(self, error: BaseException, text: str, trace: bool = False) -> None:
        """To `on_error` of the service, or to the log when there is none."""
        on_error = self._service.config.on_error
        if on_error is None:
            logger.error(text, self.name, self._service.config.name, error, exc_info=error if trace else None)
            return
        try:
            on_error(self, error)
        except Exception:
            logger.exception("on_error of service %s failed", self._service.config.name)

    def _stop(self, deadline: Deadline) -> None:
        """Stop taking requests, let the workers finish those that are queued, wait for the workers."""
        if self._subscription is not None:
            try:
                self._subscription.drain(timeout=deadline.remaining())
            except (SubscriptionClosed, NatsConnectionError):
                pass
            except TimedOut:
                self._subscription.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(deadline.remaining())

    # --- the end of the connection: see Taker -------------------------------------------------------------

    def finish_drain(self, deadline: Deadline) -> None:
        """What was received is drained with the subscription; here it is waited for the last handlers."""
        for thread in self._threads:
            while thread.is_alive() and not (deadline.expired() or self._service.nc.closed):
                thread.join(deadline.at_most(SLICE))
        if any(thread.is_alive() for thread in self._threads):
            raise DrainTimeout(
                f"a handler of endpoint {self.name!r} did not end in time. Its answer will not arrive. Give it "
                "more time, or let handlers end sooner."
            )

    def end(self, reason: ConnectionClosed) -> None:
        self._closing = True
        if self._subscription is not None:
            self._subscription.mailbox.close(reason, discard=True)

    def runs_here(self) -> bool:
        return threading.current_thread() in self._threads

    def __repr__(self) -> str:
        return f"<Endpoint {self.name} on {self.subject}>"


StatsHandler = Callable[[Endpoint], Any]


@with_shared_options
class Group:
    """A common subject prefix (and queue group) for endpoints; made by `add_group`."""

    def __init__(self, service: Service, prefix: str, queue_group: str | None) -> None:
        self._service = service
        self._prefix = prefix
        self._queue_group = queue_group

    @overload
    def add_endpoint(self, name: str, handler: Handler, **options: Unpack[EndpointDict]) -> Endpoint: ...

    @overload
    def add_endpoint(
        self,
        name: str,
        handler: Callable[[TypedRequest[T]], object],
        *,
        decode: type[T],
        **options: Unpack[EndpointDict],
    ) -> Endpoint: ...

    def add_endpoint(
        self,
        name: str,
        handler: Callable[[Any], object],
        *,
        subject: str | None = None,
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
        workers: int = 1,
        pending_messages: int = PENDING_MESSAGES,
        pending_bytes: int = PENDING_BYTES,
        timeout: Timeout = DEFAULT,
        decode: Any = None,
    ) -> Endpoint:
        """Serve requests on `prefix.subject` (subject defaults to the name) with `handler(request)`.

        `workers` threads call the handler: 1 keeps the order of requests. An exception of the handler answers
        with an error: `ServiceError` with its own code, any other one with 500. `queue_group` None inherits
        that of the group or service, "" means none. `metadata`: words that `info` shows. Requests beyond
        `pending_messages` (65,536) or `pending_bytes` (64 MiB) are dropped.

        `decode=Order`: the handler gets a TypedRequest with a `value` of that type, read with the codec of the service,
        and what it returns is the answer; a request that cannot be decoded is answered with error 400 and counted.

        PermissionViolation when the server refuses the subscription. If it does not say so within `timeout` seconds (5
        by default), or there is no link, it comes later: `Endpoint.error`.
        """
        own = subject if subject is not None else name
        full = f"{self._prefix}.{own}" if self._prefix else own
        group = queue_group if queue_group is not None else self._queue_group
        if group is None:
            group = DEFAULT_QUEUE_GROUP
        if not _NAME.fullmatch(name):
            raise InvalidName(f"endpoint name {name!r} must be letters, digits, '-' and '_' only, and not empty")
        if not _SUBJECT.fullmatch(full):
            raise InvalidName(f"endpoint subject {full!r} must have no spaces, and '>' at its end only")
        _check_queue_group(group)
        if workers < 1:
            raise ConfigError(f"an endpoint needs at least one worker, not {workers}")
        if decode is not None:
            handler = typed_handler(handler, decode, self._service.config.codec)
        endpoint = Endpoint(self._service, name, full, group, handler, metadata)
        return self._service._add(endpoint, workers, pending_messages, pending_bytes, timeout)

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group below this one: its prefix is appended with a dot.

        `queue_group`: that of its endpoints; None (default): the one of this group, "" means none.
        """
        prefix = ".".join(part for part in (self._prefix, name) if part)
        if prefix and (not _SUBJECT.fullmatch(prefix) or prefix.endswith(">")):
            raise InvalidName(f"group {prefix!r} must have no spaces and no '>'")
        _check_queue_group(queue_group)
        return Group(self._service, prefix, queue_group if queue_group is not None else self._queue_group)


@with_shared_options
class Service(Group):
    """A running service: made by `add_service`; `stop()` or the end of its `with` drains it.

    `error` is what ended its connection, if that was not the application; `wait` raises it.
    """

    def __init__(self, nc: Connection, config: ServiceConfig) -> None:
        super().__init__(self, "", config.queue_group)
        self.nc = nc
        """The connection."""
        self._engine = engine_of(self.nc)
        self.config = config
        """How it was made."""
        self.id: str = next_nuid()
        """Its id, of this instance alone."""
        self._lock = waiting.new_lock()
        self._endpoints: list[Endpoint] = []
        self._verbs: list[Subscription] = []
        self._started = dt.datetime.now(dt.timezone.utc)
        self._stopping = False
        self._stopped = waiting.Gate()
        self.error: BaseException | None = None
        """What ended it; None while it works."""

    def _start(self, timeout: Timeout) -> None:
        answers = {"PING": self.ping, "INFO": self.info, "STATS": self.stats}
        try:
            for verb in VERBS:
                for name, id in (("", ""), (self.config.name, ""), (self.config.name, self.id)):
                    subject = control_subject(verb, name, id)
                    self._verbs.append(self.nc.subscribe(subject, callback=self._verb_handler(answers[verb])))
            self._engine.add_link_listener(self._on_link_event)
            self.nc.flush(timeout)
        except BaseException:  # nobody gets this service: it must not be found either
            self._engine.remove_link_listener(self._on_link_event)
            for verb_subscription in self._verbs:
                self._close(verb_subscription)
            raise

    def _verb_handler(self, answer: Callable[[], ServicePing]) -> Callable[[Msg], None]:
        def handle(message: Msg) -> None:
            if message.reply:
                self.nc.publish(message.reply, msgspec.json.encode(answer()))

        return handle

    def _add(
        self, endpoint: Endpoint, workers: int, pending_messages: int, pending_bytes: int, timeout: Timeout
    ) -> Endpoint:
        with self._lock:
            if self._stopping:
                raise ConfigError(f"service {self.config.name} is stopped: make a new one")
            self._endpoints.append(endpoint)
        try:
            endpoint._start(workers, pending_messages, pending_bytes, timeout)
        except BaseException:
            with self._lock:
                self._endpoints.remove(endpoint)
            raise
        return endpoint

    # --- what tools ask -----------------------------------------------------------------------------------

    def ping(self) -> ServicePing:
        """What PING answers: name, id and version."""
        config = self.config
        return ServicePing(name=config.name, id=self.id, version=config.version, metadata=dict(config.metadata))

    def info(self) -> ServiceInfo:
        """What INFO answers: description and endpoints; those that the server refuses are not there."""
        config = self.config
        with self._lock:
            endpoints = [endpoint.info() for endpoint in self._endpoints if endpoint.error is None]
        return ServiceInfo(
            name=config.name,
            id=self.id,
            version=config.version,
            metadata=dict(config.metadata),
            description=config.description,
            endpoints=endpoints,
        )

    def stats(self) -> ServiceStats:
        """What STATS answers: the counters of every endpoint."""
        config = self.config
        with self._lock:
            endpoints = list(self._endpoints)
        started = self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return ServiceStats(
            name=config.name,
            id=self.id,
            version=config.version,
            metadata=dict(config.metadata),
            started=started,
            endpoints=[endpoint.stats() for endpoint in endpoints],
        )

    def reset(self) -> None:
        """Set all counters to zero and `started` to now."""
        with self._lock:
            endpoints = list(self._endpoints)
            self._started = dt.datetime.now(dt.timezone.utc)
        for endpoint in endpoints:
            endpoint.reset()

    # --- the end ------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """True once everything has ended; `wait` waits for it."""
        return self._stopped.is_set()

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until the service has stopped; False when that did not happen within `timeout` seconds.

        Raises what ended the connection (AuthError, ConnectFailed ...), unless the application has closed it: `error`.
        """
        if not self._stopped.wait(resolve(timeout, None)):
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self, timeout: Timeout = DEFAULT) -> None:
        """Take no new requests, finish those that wait or are in work (30 s by default), then stop answering verbs.

        May be called from any thread and more than once; only the first call does the work.
        """
        with self._lock:
            first = not self._stopping
            self._stopping = True
            endpoints = list(self._endpoints)
        if not first:
            return
        deadline = Deadline.of(timeout, STOP_TIMEOUT)
        try:
            for endpoint in endpoints:
                endpoint._stop(deadline)
            for verb in self._verbs:
                self._close(verb)
            if self.nc.is_connected:
                self.nc.flush(timeout=deadline.remaining())
        except (NatsConnectionError, TimedOut) as error:
            logger.warning("service %s stopped, but not cleanly: %s", self.config.name, error)
        finally:
            self._engine.remove_link_listener(self._on_link_event)
            self._stopped.set()
            self._tell()

    @staticmethod
    def _close(subscription: Subscription) -> None:
        try:
            subscription.close()
        except (SubscriptionClosed, NatsConnectionError):
            pass

    def _tell(self) -> None:
        on_stop = self.config.on_stop
        if on_stop is None:
            return
        try:
            on_stop(self)
        except Exception:
            logger.exception("on_stop of service %s failed", self.config.name)

    def _on_link_event(self, event: LinkEvent) -> None:
        """The connection closed: the workers have ended by themselves, so only the books are closed here."""
        if event is not LinkEvent.CLOSED:
            return
        with self._lock:
            first = not self._stopping
            self._stopping = True
        if first:
            self.error = self._engine.closed_error().reason
            self._stopped.set()
            self._engine.run_last_callback(self._tell)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Service lives on its connection and cannot be pickled; pass its ServiceConfig instead")

    def __repr__(self) -> str:
        return f"<Service {self.config.name} {self.config.version} {self.id}>"


def add_service(nc: Connection, config: ServiceConfig, *, timeout: Timeout = DEFAULT) -> Service:
    """Start a service: it answers PING, INFO and STATS at once and serves what `add_endpoint` adds.

    Waits up to `timeout` seconds (5 by default) until the server knows it; FlushTimeout, and then there is no service.
    """
    service = Service(nc, config)
    service._start(timeout)
    return service
