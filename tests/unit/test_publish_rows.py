"""Rows on the window and the recovery of all publishers: blocks, counts, copies, and sending again by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.publish_rig import FakeConnection, FakeJetStream, clock

from jsclient import errors
from jsclient.exactly.row_publisher import RowPublisher, Totals
from jsclient.jetstream.publishing import in_flight
from jsclient.jetstream.publishing.in_flight import FrameEntry
from jsclient.jetstream.publishing.outcome import Rules
from jsclient.message import Msg
from jsclient.protocol import frames
from jsclient.states import LinkEvent

__all__ = ["clock"]


class Rows:
    """A publisher of rows on a fake connection, and the server's side of it."""

    def __init__(self, guard: Callable[[], None] | None = None, most: int = 100, copies: bool = False) -> None:
        js: Any = FakeJetStream()
        self.nc: FakeConnection = js.nc
        rules = Rules(ack_timeout=20.0, copies_allowed=copies, looks_beyond_window=False)
        self.publisher = RowPublisher(js, rules, max_pending=most, max_pending_bytes=1 << 20, guard=guard)
        js.publish_streams.stated = 120.0
        self.inner = self.publisher._in_flight

    def publish(self, *values: bytes, ids: bool = True) -> None:
        self.publisher.publish([(b"s.a", b"", value, b"id-" + value if ids else None) for value in values])

    def sent(self) -> list[bytes]:
        """The frames that went out, one by one."""
        data, self.nc.sent = b"".join(self.nc.sent), []
        found = []
        while data:
            line = data.partition(b"\r\n")[0]
            size = len(line) + 2 + int(line.split(b" ")[-1]) + 2
            found.append(data[:size])
            data = data[size:]
        return found

    def answer(self, frame: bytes, payload: bytes, headers: bytes | None = None) -> None:
        self.inner.deliver([Msg(frames.reply_of(frame), b"1", None, payload, headers)], 0)

    def ack(self, *sent: bytes, first: int = 1) -> None:
        acks = [
            Msg(frames.reply_of(frame), b"1", None, b'{"stream":"S","seq":%d}' % number, None)
            for number, frame in enumerate(sent, first)
        ]
        self.inner.deliver(acks, 0)

    def no_responders(self, frame: bytes) -> None:
        self.answer(frame, b"", b"NATS/1.0 503\r\n\r\n")

    def lose(self) -> None:
        self.nc.is_connected = False
        self.inner.link_event(LinkEvent.DISCONNECTED)

    def come_back(self) -> None:
        self.nc.is_connected = True
        self.inner.link_event(LinkEvent.RECONNECTED)


Turn = Callable[[Any, float], None]


def values(sent: list[bytes]) -> list[bytes]:
    return [frames.split(frame)[2] for frame in sent]


def test_rows_leave_in_one_block_and_are_counted() -> None:
    rows = Rows()
    rows.publish(b"1", b"2", b"3")
    assert len(rows.nc.sent) == 1
    sent = rows.sent()
    assert values(sent) == [b"1", b"2", b"3"]
    rows.ack(*sent, first=7)
    assert rows.publisher.finish() == Totals(3, 3, 0, {"S": (7, 9)})


def test_a_block_ends_where_the_window_does() -> None:
    rows = Rows(most=2)
    enqueue = rows.nc.enqueue

    def acknowledged(frame: bytes) -> None:
        enqueue(frame)
        rows.ack(*rows.sent())

    rows.nc.enqueue_now = acknowledged
    rows.publish(*[b"%d" % number for number in range(7)])
    assert rows.publisher.finish().rows == 7


def test_rows_are_held_while_the_link_is_down_and_leave_in_order(clock: Turn) -> None:
    rows = Rows()
    rows.publish(b"1", b"2")
    rows.lose()
    rows.publish(b"3", b"4")
    rows.sent()
    rows.come_back()
    sent = rows.sent()
    assert values(sent) == [b"1", b"2", b"3", b"4"]
    rows.ack(*sent)
    assert rows.publisher.finish().rows == 4


