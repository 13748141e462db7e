"""The send path: order, back-pressure, what is kept over a link loss, Ctrl-C at its worst moments."""

from __future__ import annotations

import errno
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from jsclient import errors
from jsclient._connection.outbox import (
    AT_ONCE,
    COALESCE,
    FRAME_OVERHEAD,
    HIGH_WATER,
    Outbox,
)
from jsclient._connection.sender import LargeLinkFrame, LinkFrame
from jsclient._transport.tcp import TcpTransport
from jsclient.durations import Deadline
from jsclient.protocol.frames import LARGE_PAYLOAD, Frame, LargeFrame
from jsclient.testing import wait_until


class Wire:
    """A transport that takes `room` bytes and then nothing (None: everything)."""

    exact = False
    never_blocks = True
    needs_flush = False
    unsent = 0

    def __init__(self, room: int | None = None) -> None:
        self.taken = bytearray()
        self.room = room
        self.writes = 0
        self.before: Callable[[], None] | None = None
        self.more = threading.Event()

    def write(self, blocks: Sequence[bytes]) -> Iterator[int]:
        if self.before is not None:
            self.before()
        self.writes += 1
        data = b"".join(blocks)
        count = len(data) if self.room is None else min(self.room, len(data))
        if data and not count:
            raise BlockingIOError(errno.EAGAIN, "full")
        if self.room is not None:
            self.room -= count
        self.taken += data[:count]
        yield count

    def wait_writable(self, timeout: float | None) -> bool:
        return self.more.wait(timeout)


class OpaqueWire:
    """One that takes everything and keeps what it cannot send, as TLS does."""

    exact = False
    never_blocks = True
    needs_flush = False
    unsent = 0

    def __init__(self) -> None:
        self.taken = bytearray()

    def write(self, blocks: Sequence[bytes]) -> Iterator[int]:
        data = b"".join(blocks)
        if not data and self.unsent:
            raise BlockingIOError(errno.EAGAIN, "full")
        self.taken += data
        self.unsent = len(self.taken)
        yield len(data)

    def wait_writable(self, timeout: float | None) -> bool:
        return False


W = TypeVar("W", Wire, OpaqueWire, TcpTransport)


class Rig:
    def __init__(self, **options: Any) -> None:
        self.kicks = 0
        self.broken: list[BaseException] = []
        options = {"limit": 10_000, "write_timeout": 0.05, **options}
        self.outbox = Outbox(kick=self.kick, broken=lambda _, error: self.broken.append(error), **options)

    def kick(self) -> None:
        self.kicks += 1

    def online(self, wire: W, *first: bytes) -> W:
        self.outbox.attach(wire, list(first))  # type: ignore[arg-type]
        return wire


def test_small_frames_are_coalesced_until_the_limit() -> None:
    rig = Rig()
    wire = rig.online(Wire())
    for _ in range(10):
        rig.outbox.enqueue(b"x" * 100)
    assert wire.writes == 0
    assert rig.kicks == 10
    rig.outbox.flush()
    assert wire.writes == 1
    assert len(wire.taken) == 1000
    rig.outbox.enqueue(b"y" * COALESCE)
    assert wire.writes == 2, "the coalescing limit sends at once"


def test_post_now_sends_with_what_was_queued_before() -> None:
    rig = Rig()
    wire = rig.online(Wire())
    rig.outbox.enqueue(b"1")
    rig.outbox.enqueue_now(b"2")
    assert bytes(wire.taken) == b"12"
    assert not rig.outbox.frames


def test_the_subscriptions_leave_before_what_was_kept() -> None:
    rig = Rig()
    rig.outbox.enqueue(b"kept 1;")
    rig.outbox.enqueue(b"kept 2;")
    wire = rig.online(Wire(), b"SUB;")
    rig.outbox.flush()
    assert bytes(wire.taken) == b"SUB;kept 1;kept 2;"


