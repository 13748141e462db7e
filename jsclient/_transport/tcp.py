"""Byte streams over TCP. What a link reads and writes through; knows nothing of NATS.

Reading blocks in the kernel with SO_RCVTIMEO, so that a chunk costs one release of the interpreter
lock. Writing never blocks in `send`: it hands over what the kernel takes (MSG_DONTWAIT) and waits in
`poll`, so that a deadline or Ctrl-C leaves the stream at a known byte. Hence no `settimeout` and no
`sendall` on a live socket.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import os
import random
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from jsclient._transport import resolving
from jsclient.durations import Deadline

if TYPE_CHECKING:
    from jsclient._transport.tls import TlsState

RECV_SIZE: Final = 112 * 1024
"""Bytes asked for in one recv. A small message costs 1.4 us at this size and 16 us at 128 KiB and more, where malloc
maps and unmaps memory for every call; streams of messages gain nothing measurable beyond 64 KiB."""

IDLE_TICK: Final = 0.5  # seconds after which a silent recv returns None
CONNECT_SLICE: Final = 0.1  # seconds between two looks at `abandoned` while a connection is being made
MAX_VECTORS: Final = 512  # buffers per sendmsg; IOV_MAX is 1024 on Linux

ALWAYS: Final = [0]
"""A permit that lasts."""

_AT_ONCE: Final = (getattr(socket, "MSG_DONTWAIT", 0),)

permitted: Final[Callable[..., Any]] = {}.get
"""`map(permitted, permit, items)` yields the items while the permit lasts, all in C: `get` of an empty dict returns its
second argument."""

Buffer = bytes | memoryview
SocketFactory = Callable[[str, int, float | None], socket.socket]


class StreamFailed(Exception):
    """Sending has failed for good; `error` says why. Whatever else is raised comes from a signal handler."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Load:
    """Blocks on their way through a transport, and how many bytes of them it has taken, as it answered."""

    __slots__ = ("blocks", "taken")

    def __init__(self, blocks: Iterable[Buffer] = ()) -> None:
        self.blocks: Sequence[Buffer] | None = list(blocks)
        self.taken: list[int] = []

    @property
    def unsent(self) -> int:
        return sum(map(len, self.blocks)) - sum(self.taken) if self.blocks else 0

    def rest(self) -> Sequence[Buffer]:
        """The blocks that the transport has not taken."""
        taken, blocks = sum(self.taken), self.blocks or ()
        return untaken(blocks, taken) if taken < sum(map(len, blocks)) else ()


def untaken(blocks: Sequence[Buffer], taken: int) -> Sequence[Buffer]:
    """What is left of blocks of which so many bytes are taken."""
    if not taken:
        return blocks
    rest: list[Buffer] = []
    for block in blocks:
        if taken >= len(block):
            taken -= len(block)
        else:
            rest.append(memoryview(block)[taken:] if taken else block)
            taken = 0
    return rest


class Carried(Protocol):
    """What `carry` takes: a `Load`, or what looks like one."""

    taken: list[int]

    def rest(self) -> Sequence[Buffer]: ...


