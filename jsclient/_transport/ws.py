"""Websocket around any byte stream, on the framing of `protocol.websocket`.

Every `send` becomes masked binary frames. Answers to pings and to a close frame are made by the reader
and sent by the next sender (`needs_flush`), like the records of TLS.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, repeat
from typing import Any, Final

from jsclient._transport.sealing import SealingTransport
from jsclient._transport.stream import Buffer, Carried, Transport, permitted
from jsclient._transport.tcp import format_address
from jsclient.durations import Deadline
from jsclient.errors import ConfigError, NotANatsServer
from protocol.errors import InvalidArgument, LimitExceeded, WebSocketError
from protocol.websocket import MAX_PONGS, Handshake, WebSocket

FRAME_SLICE: Final = 64 * 1024  # bytes per frame: masking is done ahead of the socket, and copies


_popleft: Final = deque.popleft
_append: Final[Callable[[Any, Any], None]] = list.append


class WebSocketTransport(SealingTransport):
    """An open websocket over another transport. Made by `start_websocket`."""

    def __init__(self, inner: Transport, socket: WebSocket) -> None:
        super().__init__(inner)
        self._socket = socket
        self.resumable = inner.resumable
        self._replies: deque[bytes] = deque(maxlen=MAX_PONGS)  # pongs; the reader appends, a sender takes
        self._error: OSError | None = None
        self.secure = inner.secure
        self.tls = inner.tls
        self._left_over = self._unframe(b"")  # what came right behind the handshake

    # --- reading

    def recv(self) -> bytes | None:
        return self._read(None, by_tick=True)

    def recv_within(self, timeout: float | None) -> bytes | None:
        return self._read(timeout, by_tick=False)

    def _read(self, timeout: float | None, by_tick: bool) -> bytes | None:
        if self._left_over:
            data, self._left_over = self._left_over, b""
            return data
        deadline = None if by_tick else Deadline(timeout)
        while True:
            if self._error is not None:
                raise self._error
            if self._socket.closed:
                return b""
            received: bytes | None = b""
            if not self._socket.pending:
                received = self._inner.recv() if deadline is None else self._inner.recv_within(deadline.remaining())
                if not received:
                    return received
            plain = self._unframe(received or b"")
            if plain:
                return plain
            if self._replies:
                return None  # a ping alone: let the caller look at needs_flush

    def _unframe(self, data: bytes) -> bytes:
        try:
            chunks: Iterable[bytes] = self._socket.feed(data)
        except (WebSocketError, LimitExceeded) as error:
            # What came before the error is good; the error is raised by the next call.
            self._error = OSError(errno.EPROTO, f"websocket with {self.peer}: {error.what}")
            chunks = error.events
        reply = self._socket.outgoing()
        if reply:
            self._replies.append(reply)
        return b"".join(chunks)

    # --- writing

    @property
    def unsent(self) -> int:
        return super().unsent + sum(map(len, tuple(self._replies)))

    @property
    def needs_flush(self) -> bool:
        return bool(self._replies) or self._inner.needs_flush

    def _seal(self, load: Carried, blocks: list[Buffer], permit: list[int]) -> bool:
        rest = [block for block in load.rest() if block]
        if not (rest or self._replies):
            return False
        replies = map(_popleft, repeat(self._replies, len(self._replies)))
        blocks.extend(chain.from_iterable(map(permitted, permit, (replies,))))
        if rest:
            part = bytes(rest[0][:FRAME_SLICE])
            both = map(_append, (blocks, load.taken), (self._socket.frame(part), len(part)))
            deque(chain.from_iterable(map(permitted, permit, (both,))), 0)
        return True

    @property
    def addresses(self) -> tuple[str, str]:
        return self._inner.addresses


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

    `headers` are sent with the request; those of the handshake itself cannot be replaced (ConfigError).
    Raises NotANatsServer when the answer is no websocket, TimeoutError, OSError.
    """
    default_port = 443 if transport.secure else 80
    name = format_address(host, port) if port != default_port else format_address(host, port).rpartition(":")[0]
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        handshake = Handshake(name, path, pairs, compression)
    except InvalidArgument as error:
        raise ConfigError(error.what) from None
    deadline = Deadline(timeout)
    late = TimeoutError(errno.ETIMEDOUT, f"{transport.peer} did not answer the websocket request in time")
    if not transport.send(handshake.request, deadline.remaining()):
        raise late
    while True:
        data = transport.recv_within(deadline.remaining())
        if data is None:
            raise late
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, f"{transport.peer} closed during the websocket handshake")
        try:
            socket = handshake.feed(data)
        except (WebSocketError, LimitExceeded) as error:
            raise NotANatsServer(f"{transport.peer}: {error.what}") from error
        if socket is not None:
            return WebSocketTransport(transport, socket)