def test_offline_counts_frame_and_overhead_and_refuses_at_the_limit() -> None:
    rig = Rig(limit=10 * (100 + FRAME_OVERHEAD))
    for _ in range(10):
        rig.outbox.enqueue(b"x" * 100)
    with pytest.raises(errors.BufferFull, match="pending_buffer"):
        rig.outbox.enqueue(b"")
    rig.online(Wire())
    rig.outbox.flush()
    rig.outbox.detach()
    rig.outbox.enqueue(b"x" * 100)


def test_limit_zero_refuses_at_once() -> None:
    with pytest.raises(errors.BufferFull):
        Rig(limit=0).outbox.enqueue(b"x")


def test_frames_that_are_not_kept_are_refused_offline() -> None:
    with pytest.raises(errors.ConnectionLost, match="Nothing of it was sent"):
        Rig().outbox.enqueue(LinkFrame(b"request"))


def test_a_publisher_may_wait_for_room() -> None:
    rig = Rig(limit=200, block_when_full=10)
    rig.outbox.enqueue(b"x" * 100)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def enqueue() -> None:
        rig.outbox.enqueue(b"y" * 100)
        done.put("enqueued")

    threading.Thread(target=enqueue, daemon=True).start()
    wait_until(lambda: rig.outbox.online.awaited)
    wire = rig.online(Wire())
    assert done.get(timeout=2) == "enqueued"
    rig.outbox.flush()
    assert bytes(wire.taken) == b"x" * 100 + b"y" * 100


def test_waiting_for_room_ends_at_its_deadline() -> None:
    rig = Rig(limit=100, block_when_full=0.02)
    with pytest.raises(errors.BufferFull):
        rig.outbox.enqueue(b"x" * 100)


def test_close_releases_who_waits_for_room() -> None:
    rig = Rig(limit=0, block_when_full=None)
    rig.outbox._block_when_full = 10
    caught: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def enqueue() -> None:
        try:
            rig.outbox.enqueue(b"x")
        except errors.JsClientError as error:
            caught.put(error)

    threading.Thread(target=enqueue, daemon=True).start()
    wait_until(lambda: rig.outbox.online.awaited)
    rig.outbox.close(lambda: errors.ConnectionClosed("over"))
    assert isinstance(caught.get(timeout=2), errors.ConnectionClosed)
    with pytest.raises(errors.ConnectionClosed):
        rig.outbox.enqueue(b"x")


def test_a_closed_outbox_stays_closed_when_a_link_comes_late() -> None:
    rig = Rig()
    rig.outbox.close(lambda: errors.ConnectionClosed("over"))
    wire = rig.online(Wire(), b"SUB")
    rig.outbox.flush()
    assert not wire.taken
    with pytest.raises(errors.ConnectionClosed):
        rig.outbox.enqueue(b"x")


def test_close_counts_what_is_thrown_away() -> None:
    rig = Rig()
    rig.online(Wire())
    rig.outbox.frames.extend([b"1", LinkFrame(b"2"), b"3"])
    assert len(rig.outbox.close(lambda: errors.ConnectionClosed("over"))) == 2


def test_refuse_takes_nothing_new_and_sends_the_rest() -> None:
    rig = Rig()
    wire = rig.online(Wire())
    rig.outbox.enqueue(b"last")
    rig.outbox.refuse(lambda: errors.ConnectionClosed("closing"))
    with pytest.raises(errors.ConnectionClosed):
        rig.outbox.enqueue(b"late")
    assert rig.outbox.drain()
    assert bytes(wire.taken) == b"last"


def test_link_loss_keeps_whole_publishes_and_returns_the_others() -> None:
    rig = Rig()
    wire = rig.online(Wire(room=5))
    for frame in (b"aaa;", b"bbb;", LinkFrame(b"req;"), b"ccc;"):
        rig.outbox.enqueue(frame)
    assert not rig.outbox.drain(AT_ONCE)
    rig.outbox.enqueue(b"ddd;")
    assert bytes(wire.taken) == b"aaa;b"
    assert rig.outbox.detach() == [b"req;"]
    again = rig.online(Wire(), b"SUB;")
    rig.outbox.flush()
    assert bytes(again.taken) == b"SUB;ccc;ddd;", "bbb was under way: sending it again could double it"


