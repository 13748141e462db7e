"""Messages with values: `typed(Order)` of pull, push and ordered consumers.

`on_bad` is the action for a message that cannot be decoded:

- "raise": the program gets it, and `msg.value` raises. The program acks, naks or terminates it as any other message.

- "skip": the program does not get it, but a report. The client terminates it, so it is never delivered again (and a
  work queue deletes it).

- "reject": the program does not get it, but a report. The client stores it under `dead_letter`, and terminates it only
  then.

The report: `on_error` of messages, consume, fetch_each and read_until gets DecodeFailed (and the message, if it takes
two arguments). Fetches and batches have `Batch.skipped`. Otherwise the client logs a warning. If the ack policy is not
explicit, "skip" sends nothing, because an ack of one message would also ack all messages before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import attrs

from jsclient import checks, codecs, errors
from jsclient.codecs import OnBad
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.instruments import Instrumentation, taken
from jsclient.jetstream import dead_letters
from jsclient.jetstream.consuming.fetch import Batch
from jsclient.jetstream.consuming.hooks import call_hook, error_hook
from jsclient.jetstream.consuming.typed_message import TypedMsg, UnreadMsg
from jsclient.jetstream.message import JetStreamMsg, sequence_of
from jsclient.jetstream.missing_payloads import fill
from jsclient.jetstream.without_payload import lacks_payload

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publishing.future import PublishFuture
    from jsclient.message import Msg
    from jsclient.protocol import Headers

OnBadOrdered: TypeAlias = Literal["raise", "skip"]
"""As `OnBad`, without "reject", because an ordered consumer has no acks."""

log: logging.Logger = logging.getLogger("jsclient.jetstream.typed")

T = TypeVar("T")

Tell: TypeAlias = Callable[[Exception, JetStreamMsg], None]
"""The function with which an iterator or a fetch reports a message that is left out."""

AGAIN: Final = 1.0
"""Seconds after which a message is redelivered if its dead letter could not be stored."""


@attrs.frozen
class Values(Generic[T]):
    """The rules by which a typed handle decodes messages and treats those that it cannot decode."""

    js: JetStream
    type: Any
    decode: Callable[[bytes], T]
    on_bad: OnBad
    dead_letter: str
    settles: bool | None = None
    """True if "skip" and "reject" settle messages, that is with ack policy explicit. None while that is unknown."""
    looks: dead_letters.Looks = attrs.field(factory=dead_letters.Looks, eq=False, repr=False)
    """For calls that must not wait on the events thread."""

    @property
    def lazy(self) -> bool:
        """True if the program also gets messages that cannot be decoded; reading their value raises."""
        return self.on_bad == "raise"

    def failed(self, message: JetStreamMsg, error: Exception) -> errors.DecodeFailed:
        """The error that reading the value raises."""
        return codecs.failed_message(error, message.msg.data, self.type, message.subject, sequence_of(message))

    def maker(self) -> Callable[[Msg, Connection], TypedMsg[T]]:
        """The function that makes typed messages of received ones.

        It never raises. A message that cannot be decoded raises when its value is read.
        """
        decode, typed, unread = self.decode, TypedMsg, UnreadMsg

        def make(msg: Msg, connection: Connection) -> TypedMsg[T]:
            if not msg.data and lacks_payload(msg):
                return unread(msg, connection, True, None, self)
            try:
                return typed(msg, connection, True, None, self, decode(msg.data))
            except Exception:
                return unread(msg, connection, True, None, self)

        return make

    def sifter(
        self, make: Callable[[Msg, Connection], Any], tell: Tell
    ) -> Callable[[Msg, Connection], TypedMsg[T] | None]:
        """`make` for iterators that leave out messages that cannot be decoded: None for such a message."""
        takes = self.takes

        def sift(msg: Msg, connection: Connection) -> TypedMsg[T] | None:
            message: TypedMsg[T] = make(msg, connection)
            return message if takes(message, tell) else None

        return sift

    def later(self, msg: Msg, connection: Connection) -> TypedMsg[T]:
        """The same, decoded at the first access to its value, on the thread that works on it."""
        return UnreadMsg(msg, connection, True, None, self)

    def of(self, message: JetStreamMsg) -> TypedMsg[T]:
        """The same message, with a value. The original message must not be used any more."""
        return self.maker()(message.msg, message.connection)

    def takes(self, message: TypedMsg[T], tell: Tell) -> bool:
        """True if the program gets the message; otherwise the client has settled and reported it.

        A call with a timeout is in `sends_within`, so a full link cannot hold it longer. A message that cannot be
        settled is redelivered.
        """
        if message.__class__ is TypedMsg or self.lazy:
            return True
        deadline = engine_of(message.connection).bound()
        try:
            self.read(message, DEFAULT if deadline is None else deadline)
        except errors.JsClientError as error:
            tell(error, message)
            self._settle(message, error, tell)
            return False
        return True

    def read(self, message: Any, timeout: Timeout = DEFAULT) -> T:
        """The value of a message that is not decoded yet, from its stream if it came without a payload.

        Raises DecodeFailed, and what `payload_of` raises.
        """
        if message.msg.data or not lacks_payload(message.msg):
            return message.value  # type: ignore[no-any-return]
        payload = fill(self.js, message, timeout)
        try:
            value = message._value = self.decode(payload)
        except Exception as error:
            raise self.failed(message, error) from error
        return value

    def batch(self, batch: Batch) -> Batch[TypedMsg[T]]:
        """The messages of a fetch, with values."""
        return self.sifted(Batch([self.of(message) for message in batch], batch.ended, batch.error))

    def sifted(self, batch: Batch[Any]) -> Batch[TypedMsg[T]]:
        """A batch of messages of `maker` without those that are left out."""
        if self.lazy:
            return batch
        skipped: list[Exception] = []

        def tell(error: Exception, message: JetStreamMsg) -> None:
            log.warning("%s", error)
            if isinstance(error, (errors.DecodeFailed, errors.PayloadMissing, errors.MessageNotFound)):
                skipped.append(error)

        taken = [message for message in batch if self.takes(message, tell)]
        return Batch(taken, batch.ended, batch.error, tuple(skipped))

    # --- what cannot be decoded ---------------------------------------------------------------------------------

    def _settle(self, message: JetStreamMsg, error: Exception, tell: Tell) -> None:
        if not self.settles:
            return
        if not isinstance(error, errors.DecodeFailed):  # without its payload it cannot be judged
            _quietly(message, partial(message.nak, AGAIN))
            return
        if self.on_bad == "skip":
            _quietly(message, partial(_terminate, message, errors.brief(error)))
            return
        deliveries = dead_letters.deliveries_of(message) or 1
        headers, message_id = dead_letters.letter_of(self.js, message, errors.brief(error), deliveries)
        settle = partial(self._answered, message, headers, message_id, error, tell)
        try:
            future = self.js.publish_async(self.dead_letter, message.data, headers=headers, msg_id=message_id)
            future.add_done_callback(settle)
        except errors.JsClientError as trouble:
            _not_stored(message, trouble, tell)

    def _answered(
        self,
        message: JetStreamMsg,
        headers: Headers,
        message_id: str | None,
        error: Exception,
        tell: Tell,
        future: PublishFuture,
    ) -> None:
        """The stream of the dead letters has answered, on the events thread."""
        trouble = future.exception(0)
        if trouble is not None:
            _not_stored(message, trouble, tell)
        elif message_id is None or not future.result(0).duplicate:
            _quietly(message, partial(_terminate, message, errors.brief(error)))
        else:  # the stored letter may be another one; the request that checks this must not run on the events thread
            look = partial(self._look, message, headers, message_id, error, tell)
            try:
                self.looks.add(look)
            except (errors.NoThread, MemoryError) as none:
                _not_stored(message, none, tell)

    def _look(self, message: JetStreamMsg, headers: Headers, message_id: str, error: Exception, tell: Tell) -> None:
        """After an ack with `duplicate`: terminate the message only if the stream has its letter."""
        try:
            dead_letters.store(self.js, self.dead_letter, message.data, headers, message_id)
        except errors.JsClientError as trouble:
            _not_stored(message, trouble, tell)
        else:
            _quietly(message, partial(_terminate, message, errors.brief(error)))


def _not_stored(message: JetStreamMsg, trouble: BaseException, tell: Tell) -> None:
    log.error(
        "the dead letter of %r is not known to be stored: the message comes again: %s",
        message,
        trouble,
        exc_info=trouble,
    )
    if isinstance(trouble, Exception):
        tell(trouble, message)
    _quietly(message, partial(message.nak, AGAIN))


def _terminate(message: JetStreamMsg, reason: str) -> None:
    try:
        message.term(dead_letters.one_line(reason)[: dead_letters.MAX_REASON])
    except errors.NotSupported:  # below 2.10.4
        message.term()


def _quietly(message: JetStreamMsg, action: Callable[[], Any]) -> None:
    try:
        action()
    except errors.JsClientError as error:
        log.warning("%r was not settled, it comes again after ack_wait: %s", message, error, exc_info=error)


def values_of(js: JetStream, type: type[T], on_bad: OnBad, dead_letter: str | None) -> Values[T]:
    """The rules for `typed` of a consumer; raises ConfigError."""
    if on_bad not in ("raise", "skip", "reject"):
        raise errors.ConfigError(f'on_bad is "raise", "skip" or "reject", not {on_bad!r}')
    if (on_bad == "reject") is (dead_letter is None):
        raise errors.ConfigError('on_bad="reject" goes with dead_letter=, the subject to store under, and only that')
    if dead_letter is not None:
        checks.subject(dead_letter, "dead_letter")
    return Values(js, type, codecs.decoder(js.decodes_with, type), on_bad, dead_letter or "")


def with_policy(values: Values[T], policy: str | None) -> Values[T]:
    """The same for a consumer with this ack policy; raises ConfigError."""
    settles = not values.lazy and policy == "explicit"
    if values.on_bad == "reject" and not settles:
        raise errors.ConfigError('on_bad="reject" needs a consumer with ack policy explicit: use "raise" or "skip"')
    return attrs.evolve(values, settles=settles)


def ordered_values(js: JetStream, type: type[T], on_bad: OnBadOrdered) -> Values[T]:
    """The same for ordered consumers, which have no acks."""
    return with_policy(values_of(js, type, on_bad, None), "none")


def with_values(handle: Any, values: Values[Any] | None) -> Any:
    """A handle like this one, of messages with values, or without values if `values` is None."""
    other = object.__new__(handle.__class__)
    other.__dict__.update(handle.__dict__)
    other._values = values
    return other


def values_in(handle: Any) -> Values[Any] | None:
    """For pools: the values that `typed` has given to a handle; None if it is not typed."""
    values: Values[Any] | None = handle._values
    return values


def fetched(
    batch: Batch[Any], deadline: Deadline, values: Values[Any] | None, instrument: Instrumentation | None
) -> Batch[Any]:
    """The result of a fetch, reported to the instrument, without messages that are left out."""
    if instrument is not None:
        taken(instrument, batch)
    if values is None or values.lazy:
        return batch
    with engine_of(values.js.nc).sends_within(deadline):
        return values.sifted(batch)


def tell(on_error: Any, source: object, error: Exception, message: JetStreamMsg) -> None:
    """Report a message that is left out to the application's hook; without one, to the log."""
    hook = error_hook(on_error)
    if hook is None:
        log.warning("%s: %s", source, error)
    else:
        call_hook(hook, error, message)
