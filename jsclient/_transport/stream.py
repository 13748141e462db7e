"""The byte stream that a link reads from and writes to, over any transport. Knows nothing of NATS."""

from __future__ import annotations

import abc
import select
from collections.abc import Iterable, Sequence

import msgspec

from jsclient.durations import Deadline

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


class TlsState(msgspec.Struct, frozen=True, kw_only=True):
    """The negotiated parameters of a TLS session.

    Attributes:
        version: The protocol, such as TLSv1.3.
        cipher: The cipher suite.
        secret_bits: The number of secret bits that it uses.
        peer_certificate: The certificate of the server, as DER.
        server_name: The name that the server had to prove.
    """

    version: str
    cipher: str
    secret_bits: int
    peer_certificate: bytes
    server_name: str


class Transport(abc.ABC):
    """A byte stream. One thread at a time reads, and one at a time writes: the holder of the link's send lock."""

    peer: str = ""
    """Address of the other side, for messages: "127.0.0.1:4222"."""
    secure: bool = False
    """True when the bytes are encrypted on the way."""
    tls: TlsState | None = None
    """The negotiated TLS parameters, if they are."""
    never_blocks: bool = True
    """False for an application's socket that sends in Python code, such as a proxy socket."""
    exact: bool = False
    """True when the result of `write` is stored even if a signal handler raises. Otherwise it is unclear then how much
    was written, and the stream has to be given up."""

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
        """The received data, b"" when the peer has closed, None when none came within the tick. OSError on failure."""

    @abc.abstractmethod
    def recv_within(self, timeout: float | None) -> bytes | None:
        """Like `recv`, but waits for `timeout` seconds instead of the tick. For handshakes."""

    can_take: bool = False
    """True when `new_poller` and `take` exist: a caller that waits for a reply may then read it itself."""

    def new_poller(self) -> select.poll:
        """A poller that reports when `take` finds data; for one thread at a time."""
        raise NotImplementedError

    def take(self, permit: list[int]) -> Iterable[bytes]:
        """Yields the available data, if `permit` then holds a number. It reads during the iteration, in one call into
        C."""
        raise NotImplementedError

    @abc.abstractmethod
    def write(self, blocks: Sequence[Buffer]) -> Iterable[int]:
        """Writes once, during the iteration, and yields the number of bytes accepted: some or all of the blocks.

        Never blocks: raises BlockingIOError when the kernel accepts nothing, and OSError on failure. It is an iterator
        to let the caller store the result in the same call into C: `written.extend(stream.write(blocks))`.
        """

    @abc.abstractmethod
    def wait_writable(self, timeout: float | None) -> bool:
        """Wait until `write` can proceed or fail; False after `timeout` seconds."""

    def send(self, data: bytes, timeout: float | None) -> bool:
        """Write all of `data`, for handshakes. False after `timeout` seconds. None sets no limit, and 0 does not
        wait."""
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
        """Set the time that a silent `recv` waits before it returns None."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the stream in both directions; wakes every thread in recv or write. Idempotent, never raises."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the descriptor and send nothing: in a forked child the parent's session continues. Idempotent."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """The descriptor, -1 once closed."""

    @property
    @abc.abstractmethod
    def addresses(self) -> tuple[str, str]:
        """Our end and the other one, each as host:port; "" for an end that is not known (any more)."""
