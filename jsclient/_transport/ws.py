"""Websocket around any byte stream, on the sans-IO half of the package `websockets` (extra `websocket`).

NATS over websocket is a byte stream: a frame may hold many operations or a part of one. Every write becomes masked
binary frames. The reader makes the answers to pings and to a close frame, and the next sender sends them
(`needs_flush`), like the records of TLS. The connection imports this module only for `ws://` and `wss://`.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.extensions.base import Extension
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.uri import WebSocketURI

from jsclient._transport.sealing import SealingTransport, head_of
from jsclient._transport.stream import Buffer, Transport
from jsclient.durations import Deadline
from jsclient.errors import ConfigError, NotANatsServer
from jsclient.protocol.errors import shorten

FRAME_SLICE: Final = 64 * 1024  # bytes per frame: masking happens ahead of the socket, and copies
MAX_RESPONSE: Final = 16 * 1024  # bytes of the head of the HTTP response
MAX_FRAME: Final = 128 * 1024 * 1024  # the largest NATS payload and what a server coalesces with it
MAX_INFLATED: Final = 128 * 1024 * 1024  # of one compressed message
INFLATE_PIECE: Final = 256 * 1024  # bytes inflated at a time: deflate makes up to 1,032 bytes of one
COMPRESS_FROM: Final = 64  # bytes; nats-server uses the same bound
MAX_PONGS: Final = 64  # most pongs waiting to be sent: of more pings, the last get an answer (RFC 6455 5.5.3)

_FLUSH_TAIL: Final = b"\x00\x00\xff\xff"  # RFC 7692 7.2.1: removed by the sender, put back by the receiver
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_HANDSHAKE_HEADERS: Final = frozenset(("host", "upgrade", "connection", "content-length", "transfer-encoding"))

# The package logs headers and payload at DEBUG, which may hold secrets: this logger passes nothing on.
_SILENT: Final = logging.Logger("jsclient.websocket", logging.CRITICAL + 1)

Payload = Buffer | bytearray


class WebSocketTransport(SealingTransport):
    """An open websocket over another transport. Made by `start_websocket`."""

    def __init__(self, inner: Transport, websocket: ClientProtocol, deflate: Deflate | None = None) -> None:
        super().__init__(inner)
        self._websocket = websocket  # the reader's; a sender uses only `_frame`, which keeps no state
        self._deflate = deflate
        self._replies: deque[bytes] = deque(maxlen=MAX_PONGS)  # the reader appends, a sender takes
        self._error: OSError | None = None
        self.secure = inner.secure
        self.tls = inner.tls
        self._pieces = self._received()  # data right behind the handshake

    # --- reading

    def recv(self) -> bytes | None:
        return self._read(None, by_tick=True)

    def recv_within(self, timeout: float | None) -> bytes | None:
        return self._read(timeout, by_tick=False)

    def _read(self, timeout: float | None, by_tick: bool) -> bytes | None:
        deadline = None if by_tick else Deadline(timeout)
        while True:
            plain = next(self._pieces, None)
            if plain:
                return plain
            if self._error is not None:
                raise self._error
            if self._websocket.close_rcvd is not None:
                return b""
            if self._replies:
                return None  # a ping alone: let the caller look at needs_flush
            received = self._inner.recv() if deadline is None else self._inner.recv_within(deadline.remaining())
            if not received:
                return received
            self._websocket.receive_data(received)
            self._pieces = self._received()

    def _received(self) -> Iterator[bytes]:
        """The NATS bytes of the frames that have come, a bounded amount of inflated ones at a time."""
        frames = self._websocket.events_received()
        broken = self._websocket.parser_exc
        self._replies.extend(filter(None, self._websocket.data_to_send()))
        ready: list[Payload] = []
        size = 0
        try:
            for frame in frames:
                for piece in self._payload(frame):
                    ready.append(piece)
                    size += len(piece)
                    if size >= INFLATE_PIECE:
                        yield b"".join(ready)
                        ready, size = [], 0
        except _BrokenData as error:
            broken = error
        if broken is not None:  # the data before the error is good; the next call raises the error
            self._error = OSError(errno.EPROTO, f"websocket with {self.peer}: {broken}")
        yield b"".join(ready)

    def _payload(self, frame: Any) -> Iterable[Payload]:
        if frame.opcode is Opcode.TEXT:
            raise _BrokenData("text frame, NATS uses binary ones")
        if frame.opcode not in (Opcode.BINARY, Opcode.CONT):
            return ()
        return (frame.data,) if self._deflate is None else self._deflate.inflated(frame)

    # --- writing

    @property
    def unsent(self) -> int:
        return super().unsent + sum(map(len, tuple(self._replies)))

    @property
    def needs_flush(self) -> bool:
        return bool(self._replies) or self._inner.needs_flush

    def _seal(self, blocks: Sequence[Buffer]) -> tuple[int, list[bytes]]:
        frames = [self._replies.popleft() for _ in range(len(self._replies))]
        part = bytes(head_of(blocks, FRAME_SLICE))
        if part:
            frames.append(self._frame(part))
        return len(part), frames

    def _frame(self, data: bytes) -> bytes:
        extensions = (self._deflate,) if self._deflate is not None and len(data) > COMPRESS_FROM else ()
        return Frame(Opcode.BINARY, data).serialize(mask=True, extensions=extensions)


class _BrokenData(Exception):
    """Legal frames with invalid contents."""


class Deflate(Extension):
    """permessage-deflate (RFC 7692) without context takeover, which is all that nats-server offers.

    `decode` leaves the payload compressed, and `inflated` unpacks it piece by piece: the package's own extension
    would hold all that a frame inflates to.
    """

    def __init__(self) -> None:
        self._compressed: deque[bool] = deque()  # per data frame that was parsed and not unpacked yet
        self._now = False  # the message in progress is compressed
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._size = 0  # bytes that it has inflated to

    def encode(self, frame: Frame) -> Frame:
        deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        data = deflater.compress(frame.data) + deflater.flush(zlib.Z_SYNC_FLUSH)
        return dataclasses.replace(frame, data=data[: -len(_FLUSH_TAIL)], rsv1=True)

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._compressed.append(frame.rsv1)
            first = frame.opcode is Opcode.BINARY
            return dataclasses.replace(frame, rsv1=False) if frame.rsv1 and first else frame
        return frame

    def inflated(self, frame: Frame) -> Iterator[Payload]:
        """The payload of a frame in pieces. Raises _BrokenData."""
        compressed = self._compressed.popleft()
        if frame.opcode is Opcode.BINARY:
            self._now, self._size = compressed, 0
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        if not self._now:
            yield frame.data
            return
        data = bytes(frame.data) + (_FLUSH_TAIL if frame.fin else b"")
        more = bool(data)
        while more:
            try:
                piece = self._inflater.decompress(data, INFLATE_PIECE)
            except zlib.error as error:
                raise _BrokenData(f"compressed data is broken: {error}") from None
            self._size += len(piece)
            if self._size > MAX_INFLATED:
                raise _BrokenData(f"a compressed message inflates to more than {MAX_INFLATED} bytes")
            if piece:
                yield piece
            data = self._inflater.unconsumed_tail
            if self._inflater.eof:  # a final block is legal, and the next one starts fresh
                data = self._inflater.unused_data
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            more = bool(data) or len(piece) == INFLATE_PIECE


def start_websocket(
    transport: Transport,
    host: str,
    port: int,
    path: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    *,
    compression: bool,
    timeout: float | None,
) -> WebSocketTransport:
    """Upgrade `transport` (TCP, or TLS for wss) to websocket; blocks until the server has agreed.

    The request carries `headers`, which cannot replace the headers of the handshake itself (ConfigError). Raises
    NotANatsServer if the answer is not a websocket, TimeoutError, OSError.
    """
    websocket = _new_websocket(transport.secure, host, port, path, compression)
    request = websocket.connect()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        _check_header(name, value)
        request.headers[name] = value
    websocket.send_request(request)
    deadline = Deadline(timeout)
    late = TimeoutError(errno.ETIMEDOUT, f"{transport.peer} did not answer the websocket request in time")
    if not transport.send(b"".join(websocket.data_to_send()), deadline.remaining()):
        raise late
    behind = _read_response(transport, websocket, deadline, late)
    deflate = Deflate() if websocket.extensions else None
    websocket.extensions = [] if deflate is None else [deflate]
    websocket.receive_data(behind)  # not before: INFO may have come with the response, compressed
    return WebSocketTransport(transport, websocket, deflate)


def _new_websocket(secure: bool, host: str, port: int, path: str, compression: bool) -> ClientProtocol:
    if not _PRINTABLE.fullmatch(host):
        raise ConfigError(f"websocket host must be printable ASCII without blanks: {host!r:.80}")
    if not path.startswith("/") or not _PRINTABLE.fullmatch(path):
        shown = path.partition("?")[0]  # without its query, which may hold a token
        raise ConfigError(f"websocket path must start with / and be percent-encoded: {shown!r:.80}")
    offered = ClientPerMessageDeflateFactory(True, True, client_max_window_bits=None)
    return ClientProtocol(
        WebSocketURI(secure, host, port, path, ""),
        extensions=[offered] if compression else None,
        max_size=MAX_FRAME,
        logger=_SILENT,
    )


def _read_response(transport: Transport, websocket: ClientProtocol, deadline: Deadline, late: TimeoutError) -> bytes:
    """Give the response to the websocket; returns the bytes that came behind it."""
    head = b""
    while True:
        data = transport.recv_within(deadline.remaining())
        if data is None:
            raise late
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, f"{transport.peer} closed during the websocket handshake")
        head += data
        end = head.find(b"\r\n\r\n")
        if not b"HTTP/1.".startswith(head[:7]):
            raise _refused(transport, f"not an HTTP response, is this a websocket port? {shorten(head)}")
        if end > MAX_RESPONSE or (end < 0 and len(head) > MAX_RESPONSE):
            raise _refused(transport, f"websocket handshake response above {MAX_RESPONSE} bytes: {shorten(head)}")
        if end >= 0:
            break
    status = head.partition(b"\r\n")[0]
    if status.split()[1:2] != [b"101"]:
        raise _refused(transport, f"the server refused the websocket upgrade: {shorten(status)}")
    websocket.receive_data(head[: end + 4])
    if websocket.handshake_exc is not None:
        error = websocket.handshake_exc
        cause = error.__cause__ if type(error) is InvalidHandshake else error
        raise _refused(transport, f"bad response to the websocket handshake: {cause}")
    websocket.events_received()  # the response
    return head[end + 4 :]


def _refused(transport: Transport, text: str) -> NotANatsServer:
    return NotANatsServer(f"{transport.peer}: {text}")


def _check_header(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise ConfigError(f"an HTTP header is text, not {type(name).__name__} and {type(value).__name__}")
    lowered = name.lower()
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise ConfigError(f"not a legal HTTP header: {name!r:.60}")  # the value may be a secret
    if lowered in _HANDSHAKE_HEADERS or lowered.startswith("sec-websocket-"):
        raise ConfigError(f"the header {name!r} belongs to the websocket handshake")