class Transport(abc.ABC):
    """A byte stream. One thread at a time reads; a sender holds the send lock of the link."""

    peer: str = ""
    """Address of the other side, for messages: "127.0.0.1:4222"."""
    secure: bool = False
    """True when the bytes are encrypted on the way."""
    tls: TlsState | None = None
    """What was agreed on, where they are."""
    hands_over: bool = False
    """True when `hand_over` and `wait_writable` exist: bytes go out as they are, and the caller keeps the rest."""
    resumable: bool = False
    """True when sending may be interrupted at any point, and others may then send: each step is one call into C, after
    which it is known what was sent, and the interrupted code does no further one when its permit has ended."""

    @property
    @abc.abstractmethod
    def unsent(self) -> int:
        """Bytes not yet handed to the kernel: accepted by `send`, or produced by reading (see `needs_flush`)."""

    @property
    def needs_flush(self) -> bool:
        """True when reading has produced bytes to send (TLS key update, websocket pong): call `send(b"", ...)`."""
        return False

    @abc.abstractmethod
    def recv(self) -> bytes | None:
        """What has come, b"" when the peer has closed, None when nothing came within the tick. OSError on failure."""

    @abc.abstractmethod
    def recv_within(self, timeout: float | None) -> bytes | None:
        """Like `recv`, but waits for `timeout` seconds instead of the tick. For handshakes."""

    can_take: bool = False
    """True when `new_poller` and `take` exist: a caller that waits for a reply may then read it itself."""

    def new_poller(self) -> select.poll:
        """Tells when `take` finds something; for one thread at a time."""
        raise NotImplementedError

    def take(self, permit: list[int]) -> Iterable[bytes]:
        """Yields what is there, read while it is iterated and in one call into C, if `permit` then holds a number."""
        raise NotImplementedError

    def hand_over(self, buffers: Sequence[Buffer], permit: list[int]) -> Iterable[int]:
        """Sends what the kernel takes of the buffers while it is iterated, if `permit` then holds a number, and yields
        how many bytes that were. Never blocks: BlockingIOError when the kernel takes none. OSError on failure."""
        raise NotImplementedError

    def wait_writable(self, timeout: float) -> bool:
        """Until `hand_over` has something to say, or False after `timeout` seconds."""
        raise NotImplementedError

    @abc.abstractmethod
    def carry(self, load: Carried, permit: list[int], timeout: float | None) -> bool:
        """Send the rest of a load; the caller holds the send lock. True when all of it was handed to the kernel, or
        the permit has ended.

        False when `timeout` (as in `send`) expired; call it again with the same load. Raises StreamFailed, and what
        signal handlers raise: then the same holds if the transport is `resumable`, else the stream must be given up.
        """

    @abc.abstractmethod
    def send(self, data: bytes | Sequence[bytes], timeout: float | None) -> bool:
        """Send what an earlier call left behind, then `data`; the caller holds the send lock.

        True when all of it was handed to the kernel. False when `timeout` (seconds; None: no limit,
        0: never block) expired: the rest is kept and goes out first next time. OSError on failure.
        After any other exception (Ctrl-C) it is unknown how much was sent: give the stream up.
        """

    @abc.abstractmethod
    def set_tick(self, seconds: float) -> None:
        """How long a silent `recv` waits before it returns None."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the stream in both directions; wakes every thread in recv or send. Idempotent, never raises."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the descriptor and send nothing: in a forked child the parent's session goes on. Idempotent."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """The descriptor, -1 once closed."""

    @property
    @abc.abstractmethod
    def addresses(self) -> tuple[str, str]:
        """Our end and the other one, each as host:port; "" for what cannot be known (any more)."""


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
        return bool(poller.poll(None if timeout is None else timeout * 1000))

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
            ready = select.select(fds if reading else [], [] if reading else fds, [], deadline.at_most(CONNECT_SLICE))
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


# --- connecting -----------------------------------------------------------------------------------------


def connect_tcp(
    host: str,
    port: int,
    *,
    timeout: float | None,
    local_address: str | tuple[str, int] | None = None,
    socket_factory: SocketFactory | None = None,
    abandoned: threading.Event | None = None,
    randomize: bool = False,
) -> TcpTransport:
    """Connect to the first address of `host` that answers.

    Every address gets its share of what is left of `timeout` (seconds, name resolution included), in the order of the
    resolver or, with `randomize`, in any. `socket_factory(host, port, timeout)` replaces all of it and returns a
    connected socket. Setting `abandoned` from another thread ends the
    attempt within 0.1 s. Raises OSError with the reason of each address.
    """
    deadline = Deadline(timeout)
    if socket_factory is not None:
        return wrap_socket(socket_factory(host, port, timeout), format_address(host, port))
    addresses = resolving.addresses(host, port, deadline, abandoned)
    if randomize:
        random.shuffle(addresses)
    failures: list[tuple[str, OSError]] = []
    for index, (family, kind, proto, _, address) in enumerate(addresses):
        left = deadline.remaining()
        share = None if left is None else left / (len(addresses) - index)
        peer = format_address(str(address[0]), int(address[1]))
        try:
            sock = _connect_one(family, kind, proto, address, share, local_address, abandoned)
        except OSError as error:
            failures.append((peer, error))
            if abandoned is not None and abandoned.is_set():
                break
        else:
            return wrap_socket(sock, peer)
    raise _connect_error(host, port, failures)


def _connect_error(host: str, port: int, failures: list[tuple[str, OSError]]) -> OSError:
    if not failures:
        return OSError(errno.EADDRNOTAVAIL, f"{format_address(host, port)} has no address")
    text = "; ".join(f"{peer}: {error.strerror or error}" for peer, error in failures)
    number = failures[-1][1].errno
    return OSError(number, text) if number is not None else OSError(text)


def _connect_one(
    family: int,
    kind: int,
    proto: int,
    address: tuple[object, ...],
    timeout: float | None,
    local_address: str | tuple[str, int] | None,
    abandoned: threading.Event | None,
) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        if local_address is not None:
            sock.bind((local_address, 0) if isinstance(local_address, str) else local_address)
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
        _wait_connected(sock, Deadline(timeout), abandoned)
        if sock.getsockname() == sock.getpeername():
            # With the server down, a port of the ephemeral range can connect to itself: nobody is there.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except BaseException:
        sock.close()
        raise
    return sock


def _wait_connected(sock: socket.socket, deadline: Deadline, abandoned: threading.Event | None) -> None:
    while True:
        if abandoned is not None and abandoned.is_set():
            raise OSError(errno.ECANCELED, "the attempt was given up")
        if _writable(sock, deadline.at_most(CONNECT_SLICE)):
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            return
        if deadline.expired():
            raise TimeoutError(errno.ETIMEDOUT, "no answer in time")


def _writable(sock: socket.socket, timeout: float) -> bool:
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(timeout * 1000))
    _, writable, failed = select.select([], [sock], [sock], timeout)  # Windows reports failures as exceptional
    return bool(writable or failed)


def _address(sock: socket.socket, name: str) -> str:
    try:
        found = getattr(sock, name)()
    except (OSError, AttributeError):  # closed meanwhile, or a socket of the application's that has no such method
        return ""
    return format_address(found[0], found[1]) if isinstance(found, tuple) and len(found) > 1 else str(found or "")


def format_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
