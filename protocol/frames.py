"""Encodes the frames of a client: the only encoder of CONNECT, SUB, UNSUB, PUB and HPUB.

Subjects and replies are bytes here, and are used unchanged. They come from `protocol.subjects`, which has checked them,
or from the wire, as the reply of a message does.

Encoding is half the cost of a publish, so this module does no work twice. Code that publishes often keeps the start of
the line, `PUB subject`, which also begins the line with headers (behind an H). This module keeps the sizes that follow
the names, because formatting numbers was a tenth of a publish. It joins pieces, because `%` takes 30 ns more for every
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .errors import LineTooLong, shorten
from .info import ConnectInfo

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

MAX_CONTROL_LINE: Final = 4096
"""Server default `max_control_line`. It counts the bytes between the verb's blank and CRLF. Tests on server 2.9 and
2.15 showed that 4,096 bytes pass and 4,097 do not. Above the limit the server closes the connection."""

NAMES_ROOM: Final = MAX_CONTROL_LINE - 32
"""Bytes for subject and reply, with the blank between them. The sizes of any message have room behind them."""

LARGE_PAYLOAD: Final = 16 * 1024
"""From this size a payload leaves as a separate buffer: copying it into a block with others costs twice as much."""

_LONGEST_START: Final = NAMES_ROOM + len(b"PUB ")

KNOWN_SIZES: Final = 4096
"""Number of sizes whose digits this module remembers."""


class LargeFrame:
    """A frame in parts that are never joined, only for payloads of `LARGE_PAYLOAD` and more.

    Joined frames copied a publish of 128 KiB three times on its way to the kernel, which took 60 µs. The class is not a
    `bytes`, so no code joins or compares only a part of it.

    Attributes:
        parts: The buffers to send, in this order.
        size: Bytes of all parts.
    """

    __slots__ = ("parts", "size")

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self.parts: tuple[bytes, ...] = parts
        self.size: int = sum(map(len, parts))

    def __len__(self) -> int:
        return self.size


Frame = bytes | LargeFrame


class _Numbers(dict[int, bytes]):
    """Numbers as written in a control line, made at the first access.

    Callers use its `__getitem__`, because a subscript of a subclass of dict looks that method up each time: 47 ns
    instead of 28.
    """

    __slots__ = ("_template",)

    def __init__(self, template: bytes) -> None:
        self._template = template

    def __missing__(self, number: int) -> bytes:
        if len(self) >= KNOWN_SIZES:
            self.clear()
        text = self[number] = self._template % number
        return text


pub_end: Final = _Numbers(b" %d\r\n").__getitem__
"""The end of a line, by the size of the payload. Start, end, payload and CRLF, joined, are a frame, as in `pub`. The
hottest loops join these pieces themselves, because a call is a tenth of a publish."""

header_size: Final = _Numbers(b" %d").__getitem__
"""The part before the end of an HPUB line, by the size of the headers."""


# --- publishing -----------------------------------------------------------------------------------------


def pub_start(subject: bytes) -> bytes:
    """The start of a PUB line. Raises LineTooLong when it leaves no room for the sizes."""
    start = b"PUB " + subject
    if len(start) > _LONGEST_START:
        raise _too_long(start)
    return start


def with_reply(start: bytes, reply: bytes) -> bytes:
    """The start of a line with a reply subject. Raises LineTooLong."""
    start = b"".join((start, b" ", reply))
    if len(start) > _LONGEST_START:
        raise _too_long(start)
    return start


def pub(start: bytes, payload: bytes) -> bytes:
    """A message without headers; `start` comes from `pub_start`."""
    return b"".join((start, pub_end(len(payload)), payload, b"\r\n"))


def hpub(start: bytes, headers: bytes, payload: bytes) -> bytes:
    """A message with headers, which are the block of `Headers.encode()`."""
    size = len(headers)
    return b"".join((b"H", start, header_size(size), pub_end(size + len(payload)), headers, payload, b"\r\n"))


def pub_parts(start: bytes, payload: bytes) -> tuple[bytes, ...]:
    """The same as `pub`, for a `LargeFrame`."""
    return start + pub_end(len(payload)), payload, b"\r\n"


def hpub_parts(start: bytes, headers: bytes, payload: bytes) -> tuple[bytes, ...]:
    """The same as `hpub`, for a `LargeFrame`."""
    size = len(headers)
    return b"".join((b"H", start, header_size(size), pub_end(size + len(payload)), headers)), payload, b"\r\n"


def _too_long(start: bytes) -> LineTooLong:
    size = len(start) - len(b"PUB ")
    return LineTooLong(f"subject and reply have {size} bytes, the server reads {NAMES_ROOM} at most: {shorten(start)}")


def pub_to(payload: bytes) -> Callable[[bytes], bytes]:
    """Returns a function of the subject that makes the frame, for a payload sent to many subjects, such as an ack."""
    return (b"PUB %%b %d\r\n%b\r\n" % (len(payload), payload.replace(b"%", b"%%"))).__mod__


def pub_each(subjects: Sequence[bytes], inbox: bytes, tokens: Sequence[bytes], payload: bytes) -> list[bytes]:
    """The same message to each of many subjects. Each gets its own reply subject, made of `inbox` and its token. Raises
    LineTooLong."""
    if max(map(len, subjects), default=0) + len(inbox) + max(map(len, tokens), default=0) + 5 > _LONGEST_START:
        for subject, token in zip(subjects, tokens, strict=True):
            with_reply(pub_start(subject), inbox + token)  # raises for the one that is too long
    fixed = (inbox.replace(b"%", b"%%"), len(payload), payload.replace(b"%", b"%%"))
    return list(map((b"PUB %%b %b%%b %d\r\n%b\r\n" % fixed).__mod__, zip(subjects, tokens, strict=True)))


# --- subscribing, connecting ----------------------------------------------------------------------------


def encode_connect(info: ConnectInfo) -> bytes:
    """CONNECT with its JSON.

    It does not check the length. Servers refuse a CONNECT above their max_control_line as well, but a server that
    expects large JWTs has a larger limit configured, which INFO does not contain.
    """
    return b"CONNECT " + info.encode() + b"\r\n"


def sub(subject: bytes, sid: bytes, queue: bytes = b"") -> bytes:
    """SUB. Raises LineTooLong.

    `queue`: the queue group, by default empty, which means none.
    """
    names = b"%b %b" % (subject, queue) if queue else subject
    line = b"SUB %b %b\r\n" % (names, sid)
    if len(line) > MAX_CONTROL_LINE + 6:
        raise LineTooLong(f"control line of {len(line)} bytes, the server reads {MAX_CONTROL_LINE}: {shorten(line)}")
    return line


def unsub(sid: bytes, max_messages: int | None = None) -> bytes:
    """UNSUB, immediately or (max_messages > 0) when the server has sent that number of messages since the SUB."""
    if max_messages:
        return b"UNSUB %b %d\r\n" % (sid, max_messages)
    return b"UNSUB %b\r\n" % sid


# --- reading encoded frames that could not be sent ------------------------------------------------------


def has_headers(frame: Frame) -> bool:
    """True if a frame (of several joined ones the first) is a message with headers."""
    return _start(frame).startswith(b"HPUB ")


def size_of(frame: Frame) -> int:
    """Bytes of headers and payload (of several joined ones the first) that count against max_payload; 0 without."""
    words = _start(frame).partition(b"\r\n")[0].split(b" ")
    return int(words[-1]) if words[0] in (b"PUB", b"HPUB") else 0


def reply_of(frame: Frame) -> bytes:
    """The reply subject of a message, b"" when a frame has none or is not a message."""
    words = _start(frame).partition(b"\r\n")[0].split(b" ")
    with_reply = {b"PUB": 4, b"HPUB": 5}.get(words[0])
    return words[2] if len(words) == with_reply else b""


def split(frame: bytes) -> tuple[bytes, bytes | None, bytes]:
    """Subject, headers (None without) and payload of a single message."""
    line, _, rest = frame.partition(b"\r\n")
    words = line.split(b" ")
    size = int(words[-2]) if words[0] == b"HPUB" else 0
    return words[1], rest[:size] if size else None, rest[size:-2]


def _start(frame: Frame) -> bytes:
    return frame.parts[0] if isinstance(frame, LargeFrame) else frame
