"""Sending, interrupted at every point at which CPython may run a signal handler: no frame is torn, lost or doubled.

Signal handlers run where the interpreter looks for them: at the start of a function, at a jump back, and after a call.
A trace function finds these points in the modules that send, and strikes at each of them in turn.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.sockets import ProxySocket

from jsclient import errors
from jsclient._connection import outbox, sender
from jsclient._connection.outbox import Outbox
from jsclient._connection.sender import AT_A_TIME, BULK, Batch, LinkFrame
from jsclient._transport import stream, tcp
from jsclient._transport.stream import Buffer
from jsclient._transport.tcp import TcpTransport
from jsclient.durations import Deadline
from jsclient.protocol.frames import LARGE_PAYLOAD, Frame, LargeFrame

FILES = {module.__file__ for module in (outbox, sender, stream, tcp)}

#: Other versions tell a trace function of other points; tests/live/test_torture.py strikes there with real signals.
traced = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the points are those of 3.11")


@functools.cache
def points(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which a signal handler may run."""
    found, behind = set(), False
    for instruction in dis.get_instructions(code):
        if behind:
            found.add(instruction.offset)
        behind = instruction.opname.startswith(("CALL", "JUMP_BACKWARD", "RESUME", "PRECALL"))
    return frozenset(found)


class Strike:
    """Runs `handler` at the `number`-th point of what is traced."""

    files: AbstractSet[str | None] = FILES

    def __init__(self, number: int, handler: Callable[[], None]) -> None:
        self.left, self.handler, self.done = number, handler, False

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files or self.done:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in points(frame.f_code):
            self.left -= 1
            if self.left == 0:
                self.done = True
                sys.settrace(None)
                frame.f_trace_opcodes = False
                self.handler()
        return self.trace

    def run(self, call: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            call()
        finally:
            sys.settrace(before)


class Line:
    """An outbox over a real socket, with a peer that reads when asked."""

    def __init__(self, proxy: bool = False) -> None:
        ours, self.peer = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.peer.setblocking(False)
        self.transport = TcpTransport(ProxySocket(fileno=ours.detach()) if proxy else ours)
        self.broken: list[BaseException] = []
        self.outbox = Outbox(kick=lambda: None, broken=lambda _, error: self.broken.append(error), limit=1 << 20)
        self.outbox.attach(self.transport, [])
        self.got = bytearray()
        self.links = 0  # that were replaced

    def read(self) -> None:
        try:
            while chunk := self.peer.recv(1 << 20):
                self.got += chunk
        except BlockingIOError:
            pass

    def finish(self) -> bytes:
        """Send the rest, from another thread: none of the locks may be left behind."""

        def drain() -> None:
            while self.outbox.frames or self.outbox.unsent:
                self.outbox.drain()
                self.read()

        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), "it hangs"
        self.read()
        return bytes(self.got)

    def replace(self) -> None:
        """As the session ends a link that is broken, and brings another."""
        self.transport.shutdown()
        self.outbox.detach()
        self.read()
        self.got = bytearray(self.got[: self.got.rfind(b";") + 1])  # a torn frame ends with its link
        self.transport.close()
        self.peer.close()
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.transport = TcpTransport(ours)
        self.outbox.attach(self.transport, [])
        self.links += 1

    def close(self) -> None:
        self.transport.close()
        self.peer.close()


def is_free(box: Outbox) -> bool:
    return not box.lock._is_owned()


SCENES: dict[str, list[Frame]] = {
    "one": [b"one;"],
    "few": [b"one;", b"two;", b"three;"],
    "many": [b"%d;" % number for number in range(300)],
    "bulk": [bytes([65 + number % 20]) * 1000 + b";" for number in range(250)],
    "large": [
        b"small;",
        LargeFrame((b"line;", b"L" * 3 * LARGE_PAYLOAD, b"!;")),
        b"behind;",
        *([b"x" * 40_000 + b";"] * 3),
    ],
}

EACH_SCENE = [pytest.param(scene, marks=pytest.mark.slow if scene == "bulk" else ()) for scene in SCENES]
"""The short tier leaves out the one that takes longest; "large" takes the same ways."""


