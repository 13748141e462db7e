"""The errors of connections, subjects, options and time: everything but JetStream."""

from __future__ import annotations

from typing import Any

from jsclient import protocol


class JsClientError(Exception):
    """Base of every exception that jsclient raises on purpose.

    Its text says what happened and where. After a write with a known outcome, `meaning` follows. `advice` is for a next
    step that is not obvious. Both belong to the class. A call that knows more gives its own text, which
    ends in a full stop.
    """

    meaning: str = ""
    """The meaning for the data."""
    advice: str = ""
    """Advice on what to do."""

    @property
    def what(self) -> str:
        """The first part of the text, which tells what happened. Use it in a text that quotes this one."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        what = self.what
        if what.endswith("."):
            return what
        if what and not what.endswith("?"):
            what += "."
        return " ".join(part for part in (what, self.meaning, self.advice) if part)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword-only constructors do not pickle by themselves. Spark and multiprocessing carry errors
        # between processes, so all of ours are rebuilt from their state.
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def brief(error: BaseException) -> str:
    """The part of an error that tells what happened, for a text that quotes it and adds its own meaning."""
    try:
        what = getattr(error, "what", None)  # errors of `protocol` have it, too
        return what.removesuffix(".") if isinstance(what, str) else str(error)
    except Exception:  # an error of the application that cannot even be printed
        return "(without a text)"


def counted(number: int, noun: str) -> str:
    """`1 message`, `1200 messages`: the number and its noun, for the text of an error."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def _rebuild(cls: type[JsClientError], args: tuple[Any, ...], state: dict[str, Any]) -> JsClientError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Cancelled(JsClientError):
    """Its `jsclient.Cancel` ended the wait. The server may still handle a request that was sent before, but the call
    does not wait for the answer. A fetch returns the messages that were on their way to the server.
    """

    meaning = "What was sent before may still be handled; its answer is not waited for."
    advice = "Make a new Cancel for the next call: a token is used up."


# --- arguments ------------------------------------------------------------------------------------------


class ConfigError(JsClientError, ValueError):
    """A bad option, argument or combination. Nothing was sent."""


class InvalidSubject(ConfigError):
    """A subject, reply, queue group or inbox prefix that must not reach the wire."""


class InvalidName(ConfigError):
    """A name of a stream, consumer, bucket, key, object or service that the server would misread."""


class InvalidHeader(ConfigError):
    """A header name or value that must not reach the wire."""


class MalformedHeaders(JsClientError, protocol.MalformedHeaders):
    """The header block of a received message does not begin with `NATS/1.0`, so its headers cannot be read."""

    meaning: str = protocol.MalformedHeaders.meaning
    advice: str = protocol.MalformedHeaders.advice


class PayloadTooLarge(ConfigError):
    """Headers and payload are larger than the server (max_payload) or the stream accepts."""

    meaning = "Nothing of it was sent."
    advice = "Split it, use an object store, or raise the limit."


class EncodeFailed(ConfigError):
    """The codec cannot write this value. Nothing was sent."""

    meaning = "Nothing was sent."
    advice = "Publish what the codec knows, or give the JetStream object another codec."


class DecodeFailed(JsClientError, ValueError):
    """The bytes are broken, or of another type than the program asked for. `__cause__` is the error of the codec.

    The bytes are in `payload`. `subject` and `seq` (the sequence in the stream) tell where they came from, if the
    client knows it.
    """

    def __init__(self, message: str, payload: bytes = b"", subject: str = "", seq: int | None = None) -> None:
        super().__init__(message)
        self.payload = payload
        self.subject = subject
        self.seq = seq


class Reentered(JsClientError, RuntimeError):
    """A call in a signal handler or finalizer, or on the reader thread, would wait for the thread beneath it forever.

    So it does not wait at all. Set a flag there, and make the call later in the normal flow of the thread.
    """

    advice = "Set a flag there, and make the call where the thread goes on."


class NotSupported(JsClientError):
    """The server is too old for the request and would silently ignore it. The text names the version that it needs."""


class HeadersNotSupported(NotSupported):
    """This server accepts no headers (`no_header_support` in its configuration), so nothing was sent.

    A header would end the connection, together with all other calls under way on it. Publish without headers (no
    message id, no expectation, no time to live), or let the server accept them. Key-value buckets and object stores
    need headers.
    """

    meaning = "Nothing of it was sent."
    advice = "Publish without headers, or let the server take them."


# --- connection -----------------------------------------------------------------------------------------


class NatsConnectionError(JsClientError, ConnectionError):
    """Base of all errors of the connection itself. It is also Python's `ConnectionError` (and `OSError`)."""


