"""The future that `publish_async` returns, for an ack that is still to come."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from jsclient import handlers, waiting
from jsclient.connection import engine_of
from jsclient.durations import plain_or_none
from jsclient.errors import ConfigError, TimedOut
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.outcome import Entry
from jsclient.message import Payload
from jsclient.protocol import Headers

if TYPE_CHECKING:
    pass


class PubMsg(msgspec.Struct, frozen=True):
    """A message to publish: `publish_msg` takes it, and a future or an error handler shows it.

    Attributes:
        subject: The subject of the message.
        payload: The payload; text goes out as UTF-8.
        headers: Its headers.
        reply: The reply subject, which must be empty for JetStream publishes.
    """

    subject: str
    payload: Payload = b""
    headers: Headers | dict[str, str] | None = None
    reply: str = ""

    @property
    def data(self) -> Payload:
        """The payload."""
        return self.payload


class PublishFuture(Entry, gc=False, eq=False):
    """The future ack of one `publish_async`. It always resolves: acked, rejected, certainly not stored, or unknown.

    Thread-safe. It is a Struct because one is made for every message: this takes 85 ns, while a class with __slots__
    takes 226 and `concurrent.futures.Future` 3,300.

    Attributes:
        subject: The subject of the message.
        payload: Its payload.
    """

    _owner: Any
    _token: bytes
    subject: str
    payload: bytes
    _block: bytes | None

    def result(self, timeout: float | dt.timedelta | None = None) -> PubAck:
        """The ack. Waits at most `timeout` seconds; with None until it is resolved, which the ack timeout bounds.

        If there is no ack, raises the outcome of the message: an ApiError (rejected), NotStored, or
        PublishUnknown. Raises TimedOut if it is not resolved within `timeout`.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._ack is not None
        return self._ack

    def exception(self, timeout: float | dt.timedelta | None = None) -> BaseException | None:
        """The error instead of an ack, or None if the ack came; waits like `result`."""
        self._wait(plain_or_none(timeout))
        return None if self._error is None else _copy(self._error)

    def add_done_callback(self, call: Callable[[PublishFuture], Any]) -> None:
        """Call `call(future)` on the connection's events thread once it is resolved, or soon if it already is. If that
        thread has ended with the connection, the call happens immediately on this thread."""
        handlers.required(call, "the callback")
        self._owner.watch(self, call)

    def to_concurrent(self) -> concurrent.futures.Future[PubAck]:
        """The same as a Future of the standard library, for `concurrent.futures.wait` and `as_completed`, and for
        `asyncio.wrap_future`. You cannot cancel it, because the message has been sent already."""
        owner = self._owner
        owner.flush()
        converted = Converted(self)
        if self.done():
            converted.tell()  # no caller can have the Future yet, and the connection may have ended
        else:
            owner.watch(self, converted)
        return converted.future

    @property
    def msg(self) -> PubMsg:
        """The message as it was published."""
        return PubMsg(self.subject, self.payload, self.headers)

    @property
    def headers(self) -> Headers:
        """The headers of the message."""
        return Headers() if self._block is None else Headers.decode(self._block)

    @property
    def msg_id(self) -> str | None:
        """Its message id; None without one."""
        return self.headers.get(names.MSG_ID)

    def _wait(self, timeout: float | None) -> None:
        if self._ack is not None or self._error is not None:
            return
        if timeout is not None and not timeout >= 0:
            raise ConfigError(f"timeout must be 0 or more seconds, or None; got {timeout!r}")
        owner = self._owner
        owner.flush()
        ticket: waiting.Ticket[None] = waiting.Ticket()
        owner.watch(self, ticket)
        try:
            waiting.get(ticket, timeout)
        except queue.Empty:
            owner.unwatch(self, ticket)
            if not self.done():
                raise TimedOut(
                    f"no ack on {self.subject!r} within {timeout:g} s. The message may be stored. Wait on: the "
                    "ack is still expected."
                ) from None

    def __repr__(self) -> str:
        state = "pending" if not self.done() else repr(self._ack or self._error)
        return f"<PublishFuture {self.subject!r} {state}>"

    def __reduce__(self) -> Any:
        return engine_of(self._owner.nc).refuse_pickle(self)


class Converted(waiting.Ticket[None]):
    """Gives the outcome of our future to a Future of the standard library, on the thread that resolves it."""

    __slots__ = ("_source", "future")

    def __init__(self, source: PublishFuture) -> None:
        super().__init__()
        self._source = source
        self.future: concurrent.futures.Future[PubAck] = concurrent.futures.Future()
        self.future.set_running_or_notify_cancel()

    def put(self, item: Any) -> None:
        engine_of(self._source._owner.nc).run_last_callback(self.tell)

    def tell(self) -> None:
        error = self._source.exception(0)
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._source.result(0))


def _copy(error: BaseException) -> BaseException:
    """A new copy of the error, for every caller that may raise it.

    A raised error refers to the frames it went through, and they refer to the future. The garbage collector does not
    look into futures, so an error kept in one must never be raised itself. Threads do not share a traceback either.
    """
    copy = error.__class__.__new__(error.__class__, *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
