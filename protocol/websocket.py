"""RFC 6455, client side, without I/O: NATS bytes <-> websocket bytes.

NATS over websocket is a byte stream: a frame may hold many operations or a part of one. So payload is
handed on as it arrives, whole frames are never collected, and what a hostile server can make us hold is
the chunk it sent and, with compression, a piece of what that inflates to (the rest when that has been taken).

    handshake = Handshake("example.org:443", path="/nats")
    send(handshake.request)
    while (ws := handshake.feed(recv())) is None: ...
    chunks = ws.feed(b"")                # what came behind the response
    send(ws.frame(b"PING\\r\\n"))
    chunks = ws.feed(recv()); send(ws.outgoing())
    while ws.pending: chunks = ws.feed(b"")
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable

from protocol.errors import InvalidArgument, InvalidHeader, LimitExceeded, WebSocketError, shorten

MAX_RESPONSE = 16 * 1024  # bytes of the HTTP response head
MAX_FRAME = 128 * 1024 * 1024  # the largest NATS payload and what a server coalesces with it
MAX_INFLATED = 128 * 1024 * 1024  # of one compressed message
MAX_PONGS = 64  # that wait to be sent: a server that asks without reading the answers must not fill our memory
INFLATE_PIECE = 256 * 1024  # given out at once: deflate makes up to 1,032 bytes of one, 64 MiB of a chunk of 64 KiB
_COMPRESS_FROM = 64  # bytes; below, deflate makes it longer (nats-server uses the same bound)
_MAX_CONTROL = 125

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 1.3
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x2, 0x8, 0x9, 0xA
_FIN, _RSV1, _RSV23, _MASK = 0x80, 0x40, 0x30, 0x80
_FLUSH_TAIL = b"\x00\x00\xff\xff"  # RFC 7692 7.2.1: taken off by the sender, put back by the receiver

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PRINTABLE = re.compile(r"[!-~]+")
_OURS = frozenset(("host", "upgrade", "connection", "content-length", "transfer-encoding"))
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?")


class Handshake:
    """The HTTP upgrade. `request` is what to send; `feed` takes the answer and returns the open WebSocket.

    `host` is the Host header (with the port unless it is the scheme's own). `headers` are extra request
    headers, e.g. an Authorization for a proxy; those of the upgrade itself cannot be replaced. `random`
    gives n unpredictable bytes; tests pass their own. Raises InvalidArgument.
    """

    def __init__(
        self,
        host: str,
        path: str = "/",
        headers: Iterable[tuple[str, str]] = (),
        compress: bool = False,
        *,
        max_frame: int = MAX_FRAME,
        max_inflated: int = MAX_INFLATED,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if not _PRINTABLE.fullmatch(host):
            raise InvalidArgument(f"websocket host must be printable ASCII without blanks: {host!r:.80}")
        if not path.startswith("/") or not _PRINTABLE.fullmatch(path):
            # Without its query, which may hold a token.
            shown = path.partition("?")[0]
            raise InvalidArgument(f"websocket path must start with / and be percent-encoded: {shown!r:.80}")
        self._compress = compress
        self._limits = (max_frame, max_inflated)
        self._random = random
        self._received = b""
        key = base64.b64encode(random(16))
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        if compress:
            # Without context takeover neither side keeps a 32 KiB window per connection (all nats-server offers).
            lines.append(
                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            )
        lines += [_header_line(name, value) for name, value in headers]
        self.request: bytes = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def feed(self, data: bytes) -> WebSocket | None:
        """None until the answer is complete. Raises WebSocketError, LimitExceeded."""
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_RESPONSE:
            raise LimitExceeded(f"websocket handshake response above {MAX_RESPONSE} bytes: {shorten(head)}")
        if not end:
            if not b"HTTP/1.".startswith(head[:7]):
                raise WebSocketError(f"not an HTTP response, is this a websocket port? {shorten(head)}")
            return None
        deflate = self._check(head)
        ws = WebSocket(deflate, max_frame=self._limits[0], max_inflated=self._limits[1], random=self._random)
        ws._buffer = rest
        return ws

    def _check(self, head: bytes) -> Deflate | None:
        status, *lines = head.split(b"\r\n")
        match = _STATUS_LINE.fullmatch(status)
        if match is None:
            raise WebSocketError(f"not an HTTP response, is this a websocket port? {shorten(status)}")
        if match.group(1) != b"101":
            raise WebSocketError(f"the server refused the websocket upgrade: {shorten(status)}")
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise WebSocketError(f"handshake header without ':': {shorten(line)}")
            name, value = name.strip().lower(), value.strip()
            headers[name] = headers[name] + b", " + value if name in headers else value
        if headers.get(b"upgrade", b"").lower() != b"websocket":
            raise WebSocketError("handshake response without 'Upgrade: websocket'")
        if b"upgrade" not in [token.strip().lower() for token in headers.get(b"connection", b"").split(b",")]:
            raise WebSocketError("handshake response without 'Connection: Upgrade'")
        if headers.get(b"sec-websocket-accept") != self._accept:
            raise WebSocketError("handshake response with a wrong Sec-WebSocket-Accept")
        if b"sec-websocket-protocol" in headers:
            raise WebSocketError("handshake response with a subprotocol that was not asked for")
        return self._extension(headers.get(b"sec-websocket-extensions"))

    def _extension(self, value: bytes | None) -> Deflate | None:
        if value is None:
            return None
        name, *options = [part.strip().lower() for part in value.split(b";")]
        if not self._compress or name != b"permessage-deflate":
            raise WebSocketError(f"websocket extension that was not asked for: {shorten(value)}")
        # RFC 7692 7.1: client_max_window_bits may only answer an offer of it; any window up to 15 bits inflates.
        known = (b"server_no_context_takeover", b"client_no_context_takeover", b"server_max_window_bits")
        if any(option.partition(b"=")[0].strip() not in known for option in options):
            raise WebSocketError(f"websocket extension with parameters that were not asked for: {shorten(value)}")
        return Deflate(keep_context=b"server_no_context_takeover" not in options)


class Deflate:
    """permessage-deflate (RFC 7692). Our own messages never refer to earlier ones; the server's may."""

    def __init__(self, keep_context: bool = False) -> None:
        self._keep = keep_context
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)

    def compress(self, data: bytes) -> bytes:
        deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        out = deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH)
        return out[: -len(_FLUSH_TAIL)]

    def inflate(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        """(up to `room` bytes, what is left of `data`). When it gave all of `room` there may be more, left or not."""
        try:
            out = self._inflater.decompress(data, room)
        except zlib.error as error:
            raise WebSocketError(f"compressed websocket data is broken: {error}", code=1007) from None
        if not self._inflater.eof:
            return out, self._inflater.unconsumed_tail
        data = self._inflater.unused_data  # a final block is legal, the next one starts afresh
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        return out, data

    def end_message(self) -> None:
        if not self._keep:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)


