"""The errors of JetStream: the base of the server's codes, and errors of publishing, consumers and pulls."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeVar

from jsclient.errors.core import (
    ConfigError,
    JsClientError,
    NoResponders,
    SubscriptionClosed,
    TimedOut,
    UnknownOutcome,
)

E = TypeVar("E", bound="ApiError")


class JetStreamError(JsClientError):
    """Base of all errors of JetStream."""


class CodeText(NamedTuple):
    """A code of the server without a class: its name, when it occurs, and what an error adds to the description."""

    name: str
    occurs: str
    advice: str = ""
    meaning: str = ""


class ApiError(JetStreamError):
    """The JetStream API answered with an error; `err_code` decides the subclass.

    `code` is the HTTP-like class of the error. Compare `err_code` instead, because 171 of the server's 227 errors share
    code 400. `description` is the server's own text.
    """

    meaning: str = ""  # again, because __init__ sets them
    advice: str = ""

    _text: str = ""
    err_code_of_class: ClassVar[int | None] = None
    registry: ClassVar[dict[int, type[ApiError]]] = {}
    texts: ClassVar[dict[int, CodeText]] = {}

    def __init_subclass__(cls, err_code: int | tuple[int, ...] | None = None, advice: str = "") -> None:
        codes = (err_code,) if isinstance(err_code, int) else err_code or ()
        for code in codes:
            ApiError.registry[code] = cls
        cls.err_code_of_class = codes[0] if codes else None
        if advice:
            cls.advice = advice

    def __init__(self, code: int = 0, err_code: int = 0, description: str = "") -> None:
        super().__init__(code, err_code, description)
        self.code = code
        self.err_code = err_code
        self.description = description
        if text := ApiError.texts.get(err_code):
            self.advice: str = text.advice or self.advice
            self.meaning: str = text.meaning or self.meaning

    def told_as(self: E, text: str) -> E:
        """For layers: set the complete text if the text of the class would not be true."""
        self._text = text
        return self

    def __str__(self) -> str:
        return self._text or super().__str__()

    @property
    def what(self) -> str:
        """The server's description, with its numbers."""
        return f"{self.description} (err_code {self.err_code}, code {self.code})"


def api_error(code: int, err_code: int, description: str) -> ApiError:
    """The typed error for an `error` object of a JetStream response. Unknown codes give an ApiError."""
    return ApiError.registry.get(err_code, ApiError)(code, err_code, description)


# --- JetStream, found by the client -----------------------------------------------------------------------


class JetStreamUnavailable(JetStreamError, NoResponders):
    """No server answers the JetStream API (status 503): not enabled, no such domain or import, or a cut leaf link."""

    meaning = "The request was not delivered."
    advice = "Enable JetStream, check domain and api_prefix, or try again after an election."


class BadResponse(JetStreamError):
    """The server's answer is not readable (invalid JSON, or fields of another type). `raw` holds its start."""

    meaning = "Whether the request was done is not known."
    advice = "Find out what answers on this subject: it may be something else than the server."

    def __init__(self, message: str, raw: bytes = b"") -> None:
        super().__init__(message)
        self.raw: bytes = raw[:1024]


class ListingIncomplete(JetStreamError):
    """A listing is possibly incomplete: there may be more items than those that came before this error.

    `missing` names the streams or consumers of a cluster that did not answer.
    """

    meaning = "What was listed is right; there may be more."

    def __init__(self, message: str, missing: list[str] | None = None) -> None:
        super().__init__(message)
        self.missing: list[str] = missing or []


class RangeIncomplete(JetStreamError):
    """A range of a stream was possibly not read completely; `__cause__` is the reason."""

    meaning = "What was read may be only a part of the range."
    advice = "Read again, from the last sequence that came."


class DrainIncomplete(JetStreamError):
    """A drain ended while a consumer with ack policy none was sending. The consumer counts all messages as delivered,
    even those that the client did not receive any more.
    """

    meaning = "They are lost for this consumer, unless another client took them. The stream may still have them."
    advice = "Use ack policy explicit where no message may be missed, or give the drain more time."


class DataLost(RangeIncomplete):
    """Messages of the range are no longer in the stream, because its head has moved or its store was set back."""

    meaning = "Messages of the range are gone from the stream; what was read is only a part of it."
    advice = "Keep messages longer, or go on with what is left."


class BadRecord(JetStreamError):
    """A message is an invalid document, or does not fit the schema that it was read with."""

    advice = "Correct the schema, or let bad_records keep such messages aside."


