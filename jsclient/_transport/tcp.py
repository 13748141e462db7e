"""Streams over TCP, and over Unix sockets.

Reading blocks in the kernel with SO_RCVTIMEO, so that a chunk costs one release of the interpreter
lock. Writing never blocks in `send`: it hands over what the kernel takes (MSG_DONTWAIT) and waits in
`poll`, so that a deadline or Ctrl-C leaves the stream at a known byte. Hence no `settimeout` and no
`sendall` on a live socket.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from jsclient._transport.stream import Buffer, Carried, StreamFailed, Transport, permitted
from jsclient.durations import MOST_POLLED, Deadline

RECV_SIZE: Final = 112 * 1024
"""Bytes asked for in one recv. A small message costs 1.4 us at this size and 16 us at 128 KiB and more, where malloc
maps and unmaps memory for every call; streams of messages gain nothing measurable beyond 64 KiB."""

IDLE_TICK: Final = 0.5  # seconds after which a silent recv returns None
SELECT_SLICE: Final = 0.1  # seconds between two looks whether the stream was shut down, where that wakes nobody
MAX_VECTORS: Final = 512  # buffers per sendmsg; IOV_MAX is 1024 on Linux

_AT_ONCE: Final = (getattr(socket, "MSG_DONTWAIT", 0),)


class TcpTransport(Transport):
    """A connected TCP (or Unix) socket."""

    hands_over = True
    unsent = 0  # no property: asked several times per send

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        self._sock = sock
        self._tail: deque[Buffer] = deque()
        self.unsent = 0
        self._shut = False
        # False for a socket of the application's that sends or reads in Python code, as those for proxies do.
        self.resumable = _in_c(sock, "send") and _in_c(sock, "sendmsg")
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

    _FLAGS: Final = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0)
    _FLAGS_ONCE: Final = (_FLAGS,)

    def hand_over(self, buffers: Sequence[Buffer], permit: list[int]) -> Iterable[int]:
        if len(buffers) == 1:
            return map(self._sock.send, map(permitted, permit, buffers), self._FLAGS_ONCE)
        return map(self._sock.sendmsg, map(permitted, permit, (buffers[:MAX_VECTORS],)), ((),), self._FLAGS_ONCE)

    def wait_writable(self, timeout: float | None) -> bool:
        return self._shut or self._poll(select.POLLOUT, timeout)

    def carry(self, load: Carried, permit: list[int], timeout: float | None) -> bool:
        deadline: Deadline | None = None
        while permit and (rest := load.rest()):
            try:
                load.taken.extend(self.hand_over(rest, permit))
                continue
            except BlockingIOError as error:
                if error.errno is None:
                    raise  # of a signal handler
            except OSError as error:
                self._raise(error)
            if timeout == 0:
                return False
            deadline = deadline or Deadline(timeout)
            try:
                if not self.wait_writable(deadline.remaining()):
                    return False
            except OSError as error:
                self._raise(error)
        return True

    def _raise(self, error: OSError) -> NoReturn:
        """Tell what the stream has said from what a signal handler has raised on top of it."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if error.errno is None or (self.resumable and trace is not None and trace.tb_frame.f_globals is not globals()):
            raise error
        raise StreamFailed(error) from error

    def send(self, data: bytes | Sequence[bytes], timeout: float | None) -> bool:
        for buffer in [data] if isinstance(data, bytes) else data:
            if buffer:
                self._tail.append(buffer)
                self.unsent += len(buffer)
        deadline: Deadline | None = None
        while self.unsent:
            try:
                self._drop(self._sock.send(self._tail[0], self._FLAGS))
                continue
            except BlockingIOError as error:
                if error.errno is None:
                    raise  # of a signal handler
            if timeout == 0:
                return False
            deadline = deadline or Deadline(timeout)
            if not self.wait_writable(deadline.remaining()):
                return False
        return True

    def _drop(self, sent: int) -> None:
        """Take the `sent` bytes that the kernel has accepted off the head of the tail."""
        self.unsent -= sent
        head = self._tail[0]
        if len(head) > sent:
            self._tail[0] = memoryview(head)[sent:]
        else:
            self._tail.popleft()

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

    def hand_over(self, buffers: Sequence[Buffer], permit: list[int]) -> Iterable[int]:
        return map(self._sock.send, map(permitted, permit, buffers[:1]))

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
    except (OSError, AttributeError):  # closed meanwhile, or a socket of the application's that has no such method
        return ""
    return format_address(found[0], found[1]) if isinstance(found, tuple) and len(found) > 1 else str(found or "")


def format_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
