"""One endpoint of a service: its subscription, its worker threads and its counters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from jsclient import handlers, waiting
from jsclient._connection import SLICE, Drainable
from jsclient.connection import engine_of
from jsclient.durations import Deadline, Timeout
from jsclient.errors import (
    ConnectionClosed,
    DrainTimeout,
    MaxSubscriptionsExceeded,
    NatsConnectionError,
    PermissionViolation,
    ServiceError,
    SubscriptionClosed,
    TimedOut,
    brief,
)
from jsclient.instruments import handling
from jsclient.services.models import EndpointInfo, EndpointStats
from jsclient.services.request import MAX_TEXT, Request, shortened, text_of
from jsclient.subscription import core_of
from jsclient.threads import Thread, start_all

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.protocol import Msg
    from jsclient.subscription import Subscription


log: logging.Logger = logging.getLogger("jsclient.services")

Handler = Callable[[Request], object]
StatsHandler = Callable[["Endpoint"], Any]
ErrorHandler = Callable[["Endpoint", BaseException], object]


class EndpointDict(TypedDict, total=False):
    """Keyword arguments of `Service.add_endpoint` and `Group.add_endpoint`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        subject: The subject below the prefix; by default (None) the name.
        queue_group: By default (None) the queue group of the group or the service; "" means none.
        metadata: Words about the endpoint that `info` shows; by default (None) there are none.
        workers: Threads that call the handler; 1 (default) keeps the order of requests.
        pending_messages: Requests that may wait for the handler (65,536 by default); more are dropped.
        pending_bytes: The same in bytes (64 MiB by default).
        timeout: Seconds in which the server may reject the subscription (5 by default). A later rejection is in
            `Endpoint.error`.
    """

    subject: str | None
    queue_group: str | None
    metadata: Mapping[str, str] | None
    workers: int
    pending_messages: int
    pending_bytes: int
    timeout: Timeout


class Endpoint(Drainable):
    """One endpoint of a service, from `add_endpoint`. `stats()` returns its counters.

    `error` is the error that ended it while the service continues: PermissionViolation if the server rejects its
    subscription. Then INFO no longer lists it, and `stats()` shows the error.

    Attributes:
        name: Its name.
        subject: The subject on which it listens.
        queue_group: Its queue group; "" when it has none.
        metadata: Words about it that `info` shows.
        error: The error that ended it while the service continues; None while it works.
    """

    def __init__(
        self,
        nc: Connection,
        name: str,
        subject: str,
        queue_group: str,
        handler: Handler,
        metadata: Mapping[str, str] | None,
        *,
        service: str,
        stats_handler: StatsHandler | None,
        on_error: ErrorHandler | None,
    ) -> None:
        self.name = name
        self.subject = subject
        self.queue_group = queue_group
        self.metadata: dict[str, str] = dict(metadata or {})
        self.handler: Callable[..., Any] = handling(nc.options.instrumentation, handler)
        """For layers."""
        self._nc = nc
        self._service = service
        self._stats_handler = stats_handler
        self._on_error = on_error
        self._lock = waiting.new_lock()
        self._requests = self._errors = self._nanoseconds = 0
        self._last_error = ""
        self._subscription: Subscription | None = None
        self._threads: list[Thread] = []
        self._closing = False
        self.error: Exception | None = None

    def info(self) -> EndpointInfo:
        """Its entry in INFO."""
        return EndpointInfo(name=self.name, subject=self.subject, queue_group=self.queue_group, metadata=self.metadata)

    def stats(self) -> EndpointStats:
        """The counters since the start or the last reset; times in nanoseconds."""
        data = self._own_data()
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

    def _own_data(self) -> Any:
        """The data of the application. If its function fails or JSON cannot hold the result, STATS omits it."""
        if self._stats_handler is None:
            return {}
        try:
            data = handlers.ran(self._stats_handler(self))
            msgspec.json.encode(data)
        except (Exception, SystemExit) as error:
            self._tell(error, "the stats_handler for endpoint %s of service %s failed: %s")
            return {}
        return data

    def reset(self) -> None:
        """Set its counters to zero."""
        with self._lock:
            self._requests = self._errors = self._nanoseconds = 0
            self._last_error = ""

    def _start(self, workers: int, pending_messages: int, pending_bytes: int, timeout: Timeout) -> None:
        self._subscription = self._nc.subscribe(
            self.subject,
            queue=self.queue_group,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
        )
        label = f"jsclient-worker-{self._service}-{self.name}"
        self._threads = [Thread(f"{label}-{number}", self._work) for number in range(workers)]
        try:
            engine_of(self._nc).drainables.enter(self)
            start_all(self._threads, f"endpoint {self.name!r} of service {self._service}")
            self._check_accepted(timeout)
        except BaseException:
            self._subscription.close()
            raise

    def _check_accepted(self, timeout: Timeout) -> None:
        """Raises the error with which the server rejects the subscription. Without a link it comes later."""
        try:
            if self._nc.is_connected:
                self._nc.flush(timeout)
        except (NatsConnectionError, TimedOut):
            return
        assert self._subscription is not None
        mailbox = core_of(self._subscription).mailbox
        if isinstance(mailbox.closed, (PermissionViolation, MaxSubscriptionsExceeded)):
            mailbox.raise_closed()

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
            try:
                self._serve(message)
            except BaseException:  # no one else would answer the requests that follow
                log.exception("endpoint %s of service %s goes on after an error", self.name, self._service)

    def _refused(self, error: Exception) -> None:
        with self._lock:
            first, self.error = self.error is None, self.error or error
            if first:
                self._errors += 1
                self._last_error = shortened(brief(error))
        if first:
            self._tell(error, "endpoint %s of service %s ended: %s")

    def _serve(self, message: Msg) -> None:
        request = Request(message, self._nc)
        started = time.perf_counter_ns()
        raised: BaseException | None = None
        failure: str | None = None
        try:
            self.handler(request)
            failure = request.error_sent
        except ServiceError as error:
            raised, failure = error, f"{error.code}:{shortened(error.description)}"
            self._answer_error(request, error.code or "500", error.description or "error", error.data)
        except BaseException as error:  # also SystemExit: it would end this worker, and no one would answer any more
            raised, text = error, text_of(error)
            failure = f"500:{text}"
            self._answer_error(request, "500", text, b"")
        finally:
            self._count(time.perf_counter_ns() - started, failure)
        if raised is None:
            return
        if not isinstance(raised, ServiceError):
            self._tell(raised, "the handler of endpoint %s of service %s failed: %s")
        elif self._on_error is not None:  # it is an answer as others are: not for the log
            self._tell(raised, "endpoint %s of service %s answered with an error: %s")
        raised = None  # or its traceback would keep this frame, and itself

    def _count(self, nanoseconds: int, failure: str | None) -> None:
        with self._lock:
            self._requests += 1
            self._nanoseconds += nanoseconds
            if failure is not None:
                self._errors += 1
                self._last_error = shortened(failure)

    def _answer_error(self, request: Request, code: str, description: str, data: bytes) -> None:
        if not request.reply:
            return
        try:
            request.error(code, description, data)
            return
        except Exception as error:
            self._tell(error, "endpoint %s of service %s could not answer with an error: %s")
            if isinstance(error, NatsConnectionError):
                return
        # It may be too large, or no text at all. Its caller waits, and gets as much as fits.
        most = min(MAX_TEXT, self._nc.max_payload // 8)
        try:
            request.error(shortened(code, 40) or "500", shortened(description, most) or "error")
        except Exception as error:
            self._tell(error, "endpoint %s of service %s could not answer with a short error: %s")

    def _tell(self, error: BaseException, text: str) -> None:
        """To `on_error` of the service, or to the log when there is none."""
        if self._on_error is None:
            log.error(text, self.name, self._service, brief(error), exc_info=error)
            return
        try:
            handlers.ran(self._on_error(self, error))
        except BaseException:  # also SystemExit: it would end this worker
            log.exception("on_error of service %s failed", self._service)

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

    # --- the end of the connection: see Drainable -------------------------------------------------------------

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait for the last handlers. The subscription has already been drained."""
        for thread in self._threads:
            while thread.is_alive() and not (deadline.expired() or self._nc.closed):
                thread.join(deadline.at_most(SLICE))
        if any(thread.is_alive() for thread in self._threads):
            raise DrainTimeout(
                f"a handler of endpoint {self.name!r} did not end in time. Its answer will not arrive. Give it "
                "more time, or let handlers end sooner."
            )

    def end(self, reason: ConnectionClosed) -> None:
        self._closing = True
        if self._subscription is not None:
            core_of(self._subscription).mailbox.close(reason, discard=True)

    def runs_here(self) -> bool:
        return threading.current_thread() in self._threads

    def __repr__(self) -> str:
        return f"<Endpoint {self.name} on {self.subject}>"
