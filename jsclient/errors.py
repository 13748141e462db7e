"""Every exception of jsclient, and the registries of server codes.

    JsClientError
    +-- ConfigError (ValueError)            bad option, argument or combination; nothing was sent
    |   +-- InvalidSubject                  subject, reply, queue or inbox prefix that must not reach the wire
    |   +-- InvalidName                     stream, consumer, bucket, key ... name
    |   +-- InvalidHeader                   header name or value
    |   +-- PayloadTooLarge                 more than max_payload, or than the limits of a stream
    +-- Reentered (RuntimeError)            called where it would wait for its own thread (signal handler, finalizer)
    +-- NotSupported                        the server is too old for what was asked, or would silently ignore it
    +-- ConnectionError_                    the connection itself
    |   +-- ConnectFailed                   no server could be reached (says which were tried, and why each failed)
    |   +-- NotANatsServer                  somebody answered, but not with INFO
    |   +-- TlsError                        TLS refused, not available, or verification failed
    |   +-- AuthError                       the server refused the credentials
    |   |   +-- AuthExpired, AuthRevoked, AuthTimeout
    |   +-- ConnectionClosed                this Connection was closed (by you, or after a final failure)
    |   +-- ConnectionLost                  the link went down while the call waited
    |   +-- ConnectionDraining              publish or subscribe after drain()
    |   +-- ForkedConnection                used in a child process after fork
    |   +-- StaleConnection                 the server stopped answering pings
    |   +-- BufferFull                      the pending buffer of a disconnected connection is full
    +-- TimedOut (TimeoutError)             nothing came in time
    |   +-- RequestTimeout                  no reply in time
    |   +-- FlushTimeout, DrainTimeout
    |   +-- UnknownOutcome                  sent, not confirmed: it may or may not have been done
    +-- NoResponders                        nobody listens on the subject: certainly not delivered
    +-- PermissionViolation                 the server refused a publish or subscribe
    +-- ServerError                         another -ERR of the server
    +-- SlowConsumer                        messages were dropped because they were not taken fast enough
    +-- SubscriptionClosed                  the subscription or iterator was closed
    +-- NoThread (RuntimeError)             the system gave no further thread: nothing was left running
    +-- JetStreamError                      see the second part of this module

Timeouts also inherit `TimeoutError`, bad arguments `ValueError`. Every class pickles.
"""

from __future__ import annotations

from typing import Any, ClassVar


class JsClientError(Exception):
    """Base of every exception that jsclient raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword-only constructors do not pickle by themselves; Spark and
        # multiprocessing carry errors between processes, so all of ours are rebuilt from their state.
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[JsClientError], args: tuple[Any, ...], state: dict[str, Any]) -> JsClientError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Cancelled(JsClientError):
    """The wait was ended by its `jsclient.Cancel`. What was sent before may still be handled, its answer is not waited
    for; a fetch gives back what was on its way."""


# --- arguments ------------------------------------------------------------------------------------------


class ConfigError(JsClientError, ValueError):
    """A bad option, argument or combination. Nothing was sent."""


class InvalidSubject(ConfigError):
    """A subject, reply, queue group or inbox prefix that must not reach the wire."""


class InvalidName(ConfigError):
    """A name of a stream, consumer, bucket, key, object or service that the server would misread."""


class InvalidHeader(ConfigError):
    """A header name or value that must not reach the wire."""


class PayloadTooLarge(ConfigError):
    """Headers and payload are larger than the server (max_payload) or the stream accepts."""


class Reentered(JsClientError, RuntimeError):
    """A call on top of its own thread (in a signal handler or finalizer, or on the reader thread) would wait for ever.

    Nothing was waited for. Set a flag there, and make the call where the thread goes on.
    """


class NotSupported(JsClientError):
    """The server is too old for what was asked and would ignore it in silence; the text names the version needed."""


class HeadersNotSupported(NotSupported):
    """This server takes no headers (`no_header_support` in its configuration): nothing was sent.

    It would end the link, and with it what everybody else has under way. Publish without headers (no message id, no
    expectation, no time to live), or let the server take them. Key-value buckets and object stores need headers.
    """


# --- connection -----------------------------------------------------------------------------------------


class ConnectionError_(JsClientError):
    """Base of everything that concerns the connection itself."""


class ConnectFailed(ConnectionError_):
    """No server could be reached; `attempts` lists (server, reason) in the order tried."""

    attempts: list[tuple[str, str]]

    def __init__(self, message: str, attempts: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.attempts = attempts or []


class NotANatsServer(ConnectionError_):
    """Something answered on that address, but it does not speak the NATS protocol."""


class TlsError(ConnectionError_):
    """TLS was refused, is not available although wanted, or the certificate did not verify."""


class AuthError(ConnectionError_):
    """The server refused the credentials ("Authorization Violation" and its kin)."""


class AuthExpired(AuthError):
    """The user's or the account's credentials have expired."""


class AuthRevoked(AuthError):
    """The user's credentials were revoked."""


