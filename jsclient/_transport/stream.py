"""What a link reads from and writes to: a stream of bytes, whatever is beneath. Knows nothing of NATS."""

from __future__ import annotations

import abc
import select
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jsclient.durations import Deadline

if TYPE_CHECKING:
    from jsclient._transport.tls import TlsState

Buffer = bytes | memoryview


def unwritten(blocks: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """The rest of the blocks after the first `written` bytes of them."""
    rest: list[Buffer] = []
    for block in blocks:
        if written >= len(block):
            written -= len(block)
        else:
            rest.append(memoryview(block)[written:] if written else block)
            written = 0
    return rest


class Transport(abc.ABC):
    """A byte stream. One thread at a time reads, and one at a time writes: the holder of the link's send lock."""

    peer: str = ""
    """Address of the other side, for messages: "127.0.0.1:4222"."""
    secure: bool = False
    """True when the bytes are encrypted on the way."""
    tls: TlsState | None = None
    """What was agreed on, where they are."""
    never_blocks: bool = True
    """False for a socket of the application's that sends in Python code, as those for proxies do."""
    exact: bool = False
    """True when the answer of `write` is stored even if a signal handler raises. Otherwise nobody knows then what was
    written, and the stream has to be given up."""

    @property
    @abc.abstractmethod
    def unsent(self) -> int:
        """Bytes not yet handed to the kernel: taken by `write`, or produced by reading (see `needs_flush`)."""

    @property
    def needs_flush(self) -> bool:
        """True when reading has produced bytes to send (TLS key update, websocket pong): call `write([])`."""
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

    @abc.abstractmethod
    def write(self, blocks: Sequence[Buffer]) -> Iterable[int]:
        """Writes while it is iterated, once, and yields how many bytes of the blocks were taken: some or all of them.

        Never blocks: BlockingIOError when the kernel takes nothing. OSError on failure. An iterator, so that the caller
        can store the answer in the same call into C: `written.extend(stream.write(blocks))`.
        """

    @abc.abstractmethod
    def wait_writable(self, timeout: float | None) -> bool:
        """Until `write` has something to say, or False after `timeout` seconds."""

    def send(self, data: bytes, timeout: float | None) -> bool:
        """Write all of `data`, for handshakes. False after `timeout` seconds (None: no limit), with 0 at once."""
        deadline = Deadline(timeout)
        rest: Sequence[Buffer] = [data] if data else []
        while rest or self.unsent:
            try:
                for taken in self.write(rest):
                    rest = unwritten(rest, taken)
            except BlockingIOError:
                if timeout == 0 or not self.wait_writable(deadline.remaining()):
                    return False
        return True

    @abc.abstractmethod
    def set_tick(self, seconds: float) -> None:
        """How long a silent `recv` waits before it returns None."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the stream in both directions; wakes every thread in recv or write. Idempotent, never raises."""

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