def test_rows_without_an_id_go_out_again_only_where_copies_are_allowed(clock: Turn) -> None:
    rows = Rows()
    rows.publish(b"1", ids=False)
    rows.sent()
    rows.lose()
    rows.come_back()
    with pytest.raises(errors.PublishUnknown):
        rows.publisher.finish()
    rows = Rows(copies=True)
    rows.publish(b"1", ids=False)
    rows.sent()
    rows.lose()
    rows.come_back()
    sent = rows.sent()
    assert values(sent) == [b"1"]
    clock(rows, 0.5)
    clock(rows, 7.0)
    again = rows.sent()
    assert values(again) == [b"1"], "silence is followed by another copy"
    rows.ack(again[0])
    assert rows.publisher.finish().rows == 1


def test_a_guarded_publisher_sends_again_by_hand_only(clock: Turn) -> None:
    asked: list[int] = []
    rows = Rows(guard=lambda: asked.append(1))
    rows.publish(b"1", b"2")
    first, _ = rows.sent()
    rows.no_responders(first)
    clock(rows, 0.25)
    rows.lose()
    rows.come_back()
    clock(rows, 5.5)
    clock(rows, 100.0)
    assert not rows.sent(), "nothing leaves before the guard was asked, and nothing is given up meanwhile"
    assert not asked
    rows.publish(b"3")
    assert asked
    sent = rows.sent()
    assert sorted(values(sent)) == [b"1", b"2", b"3"]
    rows.ack(*sent)
    assert rows.publisher.finish().rows == 3


def test_a_guard_that_refuses_ends_it(clock: Turn) -> None:
    def refuse() -> None:
        raise errors.ConfigError("not ours any more")

    rows = Rows(guard=refuse)
    rows.publish(b"1")
    rows.sent()
    rows.lose()
    rows.come_back()
    with pytest.raises(errors.ConfigError):
        rows.publisher.finish()
    assert not rows.sent()


def test_the_first_error_is_the_outcome() -> None:
    rows = Rows()
    rows.publish(b"1", b"2")
    first, second = rows.sent()
    rows.answer(first, b'{"error":{"code":400,"err_code":10060,"description":"wrong stream"},"stream":"S","seq":0}')
    rows.answer(second, b"no ack at all")
    with pytest.raises(errors.ApiError, match="wrong stream"):
        rows.publisher.finish()
    with pytest.raises(errors.ApiError, match="wrong stream"):
        rows.publish(b"3")
    rows.publisher.close()


def test_a_row_that_is_too_large() -> None:
    rows = Rows()
    with pytest.raises(errors.PayloadTooLarge, match="a row of"):
        rows.publish(b"x" * (1 << 21))


def test_a_large_row_is_charged_for_its_size() -> None:
    rig = Rows(most=10)
    rig.publish(b"a", b"x" * 200_000, b"b")
    sent = rig.sent()
    assert [len(value) for value in values(sent)] == [1, 200_000, 1]
    assert rig.inner.window.limit < 10
    rig.ack(*sent)
    assert rig.publisher.finish().rows == 3
    assert rig.inner.window.limit == 10


def test_rows_that_a_link_did_not_take_go_out_over_the_next_one() -> None:
    rig = Rows()
    rig.publish(b"a")
    rig.ack(*rig.sent())
    rig.nc.is_connected = False
    rig.publish(b"b", b"c")
    assert rig.sent() == []
    rig.come_back()
    assert values(rig.sent()) == [b"b", b"c"]


def test_sequences_are_counted_for_each_stream() -> None:
    rig = Rows()
    rig.publish(b"a", b"b", b"c", b"d")
    answers = [("S", 5), ("S", 4), ("T", 9), ("S", 8)]
    acks = [
        Msg(frames.reply_of(frame), b"1", None, b'{"stream":"%b","seq":%d}' % (name.encode(), seq))
        for frame, (name, seq) in zip(rig.sent(), answers, strict=True)
    ]
    rig.inner.deliver(acks, 0)
    totals, others = rig.publisher.finish(), Totals()
    others.add(totals)
    others.add(totals)
    assert totals.streams == {"S": (4, 8), "T": (9, 9)}
    assert (others.rows, others.streams) == (8, totals.streams)