def test_a_publish_that_finds_the_link_broken_goes_out_on_the_next() -> None:
    """Over sockets: an error of the system call says that it took nothing."""
    rig = Rig()
    ours, theirs = socket.socketpair()
    theirs.close()
    transport = TcpTransport(ours)
    rig.online(transport)
    rig.outbox.enqueue(b"publish;")
    rig.outbox.enqueue_now(LinkFrame(b"request;"))
    assert rig.broken
    assert rig.outbox.detach() == [b"request;"]
    transport.close()
    again = rig.online(Wire())
    rig.outbox.flush()
    assert bytes(again.taken) == b"publish;"


def test_large_payloads_go_out_in_parts_and_count_as_whole_frames() -> None:
    payload = bytes(LARGE_PAYLOAD)
    rig = Rig(limit=10 * LARGE_PAYLOAD)
    rig.online(Wire(room=5))
    frames: list[Frame] = [LargeFrame((b"kept;", payload, b"!")), LargeLinkFrame((b"req;", payload, b"!")), b"small;"]
    assert len(frames[0]) == LARGE_PAYLOAD + 6
    rig.outbox.enqueue(b"first;")
    for frame in frames:
        rig.outbox.frames.append(frame)
    assert not rig.outbox.drain(AT_ONCE)
    assert rig.outbox.detach() == [frames[1]]
    again = rig.online(Wire())
    rig.outbox.flush()
    assert bytes(again.taken) == b"kept;" + payload + b"!small;"


def test_a_link_that_counts_other_bytes_claims_nothing() -> None:
    rig = Rig()
    rig.online(OpaqueWire())
    rig.outbox.enqueue(b"aaa;")
    assert not rig.outbox.drain(AT_ONCE)
    rig.outbox.enqueue(b"bbb;")
    rig.outbox.detach()
    again = rig.online(Wire())
    rig.outbox.flush()
    assert bytes(again.taken) == b"bbb;"


def test_a_frame_that_slips_in_during_the_switch_is_dropped_or_kept_by_its_kind() -> None:
    rig = Rig()
    rig.online(Wire())
    rig.outbox.detach()
    rig.outbox.frames.extend([b"late;", LinkFrame(b"request;")])  # enqueued by a thread that saw us online
    wire = rig.online(Wire())
    rig.outbox.flush()
    assert bytes(wire.taken) == b"late;"


def test_attach_while_threads_post() -> None:
    """The queue is never iterated: `deque mutated during iteration` would end the connection."""
    rig = Rig(limit=1 << 30)
    threads = 4
    each = 5000

    def enqueue(name: int) -> None:
        for number in range(each):
            rig.outbox.frames.append(b"%d:%d;" % (name, number))

    workers = [threading.Thread(target=enqueue, args=(n,), daemon=True) for n in range(threads)]
    for worker in workers:
        worker.start()
    wires = [Wire()]
    while any(worker.is_alive() for worker in workers):
        rig.online(wires[-1])
        rig.outbox.drain()
        rig.outbox.detach()
        wires.append(Wire())
    rig.online(wires[-1])
    wait_until(lambda: rig.outbox.drain() and not rig.outbox.frames)
    sent = b"".join(bytes(wire.taken) for wire in wires).split(b";")[:-1]
    for name in range(threads):
        mine = [int(item.partition(b":")[2]) for item in sent if item.startswith(b"%d:" % name)]
        assert mine == list(range(each))


