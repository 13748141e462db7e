"""The errors of the wire format. Errors of the peer and errors of the caller are different classes.

ProtocolError                 the peer sent something that is not the NATS protocol
+-- LimitExceeded             ... or more of it than the client is willing to hold
+-- InvalidInfo               an INFO that cannot be understood
+-- MalformedHeaders          a header block inside an intact frame: only this one message is bad
InvalidArgument (ValueError)  the caller wants to send something that must not reach the wire
+-- SubjectError              subject, reply or queue group
+-- NamingError                name of a stream, consumer, bucket ...
+-- InvalidHeader             header name or value
+-- LineTooLong               the control line would be longer than the server reads
"""

from __future__ import annotations

from typing import Any

import msgspec

BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of msgspec for bytes that are not the expected JSON; RecursionError for 100,000 nested brackets."""

_SHOWN_BYTES = 60


def shorten(data: bytes | bytearray) -> str:
    """`repr` of the offending bytes, shortened to keep hostile input from flooding a log."""
    if len(data) <= _SHOWN_BYTES:
        return repr(bytes(data))
    return f"{bytes(data[:_SHOWN_BYTES])!r}... ({len(data)} bytes)"


class Told:
    """The parts of an error text that belong to the class, in addition to the event itself."""

    meaning = ""
    advice = ""
    args: tuple[Any, ...]

    @property
    def what(self) -> str:
        """The event, without the two other parts, for a text that quotes this one."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        what = self.what
        ended = what if what.endswith(("?", ".")) else f"{what}."
        return " ".join(part for part in (ended, self.meaning, self.advice) if part)


class ProtocolError(Told, Exception):
    """The peer sent bytes that are not the NATS protocol, and the stream cannot be parsed any further.

    `events` holds the events that `Parser.feed` had parsed from the same chunk before the bad bytes. They are genuine
    and are delivered nowhere else.
    """

    meaning = "What was understood before these bytes is genuine; nothing behind them is read."
    advice = "Close the link and make a new one. If it comes again, see whether a NATS server listens there."
    events: list[Any]

    def __init__(self, message: str, events: list[Any] | None = None) -> None:
        super().__init__(message)
        self.events = [] if events is None else events


class LimitExceeded(ProtocolError):
    """A line, a payload or a frame is larger than the limit; the parser refused it before using memory for it."""

    advice = "Close the link. If the peer may send so much, give the parser a higher limit."


class InvalidInfo(ProtocolError):
    """An INFO that is not the expected JSON object (bad JSON, wrong types, nested too deeply)."""

    meaning = "Nothing is known about the server."


class MalformedHeaders(ProtocolError):
    """The header block of one message does not begin with `NATS/1.0`; the stream itself is intact."""

    meaning = "Only this message is affected: its payload is whole, and the messages behind it are read."
    advice = "Correct its sender; its payload can be used without the headers."


class InvalidArgument(Told, ValueError):
    """An argument that must not reach the wire. Nothing was encoded."""

    meaning = "Nothing was encoded or sent."
    advice = "Correct the argument."


class SubjectError(InvalidArgument):
    """Not a usable subject, reply subject or queue group."""

    advice = "Use tokens without blanks and with dots between them; wildcards only to subscribe and to filter."


class NamingError(InvalidArgument):
    """Not a usable name: it would change the meaning of the subject it becomes a token of."""

    advice = "Use letters, digits, '-' and '_'."


class InvalidHeader(InvalidArgument):
    """A header name or value that would break the header block."""


class LineTooLong(InvalidArgument):
    """The control line would exceed the server's limit (4096 bytes by default); it would close the connection."""

    advice = "Shorten the subject, the reply or the queue group."