def whole(frames: list[Frame]) -> bytes:
    return b"".join(b"".join(frame.parts) if isinstance(frame, LargeFrame) else frame for frame in frames)


def strikes(scene: str, handler: Callable[[Line], None]) -> Iterator[Line]:
    """One line for each point: the scene was sent, and the handler came in between."""
    for number in range(1, 100_000):
        line = Line()
        line.outbox.frames.extend(SCENES[scene][:-1])
        strike = Strike(number, lambda line=line: handler(line))  # type: ignore[misc]
        try:
            strike.run(lambda line=line: line.outbox.enqueue_now(SCENES[scene][-1]))  # type: ignore[misc]
        except (KeyboardInterrupt, OSError, ValueError, IndexError, RuntimeError):
            pass
        if strike.done:
            yield line
        line.close()
        if not strike.done:
            assert number > 20, "nothing was traced"
            return


def raises(error: type[BaseException]) -> Callable[[Line], None]:
    def handler(_: Line) -> None:
        if error is errors.ConnectionLost:
            other = Outbox(kick=lambda: None, broken=lambda *_: None, limit=1)
            other.enqueue(LinkFrame(b"an OSError, from code of ours, of another connection"))
        raise error("a handler's own")

    return handler


@traced
@pytest.mark.parametrize(
    ("scene", "error"),
    [
        *((scene, KeyboardInterrupt) for scene in SCENES),
        *(("few", error) for error in (TimeoutError, BlockingIOError, ValueError, IndexError, RuntimeError)),
        ("few", errors.ConnectionLost),
    ],
)
def test_an_exception_of_a_handler_loses_neither_frame_nor_link(scene: str, error: type[BaseException]) -> None:
    last = SCENES[scene][-1]
    for line in strikes(scene, raises(error)):
        got, expected = line.finish(), whole(SCENES[scene])
        # The frame of the call itself may not have been queued yet; everything else has.
        assert got in (expected, expected[: -len(last)])
        assert not line.broken
        assert line.outbox.unsent == 0
        assert is_free(line.outbox)


@traced
@pytest.mark.parametrize("scene", EACH_SCENE)
def test_what_a_handler_posts_is_sent_when_the_interrupted_write_is_over(scene: str) -> None:
    for line in strikes(scene, lambda line: line.outbox.enqueue(b"<handler>")):
        if scene in ("one", "few", "many"):  # the kernel has room for these
            line.outbox.flush()
            line.read()
            assert b"<handler>" in line.got
        got = line.finish()
        assert got.count(b"<handler>") == 1
        assert got.replace(b"<handler>", b"") == whole(SCENES[scene])
        assert not line.broken


@traced
@pytest.mark.parametrize("scene", EACH_SCENE)
def test_a_handler_that_waits_is_refused_on_top_of_a_write_and_served_elsewhere(scene: str) -> None:
    """At once: either the frame is out as far as the kernel takes it, or nothing of it ever is."""
    refused = served = 0

    def handler(line: Line) -> None:
        nonlocal refused, served
        try:
            line.outbox.enqueue_now(LinkFrame(b"<handler>"))
        except errors.Reentered:
            refused += 1
            return
        served += 1
        for _ in range(2000):
            line.read()
            if b"<handler>" in line.got:
                return
            line.outbox.drain()
        pytest.fail("the frame of the handler is stuck")

    for line in strikes(scene, handler):
        before = served
        got = line.finish()
        assert got.count(b"<handler>") == (served == before and b"<handler>" in got)
        assert got.replace(b"<handler>", b"") == whole(SCENES[scene])
        assert not line.broken
    assert refused > 5
    assert served > 5