class RangeTimeout(RangeIncomplete, TimedOut):
    """The range was not read to its end within the timeout."""

    meaning = "What was read may be only a part of the range."
    advice = "Give it more time, or read smaller ranges."


class WriteIncomplete(JetStreamError):
    """Rows of a table are possibly not stored; `__cause__` is the error of the first such row.

    The `stored` rows before it were acknowledged. Rows after it may be stored, too.
    """

    meaning = "Rows from `stored` on may be stored."
    advice = "Write them again with message ids, within the stream's duplicate window."

    def __init__(self, message: str, stored: int = 0) -> None:
        super().__init__(message)
        self.stored = stored


class ImportPassesOneResponse(JetStreamError):
    """The import behind an `api_prefix` passes only one response for each request, so messages were lost.

    The account that exports the API must say `response_type: stream`.
    """

    meaning = "Messages did not arrive; the read has not removed them from the stream."
    advice = "The account that exports the API must say `response_type: stream`."


class NotPullConsumer(JetStreamError):
    """The consumer has a deliver subject: use `push_consumer`."""

    advice = "Use push_consumer()."


class NotPushConsumer(JetStreamError):
    """The consumer has no deliver subject: use `consumer`."""

    advice = "Use consumer()."


class NotStored(JetStreamError):
    """The published message was certainly not stored. Publishing it again cannot store it twice."""

    meaning = "The message is not stored."
    advice = "Publish it again: that cannot store it twice."


class NoStreamForSubject(NotStored, NoResponders):
    """No stream stores messages on this subject (checked after the second 503). It is a typo, or not created yet."""

    meaning = "A message on it is not stored."
    advice = "Correct the subject, or create a stream that takes it."


class NoStreamResponse(NotStored, NoResponders):
    """No stream accepted the message (503) until retries or the deadline were used up: no stream, or no leader."""

    meaning = "The message is not stored."
    advice = "Publish it again: a leader may be in election. If this stays, no stream takes the subject."


class PublishUnknown(UnknownOutcome, JetStreamError):
    """The message was sent, but the client does not know if it is stored. Publish it again only with the same message
    id, and only inside the stream's duplicate window. `__cause__` is the last refusal or failure.
    """

    meaning = "It may be stored."
    advice = (
        "Publish it again only with the same msg_id and within the stream's duplicate window, or look at the stream."
    )


class InvalidPubAck(JetStreamError):
    """The answer to a publish is not a PubAck, because a subscriber on the subject replies instead of a stream."""

    meaning = "No stream has confirmed the message."
    advice = "Find out what else than a stream answers on the subject."


class TooManyStalledMessages(NotStored):
    """The window of unacknowledged asynchronous publishes stayed full; this message was not sent."""

    meaning = "This message was not sent."
    advice = "Wait for acks before you publish on, or raise max_pending."


class AsyncPublishReplySet(ConfigError):
    """A message for publish_async must not have a reply subject, because the client uses it for the ack."""


class BatchClosed(JetStreamError):
    """The batch was committed, discarded, or has failed. It accepts no more messages."""

    meaning = "This call added nothing."
    advice = "Begin another batch."


class BatchTooLarge(JetStreamError):
    """The batch has reached the server's limit of messages (1,000 by default); this one was not added."""

    meaning = "This message was not added; those before it were."
    advice = "Commit this batch and begin another."


class BatchGap(JetStreamError):
    """Messages of a fast batch were lost on their way, and the batch has ended. `lost` has their numbers in it."""

    meaning = "The messages named and those after them are not stored; the batch takes no more."
    advice = 'Publish them again in another batch, or allow gaps with gap="ok".'

    def __init__(self, message: str, lost: range = range(0)) -> None:
        super().__init__(message)
        self.lost = lost


class MsgAlreadyAcked(JetStreamError):
    """The message was already acknowledged (ack, nak or term); nothing was sent."""

    meaning = "Nothing was sent: the first answer counts."
    advice = "Answer each message once."


class StaleDelivery(JetStreamError):
    """The server crashed and lost its knowledge of this delivery. The message is not acked, and may be redelivered."""

    meaning = "The message is not acked, and comes again if the stream still has it."
    advice = "Handle the copy that comes."


class PayloadMissing(JetStreamError):
    """The message came without its payload: its consumer has `headers_only`, and the payload could not be read."""

    advice = "Read it with get_msg of the stream, or switch headers_only off."