class WebSocket:
    """An open websocket. Not thread-safe: `feed` and `outgoing` belong to the reader; `frame` and `close`
    keep no state of their own and may be called by every sender.
    """

    def __init__(
        self,
        deflate: Deflate | None = None,
        *,
        max_frame: int = MAX_FRAME,
        max_inflated: int = MAX_INFLATED,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._deflate = deflate
        self._max_frame = max_frame
        self._max_inflated = max_inflated
        self._random = random
        self._buffer = b""  # not read yet: an unfinished frame header or control frame, or what waits behind a piece
        self._deflated = b""  # of the current frame, read and not inflated yet
        self._left = 0  # payload bytes of the current data frame still to come
        self._in_frame = False
        self._in_message = False  # between the first and the last fragment
        self._final = False
        self._compressed = False
        self._inflated = 0
        self._inflating = False  # there is some, or zlib has more to give
        self._tail = b""  # what comes behind it, if it ends a message
        self._ends = False  # the tail has been fed
        self._paused = False  # `feed` has given a piece and kept the rest
        self._pings: deque[bytes] = deque(maxlen=MAX_PONGS)  # not answered yet
        self._closing: bytes | None = None  # the answer to a close
        self._error: Exception | None = None
        self.close_code: int | None = None  # set once the server has closed; 1005 when it gave no code
        self.close_reason: str = ""

    @property
    def closed(self) -> bool:
        """The server sent a close frame: `outgoing()` has the answer, nothing more will be read."""
        return self.close_code is not None

    def frame(self, data: bytes) -> bytes:
        """One whole masked binary frame."""
        if self._deflate is not None and len(data) > _COMPRESS_FROM:
            return self._masked(_FIN | _RSV1 | _BINARY, self._deflate.compress(data))
        return self._masked(_FIN | _BINARY, data)

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """The close frame to send when we end it."""
        payload = struct.pack("!H", code) + reason.encode()[: _MAX_CONTROL - 2]
        return self._masked(_FIN | _CLOSE, payload)

    @property
    def pending(self) -> bool:
        """More may come of what was fed: `feed(b"")` gives the next piece."""
        return self._paused

    def outgoing(self) -> bytes:
        """Pongs and the answer to a close that came up in `feed`; b"" when there is nothing to send.

        Of many pings the last ones are answered, as RFC 6455 5.5.3 allows.
        """
        replies = [self._masked(_FIN | _PONG, ping) for ping in self._pings]
        self._pings.clear()
        if self._closing is not None:
            replies.append(self._closing)
            self._closing = None
        return b"".join(replies)

    def feed(self, data: bytes) -> list[bytes]:
        """The NATS bytes in this chunk. Raises WebSocketError, LimitExceeded; then refuses everything.

        Bytes of the same chunk from before the error are on it as `.events`. With compression it may be a part of
        them: as long as `pending` is true, `feed(b"")` gives more.
        """
        if self._error is not None:
            raise type(self._error)(str(self._error))
        out: list[bytes] = []
        data = self._buffer + data if self._buffer else data
        position = 0
        room = INFLATE_PIECE
        self._paused = False
        try:
            while self.close_code is None:
                if self._inflating:
                    room -= self._inflate(out, room)
                    if room <= 0:
                        self._paused = True
                        break
                    continue
                if self._in_frame:
                    if self._left and position == len(data):
                        break
                    piece = data[position : position + self._left]
                    position += len(piece)
                    self._left -= len(piece)
                    self._take(piece, out)
                    continue
                end = self._header(data, position)
                if end is None:
                    break
                position = end
        except (WebSocketError, LimitExceeded) as error:
            self._error = error
            self._buffer = b""
            error.events = out
            raise
        self._buffer = data[position:] if self.close_code is None else b""
        return out

    def _header(self, data: bytes, start: int) -> int | None:
        """Read a frame header at `start`, and a control frame whole; None when it is not all there."""
        if len(data) - start < 2:
            return None
        first, second = data[start], data[start + 1]
        opcode, size, body = first & 0x0F, second & 0x7F, start + 2
        shown = data[start : start + 2]
        if second & _MASK:
            raise WebSocketError(f"masked frame from a server: {shown!r}")
        if first & _RSV23:
            raise WebSocketError(f"frame with reserved bits: {shown!r}")
        if opcode >= 0x8:
            if not first & _FIN or first & _RSV1 or size > _MAX_CONTROL:
                raise WebSocketError(f"control frame that is fragmented, compressed or too long: {shown!r}")
            if len(data) - body < size:
                return None
            self._control(opcode, data[body : body + size])
            return body + size
        self._check_data_frame(first, opcode, shown)
        if size >= 126:
            wide = 2 if size == 126 else 8
            if len(data) - body < wide:
                return None
            size = int.from_bytes(data[body : body + wide], "big")
            body += wide
        if size > self._max_frame:
            raise LimitExceeded(f"websocket frame of {size} bytes, the limit is {self._max_frame}")
        if opcode == _BINARY:
            self._compressed = bool(first & _RSV1)
            self._inflated = 0
        self._in_message = self._in_frame = True
        self._final = bool(first & _FIN)
        self._left = size
        return body

    def _check_data_frame(self, first: int, opcode: int, shown: bytes) -> None:
        if opcode == _CONTINUATION:
            if not self._in_message or first & _RSV1:
                raise WebSocketError(f"continuation of nothing: {shown!r}")
        elif opcode != _BINARY:
            raise WebSocketError(f"frame with opcode {opcode}, NATS uses binary ones: {shown!r}", code=1003)
        elif self._in_message:
            raise WebSocketError(f"new message inside a fragmented one: {shown!r}")
        elif first & _RSV1 and self._deflate is None:
            raise WebSocketError(f"compressed frame, compression was not negotiated: {shown!r}")

    def _take(self, piece: bytes, out: list[bytes]) -> None:
        """Pass a piece of the current data frame on; `_left` is already counted down."""
        if self._compressed:
            self._deflated = piece
            self._inflating = True
            self._tail = _FLUSH_TAIL if not self._left and self._final else b""
        elif piece:
            out.append(piece)
        if self._left:
            return
        self._in_frame = False
        if self._final:
            self._in_message = False

    def _inflate(self, out: list[bytes], room: int) -> int:
        """Inflate up to `room` bytes of what is there; returns how many came."""
        assert self._deflate is not None
        piece, self._deflated = self._deflate.inflate(self._deflated, room)
        self._inflated += len(piece)
        if self._inflated > self._max_inflated:
            raise LimitExceeded(f"compressed websocket message inflates to more than {self._max_inflated} bytes")
        if piece:
            out.append(piece)
        if self._deflated or len(piece) == room:
            return len(piece)  # there is more
        if self._tail:
            self._deflated, self._tail, self._ends = self._tail, b"", True
        else:
            self._inflating = False
            if self._ends:
                self._ends = False
                self._deflate.end_message()
        return len(piece)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._pings.append(payload)
        elif opcode == _CLOSE:
            if len(payload) == 1:
                raise WebSocketError("close frame with half a code")
            self.close_code = int.from_bytes(payload[:2], "big") if payload else 1005
            self.close_reason = payload[2:].decode("utf-8", "replace")
            self._closing = self._masked(_FIN | _CLOSE, payload[:2])  # RFC 6455 5.5.1: echo the code
        elif opcode != _PONG:
            raise WebSocketError(f"frame with reserved opcode {opcode}")

    def _masked(self, first: int, payload: bytes) -> bytes:
        size = len(payload)
        if size < 126:
            head = bytes((first, _MASK | size))
        elif size < 65536:
            head = struct.pack("!BBH", first, _MASK | 126, size)
        else:
            head = struct.pack("!BBQ", first, _MASK | 127, size)
        key = self._random(4)
        return b"".join((head, key, mask(payload, key)))


def mask(data: bytes, key: bytes) -> bytes:
    """XOR with the repeated key of 4 bytes. As two big integers: 16 KiB in 46 us, byte by byte 1,100 us."""
    size = len(data)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def _header_line(name: str, value: str) -> str:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidHeader(f"an HTTP header is text, not {type(name).__name__} and {type(value).__name__}")
    lowered = name.lower()
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise InvalidHeader(f"not a legal HTTP header: {name!r:.60}")  # the value may be a secret
    if lowered in _OURS or lowered.startswith("sec-websocket-"):
        raise InvalidHeader(f"the header {name!r} belongs to the websocket handshake")
    return f"{name}: {value}"
