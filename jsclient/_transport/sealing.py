"""The common base of TLS and websockets, which both change the bytes of a stream on their way."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence

from jsclient._transport.stream import Buffer, Transport, unwritten


def head_of(blocks: Sequence[Buffer], size: int) -> Buffer:
    """The first bytes of the blocks, `size` at most, as one buffer."""
    parts: list[Buffer] = []
    for block in blocks:
        part = memoryview(block)[:size] if len(block) > size else block
        parts.append(part)
        size -= len(part)
        if not size:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


class SealingTransport(Transport):
    """A stream around another one. A write that a signal handler interrupts leaves it in an unknown state."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._sealed: Sequence[Buffer] = []  # records or frames that the inner stream has not accepted
        self.never_blocks = inner.never_blocks
        self.peer = inner.peer

    @abc.abstractmethod
    def _seal(self, blocks: Sequence[Buffer]) -> tuple[int, list[bytes]]:
        """The number of bytes accepted from the blocks, and the data to send: their sealed form, and output of the
        reader."""

    def write(self, blocks: Sequence[Buffer]) -> Iterable[int]:
        self._push()
        taken, sealed = self._seal(blocks)
        if sealed:
            self._sealed = sealed
            try:
                self._push()
            except BlockingIOError as error:
                if error.errno is None:
                    raise  # A signal handler has raised it, so how much was written is unknown.
                # Otherwise the sealed data is ours now, and the next call continues.
        yield taken

    def _push(self) -> None:
        while self._sealed or self._inner.unsent:
            for taken in self._inner.write(self._sealed):
                self._sealed = unwritten(self._sealed, taken)

    @property
    def unsent(self) -> int:
        return sum(map(len, self._sealed)) + self._inner.unsent

    def wait_writable(self, timeout: float | None) -> bool:
        return self._inner.wait_writable(timeout)

    def set_tick(self, seconds: float) -> None:
        self._inner.set_tick(seconds)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def close(self) -> None:
        self._inner.close()  # no goodbye: in a forked child it would end the parent's session

    def fileno(self) -> int:
        return self._inner.fileno()

    @property
    def addresses(self) -> tuple[str, str]:
        return self._inner.addresses