class NotJetStreamMessage(JetStreamError):
    """The message does not come from a JetStream consumer: its reply subject has another form than for acks."""

    meaning = "Nothing was sent."
    advice = "Acks and metadata are for messages that a JetStream consumer has delivered."


class MsgNoReply(JetStreamError):
    """The message has no reply subject: its consumer's ack policy is "none", or it was not delivered by a consumer."""

    meaning = "Nothing was sent."
    advice = 'Leave the answer out, or use a consumer that wants acks (ack_policy="explicit").'


class IteratorClosed(SubscriptionClosed, JetStreamError):
    """`next()` on a message iterator that was stopped or drained and is empty."""


class PullError(JetStreamError):
    """Base of the errors that end a pull or a continuous consume. Expiry is not among them."""


class NoHeartbeat(PullError, TimedOut):
    """The server went silent: neither a message nor an idle heartbeat came within twice the interval."""

    advice = "Read on; if it happens often, look at the server and the network."


class PullStatusError(PullError):
    """The server ended the pull with another status; `code` and `description` come from the server."""

    def __init__(self, code: int = 0, description: str = "", message: str = "") -> None:
        super().__init__(message or f"the server ended the pull: {code} {description}".rstrip())
        self.code = code
        self.description = description


class ConsumerDeleted(PullStatusError):
    """The consumer was deleted (or has been idle for longer than its inactive_threshold)."""

    meaning = "The consumer's acks are forgotten with it. The stream may be deleted, too."
    advice = "Create it again where it should go on, or raise inactive_threshold."


class StreamRecreated(ConsumerDeleted):
    """The stream was deleted and re-created while it was read. Its consumers are gone, and sequences start again.

    The client can only detect this if the handle knows when its consumer was made, so not with `fetch_info=False`.
    """

    meaning = "Messages of the old stream are gone, and sequences start anew."
    advice = "Begin at the start of the new stream."


class ConsumerLeadershipChanged(PullStatusError):
    """The consumer's leader changed, so pulls that waited there are gone."""


class MaxBytesExceeded(PullStatusError):
    """The next message is larger than the max_bytes of the pull, so it cannot be delivered within that limit.

    `messages()` and `consume()` report it once and receive nothing until the message is removed from the stream."""

    advice = "Raise max_bytes, or remove the message."


class BadPullRequest(PullStatusError):
    """The server refused the pull request (400, or a limit of the consumer such as max_batch)."""


class MaxWaitingExceeded(PullStatusError):
    """Too many pulls already wait on the consumer (its max_waiting, 512 by default)."""

    advice = "Let fewer readers wait at once, or raise the consumer's max_waiting."


class PinIdMismatch(PullStatusError):
    """Another client is pinned on the priority group (status 423)."""

    advice = "Pull again: another client is served until it goes or is unpinned."


class OrderedConsumerReset(JetStreamError):
    """The ordered consumer could not be re-created within its number of attempts; the cause is `__cause__`."""

    advice = "Read on from the last sequence; `__cause__` says what failed."


class OrderedConsumerConcurrentRequests(JetStreamError):
    """An ordered consumer serves one fetch, iteration or consume at a time."""

    advice = "Close its iterator or consume first, or make another ordered consumer."


class OrderedConsumerNotCreated(JetStreamError):
    """The ordered consumer has no consumer on the server yet (first use, or in the middle of a reset)."""


class ConsumerAlreadyBound(JetStreamError):
    """Another client is subscribed to the push consumer, and it has no deliver group."""

    advice = "Close the other subscription, or give the consumer a deliver_group to share its messages."


# --- pulls ----------------------------------------------------------------------------------------------


class NoMessages(PullError, TimedOut):
    """`next()` found no message in time. That is normal for an empty stream."""


class PullNoResponders(PullStatusError, NoResponders):
    """No server answers pulls (503): no such stream or consumer, a cut leaf link, or an election of a leader.

    `subject` is the subject without an answer.
    """

    advice = "Check the stream and the consumer; during an election ask again."

    def __init__(self, message: str = "", subject: str = "") -> None:
        PullStatusError.__init__(self, 503, "no responders", message)
        self.subject = subject


class PullServerShutdown(PullStatusError):
    """The server that hosts the consumer shuts down, so pulls that waited there are gone."""


class ReadStalled(PullError, TimedOut):
    """A finite read got no answer: ack the messages you have (max_ack_pending), or the consumer is paused or busy."""

    advice = "Ack what was taken and read on; look whether the consumer is paused or shared."
