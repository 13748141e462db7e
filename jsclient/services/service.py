"""A service: its endpoints, and the verbs by which tools find it (ADR-32)."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import attrs
import msgspec

from jsclient import checks, codecs, handlers, kinds, waiting
from jsclient.codecs import Codec
from jsclient.connection import Connection, engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.errors import ConfigError, InvalidName, NatsConnectionError, SubscriptionClosed, TimedOut
from jsclient.nuid import next_nuid
from jsclient.services.endpoint import Endpoint, EndpointDict, ErrorHandler, Handler, StatsHandler
from jsclient.services.models import (
    DEFAULT_QUEUE_GROUP,
    VERBS,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    control_subject,
)
from jsclient.services.names import NAME, SUBJECT, check_queue_group
from jsclient.services.request import TypedRequest, plain_handler, shortened, typed_handler
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.protocol import Msg
    from jsclient.subscription import Subscription

log: logging.Logger = logging.getLogger("jsclient.services")

STOP_TIMEOUT: Final = 30.0  # seconds for the requests that are queued or in work, as for a drain
SHORT_ERROR: Final = 60  # characters of an error where STATS would be too large
PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 64 << 20

T = TypeVar("T")

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)


@attrs.frozen(kw_only=True)
class ServiceConfig:
    """The configuration of a service. `queue_group` None means "q". "" means none: every instance gets every request.

    `stats_handler(endpoint)` returns the value that STATS shows as `data` of an endpoint (any JSON value). If it fails,
    STATS is sent without this data. `on_stop(service)` is called once when the service has stopped, also when the
    connection has closed. `service.error` has the reason, unless the application has closed it.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        name: Name of the service: letters, digits, `-` and `_`.
        version: A semantic version, for example 1.0.0.
        description: Text for people.
        metadata: Keys and values for people and tools.
        queue_group: None means "q"; "" means none: every instance gets every request.
        stats_handler: `(endpoint)` -> the data that STATS shows for it.
        on_error: `(endpoint, error)`, called in the thread of the endpoint. It gets exceptions of handlers, answers
            that could not be sent, and errors that end an endpoint. Without it these are logged.
        on_stop: `(service)`, called once when the service has stopped.
        codec: The codec with which endpoints with `decode=` read requests and write answers.
    """

    name: str = attrs.field(validator=kinds.field(str))
    version: str = attrs.field(validator=kinds.field(str))
    description: str = attrs.field(default="", validator=kinds.field(str))
    metadata: Mapping[str, str] = attrs.field(factory=dict, validator=kinds.field(kinds.TEXT_MAP))
    queue_group: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    stats_handler: StatsHandler | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    on_error: ErrorHandler | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    on_stop: Callable[[Service], object] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    codec: Codec = codecs.JSON

    def __attrs_post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidName(f"service name {self.name!r} must be letters, digits, '-' and '_' only, and not empty")
        if not _SEMVER.fullmatch(self.version):
            raise ConfigError(f"version {self.version!r} of service {self.name} is not a semantic version like 1.2.3")
        check_queue_group(self.queue_group)
        codecs.check(self.codec)


class Group:
    """A common subject prefix (and queue group) for endpoints, from `add_group`."""

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

        `workers` threads call the handler: 1 keeps the order of requests. If the handler returns a value without having
        answered, that value is the answer. If it raises, the client answers with an error.

        With `decode=Order` the handler gets a TypedRequest with a `value` of that type. `queue_group` None inherits the
        queue group of the group or service, "" means none. The client drops requests beyond `pending_messages` (65,536)
        or `pending_bytes` (64 MiB). `metadata` has words that `info` shows.

        Raises PermissionViolation if the server rejects the subscription within `timeout` seconds (5 by default).
        """
        handlers.required(handler, "the handler")
        kinds.check(str, name=name)
        kinds.check(str, None, subject=subject, queue_group=queue_group)
        kinds.check(kinds.TEXT_MAP, None, metadata=metadata)
        kinds.check(int, workers=workers, pending_messages=pending_messages, pending_bytes=pending_bytes)
        own = subject if subject is not None else name
        full = f"{self._prefix}.{own}" if self._prefix else own
        group = queue_group if queue_group is not None else self._queue_group
        if group is None:
            group = DEFAULT_QUEUE_GROUP
        if not NAME.fullmatch(name):
            raise InvalidName(f"endpoint name {name!r} must be letters, digits, '-' and '_' only, and not empty")
        if not SUBJECT.fullmatch(full):
            raise InvalidName(f"endpoint subject {full!r} must have no spaces, and '>' only as its last character")
        check_queue_group(group)
        checks.threads(workers, "workers")
        resolve(timeout, None)  # a wrong value raises before anything is subscribed
        config = self._service.config
        codec = config.codec
        handler = plain_handler(handler, codec) if decode is None else typed_handler(handler, decode, codec)
        endpoint = Endpoint(
            self._service.nc,
            name,
            full,
            group,
            handler,
            metadata,
            service=config.name,
            stats_handler=config.stats_handler,
            on_error=config.on_error,
        )
        return self._service._add(endpoint, workers, pending_messages, pending_bytes, timeout)

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group below this one: its prefix is appended with a dot.

        `queue_group` applies to its endpoints. None (the default) inherits the queue group of this group; "" means
        none.
        """
        kinds.check(str, name=name)
        kinds.check(str, None, queue_group=queue_group)
        prefix = ".".join(part for part in (self._prefix, name) if part)
        if prefix and (not SUBJECT.fullmatch(prefix) or prefix.endswith(">")):
            raise InvalidName(f"group {prefix!r} must have no spaces and no '>'")
        check_queue_group(queue_group)
        return Group(self._service, prefix, queue_group if queue_group is not None else self._queue_group)


class Service(Group):
    """A running service, from `add_service`. `stop()` or the end of its `with` drains it.

        with services.add_service(nc, ServiceConfig(name="adder", version="1.0.0")) as service:
            service.add_endpoint("greet", lambda request: request.respond(b"hello"))
            service.wait()  # until it is stopped

    `error` is the error that ended its connection, unless the application closed it. `wait` raises it.

    Attributes:
        nc: The connection.
        config: The configuration that it was made with.
        id: The id of this instance.
        error: The error that ended it; None while it works.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        config: The configuration as one object. Without it, pass its fields as keywords.
    """

    def __init__(self, nc: Connection, config: ServiceConfig) -> None:
        super().__init__(self, "", config.queue_group)
        self.nc = nc
        self._engine = engine_of(self.nc)
        self.config = config
        self.id: str = next_nuid()
        self._lock = waiting.new_lock()
        self._endpoints: list[Endpoint] = []
        self._verbs: list[Subscription] = []
        self._started = dt.datetime.now(dt.timezone.utc)
        self._stopping = False
        self._stopped = waiting.Gate()
        self.error: BaseException | None = None

    def _start(self, timeout: Timeout) -> None:
        answers = {"PING": self.ping, "INFO": self.info, "STATS": self.stats}
        self._check_fits(self.info())
        try:
            for verb in VERBS:
                for name, id in (("", ""), (self.config.name, ""), (self.config.name, self.id)):
                    subject = control_subject(verb, name, id)
                    self._verbs.append(self.nc.subscribe(subject, callback=self._verb_handler(answers[verb])))
            self._engine.add_link_listener(self._on_link_event)
            self.nc.flush(timeout)
        except BaseException:  # no caller gets this service: it must not be found either
            self._engine.remove_link_listener(self._on_link_event)
            for verb_subscription in self._verbs:
                self._close(verb_subscription)
            raise

    def _verb_handler(self, answer: Callable[[], ServicePing]) -> Callable[[Msg], None]:
        def handle(message: Msg) -> None:
            if message.reply:
                self.nc.publish(message.reply, self._fitting(answer()))

        return handle

    def _fitting(self, answer: ServicePing) -> bytes:
        """An answer as JSON. If it is too large, it is sent without the data and the full errors of the endpoints."""
        body = msgspec.json.encode(answer)
        if len(body) <= self.nc.max_payload or not isinstance(answer, ServiceStats):
            return body
        log.warning("STATS of service %s has %d bytes, so its data is left out", answer.name, len(body))
        for endpoint in answer.endpoints:
            endpoint.data, endpoint.last_error = {}, shortened(endpoint.last_error, SHORT_ERROR)
        return msgspec.json.encode(answer)

    def _check_fits(self, info: ServiceInfo) -> None:
        """Raises ConfigError if INFO could not be answered."""
        try:
            size = len(msgspec.json.encode(info))
        except UnicodeEncodeError as error:
            raise ConfigError(f"texts of service {info.name} must be UTF-8: {error.reason}") from None
        if size > self.nc.max_payload:
            raise ConfigError(
                f"INFO of service {info.name} would have {size} bytes, and the server takes {self.nc.max_payload}: "
                "shorten its description or metadata"
            )

    def _add(
        self, endpoint: Endpoint, workers: int, pending_messages: int, pending_bytes: int, timeout: Timeout
    ) -> Endpoint:
        with self._lock:
            if self._stopping:
                raise ConfigError(f"service {self.config.name} is stopped: make a new one")
            self._endpoints.append(endpoint)
        try:
            self._check_fits(self.info())
            endpoint._start(workers, pending_messages, pending_bytes, timeout)
        except BaseException:
            with self._lock:
                self._endpoints.remove(endpoint)
            raise
        return endpoint

    # --- what tools ask -----------------------------------------------------------------------------------

    def ping(self) -> ServicePing:
        """The answer to PING: name, id and version."""
        config = self.config
        return ServicePing(name=config.name, id=self.id, version=config.version, metadata=dict(config.metadata))

    def info(self) -> ServiceInfo:
        """The answer to INFO: description and endpoints, without endpoints that the server has rejected."""
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
        """The answer to STATS: the counters of every endpoint."""
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
        """True once everything has ended. `wait` waits for it."""
        return self._stopped.is_set()

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until the service has stopped. Returns False if that did not happen within `timeout` seconds.

        Raises the error that ended the connection (AuthError, ConnectFailed ...), unless the application has closed it.
        See `error`.
        """
        if not self._stopped.wait(resolve(timeout, None)):
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self, timeout: Timeout = DEFAULT) -> None:
        """Accept no new requests, finish waiting and running ones (30 s by default), then stop answering verbs.

        May be called from any thread and more than once. Only the first call does the work.
        """
        deadline = Deadline.of(timeout, STOP_TIMEOUT)
        with self._lock:
            first = not self._stopping
            self._stopping = True
            endpoints = list(self._endpoints)
        if not first:
            return
        try:
            for endpoint in endpoints:
                endpoint._stop(deadline)
            for verb in self._verbs:
                self._close(verb)
            if self.nc.is_connected:
                self.nc.flush(timeout=deadline.remaining())
        except (NatsConnectionError, TimedOut) as error:
            log.warning("service %s stopped, but not cleanly: %s", self.config.name, error, exc_info=error)
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
            handlers.ran(on_stop(self))
        except BaseException:  # also SystemExit: no one would notice the end
            log.exception("on_stop of service %s failed", self.config.name)

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
    """Start a service. It answers PING, INFO and STATS immediately, and serves the endpoints that `add_endpoint` adds.

    Waits up to `timeout` seconds (5 by default) until the server has its subscriptions. Otherwise it raises
    FlushTimeout, and there is no service.
    """
    kinds.check(Connection, nc=nc)
    kinds.check(ServiceConfig, config=config)
    resolve(timeout, None)  # a wrong value raises before anything is subscribed
    service = Service(nc, config)
    service._start(timeout)
    return service