class AuthTimeout(AuthError):
    """The server waited too long for our CONNECT."""


class ConnectionClosed(ConnectionError_):
    """The Connection was closed, by close() or after a failure from which it must not recover.

    `reason` is that failure (AuthError, ConnectFailed ...); None when the application closed the connection itself.
    """

    reason: BaseException | None = None


class ConnectionLost(ConnectionError_):
    """The link went down while the call waited for an answer; `sent` is False when nothing of it had been sent yet."""

    def __init__(self, message: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ConnectionDraining(ConnectionError_):
    """The Connection drains: it takes no new subscriptions and publishes."""


class ForkedConnection(ConnectionError_):
    """The Connection was made in the parent process; a forked child must open its own (`jsclient.shared`)."""


class StaleConnection(ConnectionError_):
    """The server did not answer our pings."""


class BufferFull(ConnectionError_):
    """Too much waits to be sent: more than `pending_buffer` while disconnected, else what the server is slow to take.
    Nothing of the message was sent."""


# --- waiting --------------------------------------------------------------------------------------------


class TimedOut(JsClientError, TimeoutError):
    """Nothing came in time."""


class RequestTimeout(TimedOut):
    """No reply came in time; whether the request was handled is not known unless `sent` is False: nothing of it was."""

    def __init__(self, message: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class FlushTimeout(TimedOut):
    """The server did not confirm in time that it has read what was sent."""


class DrainTimeout(TimedOut):
    """Draining took longer than its timeout; the rest was given up."""


class UnknownOutcome(TimedOut):
    """It was sent and not confirmed: it may or may not have been done.

    Retry only what is idempotent, such as a publish with the same message id inside the duplicate window.
    """


# --- messages -------------------------------------------------------------------------------------------


class NoResponders(JsClientError):
    """Nobody listens on the subject (status 503): the request was certainly not delivered."""

    def __init__(self, message: str, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject


class PermissionViolation(JsClientError):
    """The server does not permit this user to publish or subscribe there; `subject` names where."""

    def __init__(self, message: str, subject: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation


class ServerError(JsClientError):
    """An -ERR of the server that has no class of its own."""


class SlowConsumer(JsClientError):
    """Messages were dropped because the application did not take them fast enough; `dropped` counts them."""

    def __init__(self, message: str, subject: str = "", dropped: int = 0) -> None:
        super().__init__(message)
        self.subject = subject
        self.dropped = dropped


class SubscriptionClosed(JsClientError):
    """The subscription or iterator was closed and nothing is left in it."""


class NoThread(JsClientError, RuntimeError):
    """The system did not give the threads that were asked for; those that had been started were ended again."""


# --- JetStream ------------------------------------------------------------------------------------------


class JetStreamError(JsClientError):
    """Base of everything that JetStream answers or refuses."""


class ApiError(JetStreamError):
    """The JetStream API answered with an error; subclasses are chosen by `err_code`.

    `code` is the HTTP-like class of the error (171 of the server's 226 errors share 400: compare
    `err_code`), `description` the server's own text.
    """

    err_code_of_class: ClassVar[int | None] = None
    registry: ClassVar[dict[int, type[ApiError]]] = {}
    advice: ClassVar[str] = ""

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

    def __str__(self) -> str:
        text = f"{self.description} (err_code {self.err_code}, code {self.code})"
        return f"{text}: {self.advice}" if self.advice else text


def api_error(code: int, err_code: int, description: str) -> ApiError:
    """The typed error for an `error` object of a JetStream response; unknown codes stay ApiError."""
    return ApiError.registry.get(err_code, ApiError)(code, err_code, description)


# --- JetStream, found by the client -----------------------------------------------------------------------


class JetStreamUnavailable(JetStreamError, NoResponders):
    """Nobody answers on the JetStream API (status 503): not enabled, no such domain or import, or a cut leaf link."""


class BadResponse(JetStreamError):
    """The server's answer could not be understood (not JSON, or fields of another type); `raw` holds its start."""

    def __init__(self, message: str, raw: bytes = b"") -> None:
        super().__init__(message)
        self.raw = raw[:1024]


class ListingIncomplete(JetStreamError):
    """A listing that is not proven to be complete: what came before this error is not all there is.

    `missing` names streams or consumers of a cluster that did not answer.
    """

    def __init__(self, message: str, missing: list[str] | None = None) -> None:
        super().__init__(message)
        self.missing = missing or []


class ImportPassesOneResponse(JetStreamError):
    """The import behind an `api_prefix` passes one response for each request, and messages were lost by it.

    The account that exports the API must say `response_type: stream`.
    """


class NotPullConsumer(JetStreamError):
    """The consumer has a deliver subject: use `push_consumer`."""


class NotPushConsumer(JetStreamError):
    """The consumer has no deliver subject: use `consumer`."""


class NotStored(JetStreamError):
    """The published message was certainly not stored; publishing it again cannot store it twice."""


class NoStreamForSubject(NotStored, NoResponders):
    """No stream takes messages on this subject (asked after the second 503): a typo, or not created yet."""


class NoStreamResponse(NotStored, NoResponders):
    """Nobody took the message (503) until retries or the deadline were used up: no stream, or no leader."""


class PublishUnknown(UnknownOutcome, JetStreamError):
    """The message was sent and it is not known whether it is stored. Publish it again only with the same message id,
    and only inside the stream's duplicate window. `__cause__` is the last refusal or failure."""


class InvalidPubAck(JetStreamError):
    """The answer to a publish is not a PubAck: something else than a stream listens on the subject and replies."""


class TooManyStalledMessages(NotStored):
    """The window of unacknowledged asynchronous publishes stayed full; this message was not sent."""


class AsyncPublishReplySet(ConfigError):
    """A message for publish_async must not have a reply subject: it carries the ack."""


class BatchClosed(JetStreamError):
    """The batch was committed, discarded, or has failed: it takes no more messages."""


class BatchTooLarge(JetStreamError):
    """The batch has as many messages as the server takes in one (1,000 by default); this one was not added."""


class BatchGap(JetStreamError):
    """Messages of a fast batch were lost on their way; the batch has ended. `lost` are their numbers in the batch."""

    def __init__(self, message: str, lost: range = range(0)) -> None:
        super().__init__(message)
        self.lost = lost


class MsgAlreadyAcked(JetStreamError):
    """The message was already acknowledged (ack, nak or term); nothing was sent."""


class StaleDelivery(JetStreamError):
    """The server has lost its knowledge of this delivery (it crashed): the message is not acked, and comes again."""


class NotJetStreamMessage(JetStreamError):
    """The message was not delivered by a JetStream consumer (its reply is no ack subject)."""


class MsgNoReply(JetStreamError):
    """The message has no reply subject: its consumer's ack policy is "none", or it was not delivered by a consumer."""


class IteratorClosed(SubscriptionClosed, JetStreamError):
    """`next()` on a message iterator that was stopped or drained and is empty."""


class PullError(JetStreamError):
    """Base of what ends a pull or a continuous consume other than messages and expiry."""


class NoHeartbeat(PullError, TimedOut):
    """The server went silent: no message and no idle heartbeat within twice the interval."""


class PullStatusError(PullError):
    """The server ended the pull with a status of its own; `code` and `description` are the server's."""

    def __init__(self, code: int = 0, description: str = "", message: str = "") -> None:
        super().__init__(message or f"the server ended the pull: {code} {description}".rstrip())
        self.code = code
        self.description = description


class ConsumerDeleted(PullStatusError):
    """The consumer was deleted (or has been idle for longer than its inactive_threshold)."""


class StreamRecreated(ConsumerDeleted):
    """The stream was deleted and made again while it was read: its consumers went with it, sequences start anew.

    Known only where the handle knows when its consumer was made: not with `fetch_info=False`.
    """


class ConsumerLeadershipChanged(PullStatusError):
    """The consumer's leader changed; pulls waiting there are gone."""


class MaxBytesExceeded(PullStatusError):
    """The next message is larger than the max_bytes of the pull: it cannot be delivered within that limit."""


class BadPullRequest(PullStatusError):
    """The server refused the pull request (400, or a limit of the consumer such as max_batch)."""


class MaxWaitingExceeded(PullStatusError):
    """Too many pulls wait on the consumer already (its max_waiting, 512 by default)."""


class PinIdMismatch(PullStatusError):
    """Another client is pinned on the priority group (status 423)."""


class OrderedConsumerReset(JetStreamError):
    """The ordered consumer could not be re-created within its number of attempts; the cause is `__cause__`."""


class OrderedConsumerConcurrentRequests(JetStreamError):
    """An ordered consumer serves one fetch, iteration or consume at a time."""


class OrderedConsumerNotCreated(JetStreamError):
    """The ordered consumer has no consumer on the server yet (first use, or in the middle of a reset)."""


class ConsumerAlreadyBound(JetStreamError):
    """Somebody else is subscribed to the push consumer, and it has no deliver group."""


# --- pulls ----------------------------------------------------------------------------------------------


class NoMessages(PullError, TimedOut):
    """`next()` found no message in time. Nothing is wrong: that is what an empty stream looks like."""


class PullNoResponders(PullStatusError, NoResponders):
    """Nobody answers pulls (503): no such stream or consumer, a cut leaf link, or a leader is being elected."""

    def __init__(self, message: str = "", subject: str = "") -> None:
        PullStatusError.__init__(self, 503, "no responders", message)
        self.subject = subject


class PullServerShutdown(PullStatusError):
    """The server that served the consumer shuts down; pulls waiting there are gone."""


class ReadStalled(PullError, TimedOut):
    """A finite read got no answer: ack what was taken (max_ack_pending), or the consumer is paused or busy."""


# The classes of server codes are many; they live in a module of their own and are public here.
from jsclient._api_errors import *  # noqa: E402, F403
from jsclient._store_errors import *  # noqa: E402, F403