class ConnectFailed(NatsConnectionError):
    """No server could be reached; `attempts` lists (server, reason) in the order tried."""

    advice = "Check the address, the network between, and that the server runs."

    attempts: list[tuple[str, str]]

    def __init__(self, message: str, attempts: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.attempts = attempts or []


class NotANatsServer(NatsConnectionError):
    """Something answered on that address, but it does not speak the NATS protocol."""

    advice = "Check host and port: a monitoring, cluster, TLS or websocket port may answer there."


class TlsError(NatsConnectionError):
    """TLS failed: it is unavailable although required, one side rejected it, or the certificate did not verify."""

    advice = "Check the certificate authorities, the name in the URL and the client certificate."


class AuthError(NatsConnectionError):
    """The server refused the credentials (for example "Authorization Violation")."""


class AuthExpired(AuthError):
    """The user's or the account's credentials have expired."""

    advice = "Renew the credentials: a file or a callable is read anew at every connect."


class AuthRevoked(AuthError):
    """The user's credentials were revoked."""


class AuthTimeout(AuthError):
    """The server waited too long for the client's CONNECT."""

    advice = "Try again; if it stays, raise the timeout in the server's authorization block."


class ConnectionClosed(NatsConnectionError):
    """The Connection was closed by close(), or after a failure from which it must not recover.

    `reason` is that failure (AuthError, ConnectFailed ...); None when the application closed the connection itself.
    """

    advice = "Open a new connection; `reason` says what ended this one."

    reason: BaseException | None = None


class ConnectionLost(NatsConnectionError):
    """The connection was lost while the call waited for an answer. `sent` is False if nothing of it had been sent."""

    meaning: str = "What was under way may have been done."
    advice: str = "The connection comes back by itself: repeat what does no harm twice."

    def __init__(self, message: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        if not sent:
            self.meaning = "Nothing of it was sent."
            self.advice = "Repeat it when the server is reachable."


class ConnectionDraining(NatsConnectionError):
    """The Connection is draining, so it accepts no new subscriptions and publishes."""

    meaning = "Nothing was sent."
    advice = "Make the call before drain(), or open another connection."


class ForkedConnection(NatsConnectionError):
    """The Connection was made in the parent process. A forked child must open its own (`jsclient.shared`)."""

    meaning = "Nothing was sent."
    advice = "Open one in the child: jsclient.shared(options) gives every process its own."


class StaleConnection(NatsConnectionError):
    """The server did not answer the client's pings."""

    meaning = "What was under way may have been done."
    advice = "The connection comes back by itself; if this happens often, look at the network or raise ping_interval."


class BufferFull(NatsConnectionError):
    """Too many bytes wait to be sent, so nothing of the message was sent. More bytes than `pending_buffer` wait while
    disconnected, or the server reads too slowly.
    """

    meaning = "Nothing of this message was sent."
    advice = "Publish more slowly, wait for the server, or raise pending_buffer."


# --- waiting --------------------------------------------------------------------------------------------


class TimedOut(JsClientError, TimeoutError):
    """Nothing came in time."""


class RequestTimeout(TimedOut):
    """No reply came in time. The request may have been handled, unless `sent` is False: then nothing of it was sent."""

    meaning: str = "The request may have been handled."
    advice: str = "Repeat it if a second time does no harm, or give it more time."

    def __init__(self, message: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        if not sent:
            self.meaning = "Nothing of it was sent."
            self.advice = "Repeat it when the server is reachable."


class FlushTimeout(TimedOut):
    """The server did not confirm in time that it has read all sent data."""

    meaning = "What was sent may have arrived."
    advice = "Flush again before you rely on it."


class DrainTimeout(TimedOut):
    """Draining took longer than its timeout. The client gave up the rest."""

    meaning = "The rest was given up: messages without an ack come again, publishes without one may be stored."
    advice = "Give it more time, or let handlers end sooner."


class UnknownOutcome(TimedOut):
    """The request was sent, but no confirmation came, so its outcome is unknown.

    Retry only idempotent requests, such as a publish with the same message id inside the duplicate window.
    """

    meaning = "It may or may not have been done."
    advice = "Look before you repeat it, or repeat only what does no harm twice."


# --- messages -------------------------------------------------------------------------------------------


class NoResponders(JsClientError):
    """No one listens on the subject (status 503): the request was certainly not delivered."""

    meaning = "The request was not delivered."

    def __init__(self, message: str, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject


class PermissionViolation(JsClientError):
    """The server does not permit this user to publish or subscribe there (`operation`, `subject`)."""

    advice = "Use another subject, or have this one granted; required_permissions() lists what JetStream needs."

    def __init__(self, message: str, subject: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation


class ServerError(JsClientError):
    """An -ERR of the server without a more specific class."""


class MaxConnectionsExceeded(ServerError, NatsConnectionError):
    """The server, or this account on it, has reached its limit of connections. The client tries the other servers."""


class MaxSubscriptionsExceeded(ServerError):
    """This connection or its account has reached its limit of subscriptions."""

    meaning = "The last subscriptions were not made: nothing comes to them."


class SlowConsumer(JsClientError):
    """The client dropped messages because the application was too slow: `dropped` messages on `subject`."""

    meaning = "What was dropped comes again only if a stream keeps it."
    advice = "Take messages faster, in more threads, or raise pending_messages and pending_bytes."

    def __init__(self, message: str, subject: str = "", dropped: int = 0) -> None:
        super().__init__(message)
        self.subject = subject
        self.dropped = dropped


class SubscriptionClosed(JsClientError):
    """The subscription or iterator was closed and nothing is left in it."""


class NoThread(JsClientError, RuntimeError):
    """The system could not start all threads that the call needs. The call ended the threads that had started."""

    advice = "Use fewer threads, or raise the system's limit."
