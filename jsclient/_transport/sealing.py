"""What TLS and websockets have in common: they change the bytes of a stream on their way.

A signal handler may run between any two steps of the Python code here. It may raise, and it may send and wait over the
same connection itself, on top of the interrupted code; another thread may take over where that does not go on. So what
a step has done stands in a load, in the session, or in `_sealed`. Each step is one call into C, and is done only while
the permit lasts that the sender has brought (see `jsclient._engine.sending`): interrupted code does nothing any more
once its permit has ended.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Sequence

from jsclient._transport.stream import ALWAYS, Buffer, Carried, Load, StreamFailed, Transport, permitted
from jsclient.durations import Deadline


class Sealed(Load):
    """Records or frames that are not out; empty until something is made."""

    __slots__ = ()
    blocks: list[Buffer]

    def __init__(self) -> None:
        self.blocks = []
        self.taken = []


class SealingTransport(Transport):
    """A stream around another one. One thread at a time reads; a sender holds the send lock of the link."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._plain = Load()  # of `send`: accepted, nothing was made of it yet
        self._sealed = Sealed()
        self.peer = inner.peer

    @abc.abstractmethod
    def _seal(self, load: Carried, blocks: list[Buffer], permit: list[int]) -> bool:
        """Put into `blocks` what reading has left to send, and what is made of the next bytes of the load.

        It must be out before anything else is made: what is sealed cannot be taken back. False when there was nothing.
        """

    def send(self, data: bytes | Sequence[bytes], timeout: float | None) -> bool:
        joined = data if isinstance(data, bytes) else b"".join(data)
        if joined:
            self._plain = Load([*self._plain.rest(), joined])
        try:
            return self.carry(self._plain, ALWAYS, timeout)
        except StreamFailed as failed:
            raise failed.error from None

    def carry(self, load: Carried, permit: list[int], timeout: float | None) -> bool:
        deadline = Deadline(timeout) if timeout else None  # senders mostly come without the time to wait
        while permit:
            sealed = self._sealed
            if sealed.blocks:
                if not self._inner.carry(sealed, permit, timeout if deadline is None else deadline.remaining()):
                    return False
                sealed = Sealed()  # at once: the next records get the memory of these, which the processor has at hand
                deque(map(setattr, (self,), ("_sealed",), map(permitted, permit, (sealed,))), 0)
            if not self._seal(load, sealed.blocks, permit):
                return True
        return True

    def step_aside(self) -> None:
        self._inner.step_aside()

    def pass_on(self, thread: int) -> None:
        self._inner.pass_on(thread)

    @property
    def unsent(self) -> int:
        unsent, plain, sealed = self._inner.unsent, self._plain, self._sealed
        if plain.blocks or sealed.blocks:  # seldom, and every write asks
            unsent += plain.unsent + sealed.unsent
        return unsent

    def set_tick(self, seconds: float) -> None:
        self._inner.set_tick(seconds)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def close(self) -> None:
        self._inner.close()  # no goodbye: in a forked child it would end the parent's session

    def fileno(self) -> int:
        return self._inner.fileno()