@traced
@pytest.mark.parametrize("scene", ["few", "large"])
def test_a_handler_that_holds_up_the_writing_costs_the_link_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, scene: str
) -> None:
    """It waits for another thread, which cannot write. The next link has a lock of its own."""
    monkeypatch.setattr(outbox, "STUCK", 0.0)
    monkeypatch.setattr(outbox, "SETTLE", 0.01)
    lost = 0

    def handler(line: Line) -> None:
        nonlocal lost

        def other() -> None:
            line.outbox.enqueue_now(b"<other>")
            for _ in range(2000):
                line.read()
                if b"<other>" in line.got:
                    return
                line.outbox.look()  # these two are the flusher's
                line.outbox.drain()
                if len(line.broken) > line.links:
                    line.replace()

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(10)
        assert b"<other>" in line.got, "the frame of the other thread is stuck"
        lost += bool(line.broken)

    for line in strikes(scene, handler):
        got = line.finish()
        assert got.count(b"<other>") <= 1
        left = got.replace(b"<other>", b"")
        if not line.broken:
            assert left == whole(SCENES[scene])
        elif scene == "few":
            parts = left.split(b";")
            assert parts.pop() == b"", "no torn frame"
            assert [part + b";" for part in parts] == [
                frame for frame in SCENES[scene] if isinstance(frame, bytes) and frame[:-1] in parts
            ]
    assert lost > 5


def test_who_waits_for_the_kernel_does_not_count_as_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "STUCK", 0.1)
    line = Line()
    line.outbox.frames.extend([b"x" * 100_000] * 3)
    thread = threading.Thread(target=line.outbox.drain, args=(Deadline(20),), daemon=True)
    thread.start()
    end = Deadline(10)
    while not line.outbox.unsent and not end.expired():
        pass
    looked = Deadline(0.25)
    while not looked.expired():
        line.outbox.look()
    while thread.is_alive() and not end.expired():
        line.read()
    line.read()
    assert not line.broken
    assert bytes(line.got) == b"x" * 300_000
    line.close()


@traced
def test_after_a_loss_the_frames_of_an_interrupted_write_are_told_apart() -> None:
    """Each frame is out, or kept for the next link, or (one that is partly out) neither; never both."""
    frames: list[Frame] = [b"%04d" % number + b"x" * 3000 + b";" for number in range(100)]
    SCENES["loss"] = frames
    try:
        for line in strikes("loss", raises(KeyboardInterrupt)):
            line.transport.shutdown()
            assert line.outbox.detach() == []
            line.read()
            kept = [frame for frame in line.outbox.frames if frame != frames[-1]]
            out = [frame + b";" for frame in bytes(line.got).split(b";")[:-1]]
            torn = len(frames) - 1 - len(kept) - len([frame for frame in out if frame != frames[-1]])
            assert 0 <= torn <= 1
            assert [*out, *frames[len(out) + torn : len(frames) - 1]] == [*out, *kept]
    finally:
        del SCENES["loss"]


def test_a_socket_that_sends_in_python_code_is_given_up_when_interrupted() -> None:
    line = Line(proxy=True)

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    line.transport._sock.send = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        line.outbox.enqueue_now(b"x;")
    assert line.broken
    line.transport.shutdown()
    assert line.outbox.detach() == []
    assert not line.outbox.frames, "it may be out: a frame that is sent twice is worse than a lost one"
    line.close()


def test_a_handler_on_top_of_a_socket_in_python_code_leaves_the_stream_alone() -> None:
    line = Line(proxy=True)
    sock: Any = line.transport._sock
    real = sock.send

    def send(*arguments: Any) -> Any:
        sock.send = real
        line.outbox.enqueue(b"2;")
        return real(*arguments)

    sock.send = send
    line.outbox.enqueue_now(b"1;")
    assert line.finish() == b"1;2;"
    line.close()


@pytest.mark.parametrize("size", [1000, LARGE_PAYLOAD + 1])
def test_a_batch_is_joined_up_to_its_limit(size: int) -> None:
    line = Line()
    line.outbox.frames.extend([bytes(size)] * 500)
    line.outbox.size = 500 * size
    sizes: list[int] = []
    real = line.transport.write

    def write(blocks: Sequence[Buffer]) -> Iterable[int]:
        sizes.append(sum(map(len, blocks)))
        return real(blocks)

    line.transport.write = write  # type: ignore[method-assign]
    line.finish()
    assert max(sizes) < BULK + AT_A_TIME * size
    line.close()


