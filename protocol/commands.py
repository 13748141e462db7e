"""Client operations as bytes.

Text is trusted by its type: a `str` subject is checked and encoded here, `bytes` are taken as they are
and must come from `protocol.subjects` (or from the wire, as the reply of a message does).
"""

from __future__ import annotations

from protocol.errors import LineTooLong, shorten
from protocol.info import ConnectInfo
from protocol.subjects import check_filter, check_queue, check_subject

PING = b"PING\r\n"
PONG = b"PONG\r\n"

# Server default `max_control_line`. It counts what stands between the verb's blank and CRLF (4,096 bytes pass,
# 4,097 do not: tried on 2.9 and 2.15), and beyond it the server closes the connection.
MAX_CONTROL_LINE = 4096


def encode_connect(info: ConnectInfo) -> bytes:
    # No length check: servers refuse a CONNECT above their max_control_line as well, but one that expects
    # large JWTs has a larger limit configured, which INFO does not tell.
    return b"CONNECT " + info.encode() + b"\r\n"


def pub(subject: bytes | str, payload: bytes = b"", reply: bytes | str = b"") -> bytes:
    """PUB. Raises SubjectError, LineTooLong."""
    line = b"PUB %b %d\r\n" % (_names(subject, reply), len(payload))
    if len(line) > MAX_CONTROL_LINE + 6:
        raise _too_long(line)
    return b"%b%b\r\n" % (line, payload)


def hpub(subject: bytes | str, headers: bytes, payload: bytes = b"", reply: bytes | str = b"") -> bytes:
    """HPUB; `headers` is the block of `Headers.encode()`. Raises SubjectError, LineTooLong."""
    size = len(headers)
    line = b"HPUB %b %d %d\r\n" % (_names(subject, reply), size, size + len(payload))
    if len(line) > MAX_CONTROL_LINE + 7:
        raise _too_long(line)
    return b"%b%b%b\r\n" % (line, headers, payload)


def sub(subject: bytes | str, sid: bytes | int, queue: bytes | str = b"") -> bytes:
    """SUB. Raises SubjectError, LineTooLong."""
    if isinstance(subject, str):
        subject = check_filter(subject)
    if isinstance(queue, str):
        queue = check_queue(queue) if queue else b""
    names = b"%b %b" % (subject, queue) if queue else subject
    line = b"SUB %b %b\r\n" % (names, _sid(sid))
    if len(line) > MAX_CONTROL_LINE + 6:
        raise _too_long(line)
    return line


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
        return b"%b %b" % (subject, reply)
    return subject


def _too_long(line: bytes) -> LineTooLong:
    return LineTooLong(f"control line of {len(line)} bytes, the server reads {MAX_CONTROL_LINE}: {shorten(line)}")


def _sid(sid: bytes | int) -> bytes:
    return sid if isinstance(sid, bytes) else b"%d" % sid
