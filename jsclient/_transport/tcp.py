"""Streams over TCP, and over Unix sockets.

Reading blocks in the kernel with SO_RCVTIMEO, so a chunk costs one release of the interpreter lock. Writing never
blocks: the kernel accepts as much as it has room for (MSG_DONTWAIT), and a caller that has time waits in `poll`. So a
deadline or Ctrl-C leaves the stream at a known byte. For this reason a live socket uses neither `settimeout` nor
`sendall`.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from jsclient._transport.stream import Buffer, Transport
from jsclient.durations import MOST_POLLED, Deadline

RECV_SIZE: Final = 112 * 1024
"""Bytes requested in one recv. A small message costs 1.4 µs at this size. It costs 16 µs at 128 KiB and more, because
malloc maps and unmaps memory for every call. Streams of messages gain nothing measurable beyond 64 KiB."""

IDLE_TICK: Final = 0.5  # seconds after which a silent recv returns None
SELECT_SLICE: Final = 0.1  # seconds between two checks for a shutdown, on systems where it wakes no thread
MAX_VECTORS: Final = 512  # buffers per sendmsg; IOV_MAX is 1024 on Linux

_AT_ONCE: Final = (getattr(socket, "MSG_DONTWAIT", 0),)


class TcpTransport(Transport):
    """A connected TCP (or Unix) socket."""

    unsent = 0  # not a property, because each write reads it
    needs_flush = False  # likewise, after each read

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        self._sock = sock
        self._shut = False
        # False for an application's socket that sends or reads in Python code, such as a proxy socket.
        self.exact = self.never_blocks = _in_c(sock, "send") and _in_c(sock, "sendmsg")
        self.can_take = _in_c(sock, "recv")
        self.peer = peer
        sock.setblocking(True)
        self.set_tick(IDLE_TICK)
        with contextlib.suppress(OSError):  # a Unix socket has no TCP options
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    # --- reading

    def recv(self) -> bytes | None:
        try:
            return self._sock.recv(RECV_SIZE)
        except BlockingIOError:  # SO_RCVTIMEO
            return None

    def recv_within(self, timeout: float | None) -> bytes | None:
        return self.recv() if self._wait_readable(timeout) else None

    def new_poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        return poller

    def take(self, permit: list[int]) -> Iterable[bytes]:
        return map(self._sock.recv, permit, _AT_ONCE)

    def set_tick(self, seconds: float) -> None:
        whole = int(seconds)
        packed = struct.pack("@ll", whole, max(1, int((seconds - whole) * 1_000_000)))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)

    # --- writing (POSIX: a blocking socket, flags per call)

    _FLAGS: Final = (getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0),)

    def write(self, blocks: Sequence[Buffer]) -> Iterable[int]:
        if len(blocks) == 1:
            return map(self._sock.send, blocks, self._FLAGS)
        return map(self._sock.sendmsg, (blocks[:MAX_VECTORS],), ((),), self._FLAGS) if blocks else ()

    def wait_writable(self, timeout: float | None) -> bool:
        return self._shut or self._poll(select.POLLOUT, timeout)

    def _wait_readable(self, timeout: float | None) -> bool:
        return self._poll(select.POLLIN, timeout)

    def _poll(self, event: int, timeout: float | None) -> bool:
        if self._shut:
            raise OSError(errno.ESHUTDOWN, "the stream was shut down")
        poller = select.poll()  # one per wait: a poll object must not be shared by threads
        poller.register(self._sock, event)
        return bool(poller.poll(None if timeout is None else min(timeout * 1000, MOST_POLLED)))

    # --- ending

    def shutdown(self) -> None:
        self._shut = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def addresses(self) -> tuple[str, str]:
        return _address(self._sock, "getsockname"), _address(self._sock, "getpeername")


class SelectTcpTransport(TcpTransport):
    """The same with a non-blocking socket and select, for systems without MSG_DONTWAIT and poll (Windows)."""

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        self._tick = IDLE_TICK
        super().__init__(sock, peer)
        self.can_take = False
        sock.setblocking(False)

    def recv(self) -> bytes | None:
        try:
            return self._sock.recv(RECV_SIZE)
        except BlockingIOError:
            if not self._wait_readable(self._tick):
                return None
        try:
            return self._sock.recv(RECV_SIZE)
        except BlockingIOError:
            return None

    def recv_within(self, timeout: float | None) -> bytes | None:
        return self.recv() if self._wait_readable(timeout) else None

    def set_tick(self, seconds: float) -> None:
        self._tick = seconds

    def write(self, blocks: Sequence[Buffer]) -> Iterable[int]:
        return map(self._sock.send, blocks[:1])

    def _wait_readable(self, timeout: float | None) -> bool:
        return self._select(True, timeout)

    def wait_writable(self, timeout: float | None) -> bool:
        return self._shut or self._select(False, timeout)

    def _select(self, reading: bool, timeout: float | None) -> bool:
        """Wait in slices: shutdown() in another thread does not wake select on every system."""
        deadline = Deadline(timeout)
        while not self._shut:
            fds = [self._sock]
            ready = select.select(fds if reading else [], [] if reading else fds, [], deadline.at_most(SELECT_SLICE))
            if ready[0] or ready[1]:
                return True
            if deadline.expired():
                return False
        raise OSError(errno.ESHUTDOWN, "the stream was shut down")


def _in_c(sock: socket.socket, name: str) -> bool:
    return isinstance(getattr(sock, name, print), type(print))


def wrap_socket(sock: socket.socket, peer: str = "") -> TcpTransport:
    """The transport class that this system can use, around a connected socket."""
    posix = hasattr(select, "poll") and hasattr(socket, "MSG_DONTWAIT") and sys.platform != "win32"
    return TcpTransport(sock, peer) if posix else SelectTcpTransport(sock, peer)


def _address(sock: socket.socket, name: str) -> str:
    try:
        found = getattr(sock, name)()
    except (OSError, AttributeError):  # closed meanwhile, or an application's socket without this method
        return ""
    return format_address(found[0], found[1]) if isinstance(found, tuple) and len(found) > 1 else str(found or "")


def format_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
