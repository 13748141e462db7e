"""The errors of connections, subjects, options and time: everything but JetStream."""

from __future__ import annotations

from typing import Any


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


class NatsConnectionError(JsClientError, ConnectionError):
    """Base of everything that concerns the connection itself; a `ConnectionError` (and `OSError`) of Python, too."""


class ConnectFailed(NatsConnectionError):
    """No server could be reached; `attempts` lists (server, reason) in the order tried."""

    attempts: list[tuple[str, str]]

    def __init__(self, message: str, attempts: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.attempts = attempts or []


class NotANatsServer(NatsConnectionError):
    """Something answered on that address, but it does not speak the NATS protocol."""


class TlsError(NatsConnectionError):
    """TLS was refused, is not available although wanted, or the certificate did not verify."""


class AuthError(NatsConnectionError):
    """The server refused the credentials ("Authorization Violation" and its kin)."""


class AuthExpired(AuthError):
    """The user's or the account's credentials have expired."""


class AuthRevoked(AuthError):
    """The user's credentials were revoked."""


class AuthTimeout(AuthError):
    """The server waited too long for our CONNECT."""


class ConnectionClosed(NatsConnectionError):
    """The Connection was closed, by close() or after a failure from which it must not recover.

    `reason` is that failure (AuthError, ConnectFailed ...); None when the application closed the connection itself.
    """

    reason: BaseException | None = None


class ConnectionLost(NatsConnectionError):
    """The link went down while the call waited for an answer; `sent` is False when nothing of it had been sent yet."""

    def __init__(self, message: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ConnectionDraining(NatsConnectionError):
    """The Connection drains: it takes no new subscriptions and publishes."""


class ForkedConnection(NatsConnectionError):
    """The Connection was made in the parent process; a forked child must open its own (`jsclient.shared`)."""


class StaleConnection(NatsConnectionError):
    """The server did not answer our pings."""


class BufferFull(NatsConnectionError):
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