def test_small_frames_are_joined_and_large_ones_left_alone() -> None:
    large = b"L" * 20_000

    def blocks(*frames: Frame) -> Any:
        batch = Batch()
        batch.frames.extend(frames)
        batch.form()
        return batch.blocks

    assert blocks(b"a", b"b", b"c", b"d") == [b"abcd"]
    assert blocks(b"a", large, b"b") == [b"a", large, b"b"], "few are not worth it"
    gathered = blocks(b"a", b"b", large, LargeFrame((b"line", large, b"end")), b"c")
    assert gathered == [b"ab", large, b"line", large, b"endc"]
    assert gathered[1] is large
    assert blocks(large)[0] is large


def test_a_handler_that_cannot_be_called_is_no_large_frame() -> None:
    """Its TypeError has no frame of its own, and was taken for that of the join."""
    batch, raised = Batch(), 0
    batch.frames = [b"x" * 128] * 850
    handler = signal.signal(signal.SIGALRM, lambda: None)  # type: ignore[arg-type, misc]
    try:
        for _ in range(20):
            with contextlib.suppress(TypeError):
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                for _ in range(100_000):
                    batch.form()
                continue
            raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert raised == 20


def test_a_full_queue_makes_callers_wait_within_their_time() -> None:
    line = Line()
    line.outbox.write_timeout = 0.05
    accepted = 0
    with pytest.raises(errors.BufferFull, match="Nothing of this message"):
        while True:
            line.outbox.enqueue(b"%08d" % accepted + b"x" * 10_000 + b";")
            accepted += 1
    with pytest.raises(errors.BufferFull):
        while True:
            line.outbox.enqueue_now(LinkFrame(b"x" * 5000 + b";"), deadline=Deadline(0.05))
            accepted += 1
    with pytest.raises(errors.BufferFull):
        line.outbox.enqueue_now(LinkFrame(b"request;"), deadline=Deadline(0.05))
    got = line.finish()
    assert got.count(b";") == accepted
    assert b"request" not in got
    line.close()


def test_an_unsent_frame_can_be_withdrawn() -> None:
    line = Line()
    line.outbox.enqueue_now(b"x" * 10_000_000)
    line.outbox.enqueue_now(request := LinkFrame(b"request;"))
    assert line.outbox.withdraw(request)
    assert not line.outbox.withdraw(request)
    assert b"request" not in line.finish()
    line.close()


def test_a_frame_that_is_not_begun_is_withdrawn_from_the_batch_and_one_that_is_begun_is_not() -> None:
    """A kernel that takes nothing more has a batch waiting before it: what is in there is not sent yet."""
    line = Line()
    frames: list[Frame] = [b"%d" % number + b"x" * 50_000 + b";" for number in range(4)]
    line.outbox.frames.extend(frames)
    assert not line.outbox.drain()
    assert not line.outbox.frames, "all of them have left the queue"
    taken = line.outbox.bytes_out
    assert not line.outbox.withdraw(frames[0]), "some of it is out"
    assert line.outbox.withdraw(frames[2])
    assert not line.outbox.withdraw(frames[2])
    assert line.outbox.bytes_out == taken - len(frames[2])
    assert line.finish() == whole([*frames[:2], frames[3]])
    assert line.outbox.unsent == 0
    line.close()


@pytest.mark.parametrize("frames", [1, 3, 200])
def test_what_is_being_sent_does_not_count_as_queued(frames: int) -> None:
    """Sending takes long beside busy threads, and each of their publishes would take the way of a full queue."""
    line = Line()
    real, sizes = line.transport.write, []

    def write(blocks: Sequence[Buffer]) -> Iterable[int]:
        sizes.append(line.outbox.size)
        return real(blocks)

    line.transport.write = write  # type: ignore[method-assign]
    for _ in range(frames - 1):
        line.outbox.frames.append(b"x;")
        line.outbox.size += 2
    line.outbox.enqueue_now(b"x;")
    assert sizes == [0]
    line.finish()
    line.close()