def test_a_stalled_link_gives_back_pressure_and_an_error_at_the_deadline() -> None:
    rig = Rig(write_timeout=0.05)
    rig.online(Wire(room=0))
    accepted = 0
    with pytest.raises(errors.BufferFull, match="takes no data"):
        for _ in range(2 * HIGH_WATER // COALESCE):
            rig.outbox.enqueue(b"x" * COALESCE)
            accepted += 1
    assert rig.outbox.size + rig.outbox.unsent <= HIGH_WATER + 4 * COALESCE
    assert rig.outbox.size + rig.outbox.unsent == accepted * COALESCE, "what was refused is not queued"


def test_a_deadline_bounds_the_sending_of_a_call_and_waiting_begins_without_it() -> None:
    """The frame stays queued, and the flusher is told. What a call coalesced before is never waited for."""
    rig = Rig(write_timeout=10)
    rig.online(Wire(room=0))
    sends: list[Callable[[], object]] = [lambda: rig.outbox.enqueue_now(b"x", Deadline(0.05)), rig.outbox.flush]
    for send in sends:
        start, kicks = time.monotonic(), rig.kicks
        rig.outbox.frames.append(b"y")
        send()
        assert time.monotonic() - start < 1
        assert rig.kicks > kicks
        assert rig.outbox.unsent


def test_a_broken_link_is_reported_and_nothing_is_raised() -> None:
    rig = Rig()
    wire = rig.online(Wire())

    def fail() -> None:
        raise ConnectionResetError(errno.ECONNRESET, "gone")

    wire.before = fail
    rig.outbox.enqueue_now(b"x")
    assert isinstance(rig.broken[0], ConnectionResetError)
    assert rig.outbox.lock.acquire(False)


def test_ctrl_c_inside_a_write_breaks_the_link_and_frees_the_lock() -> None:
    rig = Rig()
    wire = rig.online(Wire())

    def interrupt() -> None:
        raise KeyboardInterrupt

    wire.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.outbox.enqueue_now(b"x")
    assert isinstance(rig.broken[0], KeyboardInterrupt)
    assert not rig.outbox.lock._is_owned()


@pytest.mark.parametrize("way", ["enqueue", "enqueue_core"])
def test_beside_a_thread_that_sends_a_publish_in_32_kib_looks_at_the_queue(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    rig = Rig()
    rig.outbox.ticking = True
    wire = rig.online(Wire())
    looks = 0
    drain = rig.outbox.drain

    def counting(deadline: Deadline = AT_ONCE) -> bool:
        nonlocal looks
        looks += 1
        return drain(deadline)

    def publish() -> None:
        for _ in range(2000):
            getattr(rig.outbox, way)(b"x" * 100)

    def beside() -> None:
        wire.before = None
        worker = threading.Thread(target=publish)
        worker.start()
        worker.join()

    wire.before = beside
    monkeypatch.setattr(rig.outbox, "drain", counting)
    assert rig.outbox.drain()
    rig.outbox.enqueue_now(b"y")
    assert 1 < looks <= 2 + 200_000 // COALESCE
    assert len(wire.taken) == 200_001
    rig.outbox.relief = HIGH_WATER  # what a thread has left that came when the queue was empty again
    rig.outbox.ticking = False
    getattr(rig.outbox, way)(b"z" * COALESCE * 4)
    assert rig.kicks or wire.taken.endswith(b"z"), "it is sent, or the flusher is told"


def test_the_first_core_publish_after_a_quiet_moment_leaves_at_once() -> None:
    rig = Rig()
    wire = rig.online(Wire())
    rig.outbox.enqueue_core(b"1")
    assert wire.writes == 1
    assert rig.kicks == 0, "no thread is woken for it"
    rig.outbox._first_sent += 1000  # just now
    rig.outbox.enqueue_core(b"2")
    assert wire.writes == 1
    assert rig.kicks == 1
    rig.outbox._first_sent -= 2000
    rig.outbox.ticking = True
    rig.outbox.enqueue_core(b"3")
    assert wire.writes == 1, "the flusher is awake: what comes meanwhile leaves together"
    rig.outbox.ticking = False
    rig.outbox.enqueue_core(b"4")
    assert bytes(wire.taken) == b"1234"


def test_a_slow_send_at_once_is_not_repeated_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread hogs the interpreter lock: coalesced publishes do not wait for it."""
    rig = Rig()
    wire = rig.online(Wire())
    clock = [100.0]
    monkeypatch.setattr("jsclient._connection.outbox.time.monotonic", lambda: clock[0])
    wire.before = lambda: clock.__setitem__(0, clock[0] + 0.005)
    rig.outbox.enqueue_core(b"1")
    assert wire.writes == 1
    clock[0] += 0.02
    rig.outbox.enqueue_core(b"2")
    assert wire.writes == 1
    clock[0] += 0.04
    rig.outbox.enqueue_core(b"3")
    assert wire.writes == 2
