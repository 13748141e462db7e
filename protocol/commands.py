"""Client operations as bytes.

Text is trusted by its type: a `str` subject is checked and encoded here, `bytes` are taken as they are
and must come from `protocol.subjects` (or from the wire, as the reply of a message does).
"""

from __future__ import annotations

from protocol.errors import LineTooLong
from protocol.info import ConnectInfo
from protocol.subjects import check_filter, check_queue, check_subject

PING = b"PING\r\n"
PONG = b"PONG\r\n"

# Server default `max_control_line`; it counts what follows the verb. Beyond it the server closes the connection.
MAX_CONTROL_LINE = 4096
# Digits and blanks of the longest sizes that can follow the names in a control line.
_SIZES = 24


def encode_connect(info: ConnectInfo) -> bytes:
    # No length check: the server allows a long CONNECT (a JWT alone may exceed 4096 bytes).
    return b"CONNECT " + info.encode() + b"\r\n"


def pub(subject: bytes | str, payload: bytes = b"", reply: bytes | str = b"") -> bytes:
    """PUB. Raises SubjectError, LineTooLong."""
    names = _names(subject, reply)
    return b"PUB %b %d\r\n%b\r\n" % (names, len(payload), payload)


def hpub(subject: bytes | str, headers: bytes, payload: bytes = b"", reply: bytes | str = b"") -> bytes:
    """HPUB; `headers` is the block of `Headers.encode()`. Raises SubjectError, LineTooLong."""
    names = _names(subject, reply)
    size = len(headers)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (names, size, size + len(payload), headers, payload)


def sub(subject: bytes | str, sid: bytes | int, queue: bytes | str = b"") -> bytes:
    """SUB. Raises SubjectError, LineTooLong."""
    if isinstance(subject, str):
        subject = check_filter(subject)
    if isinstance(queue, str):
        queue = check_queue(queue) if queue else b""
    arguments = b"%b %b %b" % (subject, queue, _sid(sid)) if queue else b"%b %b" % (subject, _sid(sid))
    if len(arguments) > MAX_CONTROL_LINE:
        raise LineTooLong(f"SUB line of {len(arguments)} bytes, the server reads {MAX_CONTROL_LINE}")
    return b"SUB %b\r\n" % arguments


def unsub(sid: bytes | int, max_messages: int | None = None) -> bytes:
    """UNSUB, at once or (max_messages > 0) when the server has sent that many since the SUB."""
    if max_messages:
        return b"UNSUB %b %d\r\n" % (_sid(sid), max_messages)
    return b"UNSUB %b\r\n" % _sid(sid)


def _names(subject: bytes | str, reply: bytes | str) -> bytes:
    if isinstance(subject, str):
        subject = check_subject(subject)
    if reply:
        if isinstance(reply, str):
            reply = check_subject(reply, "reply subject")
        subject = b"%b %b" % (subject, reply)
    if len(subject) + _SIZES > MAX_CONTROL_LINE:
        raise LineTooLong(f"subject and reply of {len(subject)} bytes, the server reads {MAX_CONTROL_LINE} per line")
    return subject


def _sid(sid: bytes | int) -> bytes:
    return sid if isinstance(sid, bytes) else b"%d" % sid