def test_a_server_that_takes_no_headers_is_told_of_none() -> None:
    rig = Rows()
    rig.nc.takes_headers = False

    def check() -> None:
        raise errors.HeadersNotSupported("it takes no headers")

    rig.nc.check_headers = check  # type: ignore[attr-defined]
    with pytest.raises(errors.HeadersNotSupported):
        rig.publish(b"a")
    with pytest.raises(errors.HeadersNotSupported):
        rig.publisher.publish([(b"s.a", b"Kind: a\r\n", b"x", None)])


def test_a_full_window_waits_for_acks() -> None:
    rows = Rows(most=2)
    looks: list[int] = []

    def acks_come() -> None:
        looks.append(1)
        if len(looks) == 2:
            rows.ack(*rows.sent())

    rows.nc.flush_outbox = acks_come  # type: ignore[method-assign]
    rows.publish(b"1", b"2", b"3")
    assert len(looks) == 2
    rows.ack(*rows.sent(), first=3)
    assert rows.publisher.finish().rows == 3


def test_no_rows_are_no_message() -> None:
    rows = Rows()
    rows.publish()
    assert rows.sent() == []
    assert rows.publisher.finish().rows == 0


def test_a_late_row_with_a_guard_waits_for_the_thread_that_publishes(clock: Turn) -> None:
    asked: list[int] = []
    rows = Rows(guard=lambda: asked.append(1))
    rows.publish(b"1")
    (first,) = rows.sent()
    clock(rows, 0)
    clock(rows, 5.5)
    assert (rows.sent(), asked) == ([], [])
    rows.publish(b"2")
    assert asked
    again, second = rows.sent()
    assert frames.reply_of(again) == frames.reply_of(first)
    rows.ack(again, second)
    assert rows.publisher.finish().rows == 2


def test_rows_settle_when_the_last_ack_has_come() -> None:
    rows = Rows()
    rows.publish(b"1")
    assert not rows.publisher.settle(0.01)
    rows.ack(*rows.sent())
    assert rows.publisher.settle(0.01)


def test_a_row_has_an_entry_only_when_something_has_to_be_known_of_it(clock: Turn) -> None:
    rows = Rows()
    rows.publish(b"1", b"2")
    sent = rows.sent()
    assert [type(kept) for kept in rows.inner.pending.values()] == [bytes, bytes]
    clock(rows, 0.5)  # the sweep looks at both
    first, second = rows.inner.entries()
    assert rows.inner.look_up(frames.reply_of(sent[1])[-12:]) is second
    rows.ack(sent[0])
    assert first.done()
    assert rows.inner.look_up(frames.reply_of(sent[0])[-12:]) is None
    rows.no_responders(sent[1])
    clock(rows, 0.25)
    (again,) = rows.sent()
    rows.ack(again)
    assert rows.publisher.finish().rows == 2
    assert second.done()
    assert not rows.inner.known


def test_a_row_that_ends_while_it_is_looked_up_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows()
    rows.publish(b"1")
    sent = rows.sent()
    made = FrameEntry

    def entry(*given: Any) -> Any:
        rows.ack(*sent)  # the reader is faster
        return made(*given)

    monkeypatch.setattr(in_flight, "FrameEntry", entry)
    assert rows.inner.entries() == []
    assert rows.publisher.finish().rows == 1
    assert not rows.inner.known


def test_a_row_with_headers_and_no_id(clock: Any) -> None:
    rows = Rows()
    rows.publisher.publish([(b"s.a", b"Kind: a\r\n", b"x", None)])
    (frame,) = rows.sent()
    assert frame.startswith(b"HPUB s.a ")
    assert frame.endswith(b"\r\nNATS/1.0\r\nKind: a\r\n\r\nx\r\n")
