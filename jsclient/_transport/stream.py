"""What a link reads from and writes to: a stream of bytes, whatever is beneath. Knows nothing of NATS.

Sending can be interrupted by a signal handler at any point. So each step is driven by a *permit*, a list that holds a
number as long as the thread may go on, and what the stream has taken stands where others find it; see
`jsclient._engine.sending`.
"""

from __future__ import annotations

import abc
import select
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from jsclient._transport.tls import TlsState

ALWAYS: Final = [0]
"""A permit that lasts."""

permitted: Final[Callable[..., Any]] = {}.get
"""`map(permitted, permit, items)` yields the items while the permit lasts, all in C: `get` of an empty dict returns its
second argument."""

Buffer = bytes | memoryview


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

    def step_aside(self) -> None:  # noqa: B027 # most have no locks
        """Called on top of a send of the same thread, the permit of which has ended: gives up the locks of that send,
        because what waits there may need others to read."""

    def pass_on(self, thread: int) -> None:  # noqa: B027
        """Called by others once a sender without a permit was seen beneath other code: puts others in the place
        of the locks that it has."""

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
