"""The judges of the histories: every kind of lie is found, and blamed on whoever told it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.chaos import checkers, clocks, nemesis
from tests.chaos.history import NOT_STORED, OK, OPEN, REFUSED, UNKNOWN, Op
from tests.chaos.nemesis import schedule
from tests.chaos.register import NONE, Entry, Finding
from tests.chaos.wire import Wire

from jsclient.jetstream import ClusterInfo, ConsumerConfig, ConsumerInfo, SequenceInfo

LOG = {"q.a": [Entry(1, b"<a:1>"), Entry(2, b"<a:2>")]}
ACK, ERROR = b'{"stream":"S","seq":1}', b'{"error":{"code":400,"err_code":10071},"stream":"S","seq":0}'


def op(value: bytes, outcome: str, revision: int | None = None, kind: str = "publish", called: float = 0.0) -> Op:
    return Op(0, "p", kind, "q.a", value, None, called, math.inf, outcome, revision)


def blamed(history: list[Op], *answers: bytes, log: checkers.Log = LOG) -> list[str]:
    found = checkers.check_writes(history, log, lambda value: [[answer] for answer in answers])
    return [finding.blame for finding in found]


def test_what_is_as_it_was_said_is_no_finding() -> None:
    history = [op(b"<a:1>", OK, 1), op(b"<a:2>", UNKNOWN), op(b"<a:3>", UNKNOWN), op(b"<a:4>", NOT_STORED)]
    assert blamed([*history, op(b"<a:5>", REFUSED)], ACK) == []


def test_an_acknowledged_message_that_is_not_there() -> None:
    gone = {"q.a": [Entry(2, b"<a:2>")]}
    assert blamed([op(b"<a:1>", OK, 1)], ACK, log=gone) == ["server"]
    assert blamed([op(b"<a:1>", OK, 1)], ERROR, log=gone) == ["client"]
    assert blamed([op(b"<a:1>", OK, 7)], ACK) == ["client"]
    assert blamed([op(b"<a:1>", OK, 7)], b'{"stream":"S", "seq":7}') == ["server"]
    assert blamed([op(b"<a:1>", OK, 7)], b'{"stream":"S", "seq":71}') == ["client"]


def test_a_message_that_is_there_although_it_was_said_not_to_be() -> None:
    assert blamed([op(b"<a:1>", NOT_STORED)], ERROR, ERROR) == ["server"]
    assert blamed([op(b"<a:1>", REFUSED)], ERROR, b"") == ["client"]
    assert blamed([op(b"<a:1>", NOT_STORED)]) == ["client"]


def test_a_message_that_is_there_twice() -> None:
    twice = {"q.a": [Entry(1, b"<a:1>"), Entry(2, b"<a:1>")]}
    assert blamed([op(b"<a:1>", UNKNOWN)], ACK, ACK, log=twice) == ["client"]
    assert blamed([op(b"<a:1>", UNKNOWN)], ACK, log=twice) == ["server"]
    assert blamed([op(b"<a:1>", UNKNOWN)], b"NATS/1.0 503", ACK, log=twice) == ["server"], "only one may be stored"
    assert blamed([op(b"<a:1>", UNKNOWN, kind="publish with id")], ACK, ACK, log=twice) == ["server"]


def test_a_call_that_never_returned() -> None:
    assert blamed([op(b"<a:9>", OPEN)]) == ["client"]


def test_order_of_publishing() -> None:
    log = {"q.a": [Entry(1, b"<a:2>"), Entry(2, b"<a:1>")]}
    first, second = op(b"<a:1>", OK, 2, called=1), op(b"<a:2>", OK, 1, called=2)
    assert len(checkers.check_order([first, second], log)) == 1
    assert checkers.check_order([op(b"<a:1>", UNKNOWN, called=1), second], log) == []


def test_deletes() -> None:
    def delete(outcome: str) -> Op:
        return Op(0, "p", "delete", "k", None, 1, 0.0, 1.0, outcome)

    deleted = {"k": [Entry(1, b"a"), Entry(2, None)]}
    kept = {"k": [Entry(1, b"a"), Entry(2, b"b")]}
    assert checkers.check_deletes([delete(OK), delete(REFUSED), delete(UNKNOWN)], deleted) == []
    assert len(checkers.check_deletes([delete(OK)], kept)) == 1
    assert len(checkers.check_deletes([delete(OK), delete(OK)], deleted)) == 1
    assert len(checkers.check_deletes([delete(REFUSED)], deleted)) == 1
    assert NONE.seq == 0


def test_deliveries() -> None:
    def check(given: list[tuple[int, bytes, float]], confirmed: dict[int, float]) -> list[str]:
        found = checkers.check_deliveries(checkers.Deliveries(given, confirmed), LOG)
        return [finding.what.split(":")[0] for finding in found]

    both = [(1, b"<a:1>", 1.0), (2, b"<a:2>", 1.1)]
    assert check(both, {1: 1.5, 2: 1.6}) == []
    assert check(both[:1], {}) == ["1 messages were never delivered, first [2]"]
    assert check([*both, (3, b"<a:3>", 1.2)], {}) == ["1 deliveries of what is not stored"]
    assert check([*both, (1, b"<a:1>", 2.0)], {1: 1.5}) == ["1 messages came again after their ack was confirmed"]


def test_reading_in_order() -> None:
    whole = [(1, b"<a:1>"), (2, b"<a:2>")]
    for seen, count in ((whole, 0), (whole[:1], 1), ([*whole, whole[1]], 1), (whole[::-1], 1)):
        assert len(checkers.check_reading("reader", seen, LOG)) == count
    assert checkers.check_reading("reader", [*whole, (3, b"x")], LOG)[0].blame == "server"


def test_a_read_that_gets_nothing_more() -> None:
    """A pull waits, and nothing of it was sent: that is for the server to explain."""

    def blame(**told: Any) -> str:
        info = ConsumerInfo(stream_name="S", name="C", config=ConsumerConfig(), **told)
        found = checkers.silence("S", info, 7, 3)
        assert "gets nothing behind 7, the leader has 3 more" in found.what
        return found.blame

    sent = SequenceInfo(stream_seq=7)
    assert blame(num_waiting=1, delivered=sent) == "server"
    assert blame(num_waiting=1, num_pending=3, delivered=sent, cluster=ClusterInfo(leader="n2")) == "server"
    assert blame(num_waiting=0, num_pending=3, delivered=sent) == "undecided", "nobody asked"
    assert blame(num_waiting=1, delivered=SequenceInfo(stream_seq=8)) == "undecided", "it was sent"


def test_where_copies_differ_nothing_else_is_judged() -> None:
    denied = op(b"<a:1>", NOT_STORED)
    findings = [
        Finding("undecided", "no order", (denied,)),
        Finding("client", "a lie", (denied,)),
        Finding("undecided", "missed", stream="KV"),
        Finding("undecided", "of none"),
    ]

    def blame(*differ: str) -> list[str]:
        return [one.blame for one in checkers.not_judged(findings, differ, lambda key: {"q.a": "Q"}[key])]

    assert blame() == ["undecided", "client", "undecided", "undecided"]
    assert blame("Q") == ["server", "client", "undecided", "undecided"]
    assert blame("Q", "KV") == ["server", "client", "server", "undecided"]
    assert checkers.not_judged(findings, ["Q"], lambda key: "Q")[0].what.endswith("copies of Q differ: no order")


def test_replicas() -> None:
    whole = [(1, b"<a:1>"), (2, b"<a:2>")]
    assert checkers.check_replicas({"n1": whole, "n2": whole}) == []
    (found,) = checkers.check_replicas({"n1": whole, "n2": whole, "n3": whole[:1]})
    assert found.what.endswith("for example [(2, b'<a:2>')]")


def test_a_seed_repeats_the_faults() -> None:
    assert schedule(7, 300, ["S"]) == schedule(7, 300, ["S"])
    assert schedule(7, 300, ["S"]) != schedule(8, 300, ["S"])


def test_clocks_are_set_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {fault.kind for fault in schedule(7, 600, ["S"])}
    assert ("clock" in kinds) == clocks.settable()
    monkeypatch.setattr(nemesis, "settable", lambda: False)
    assert "clock" not in {fault.kind for fault in schedule(7, 600, ["S"])}


def test_the_wire_tells_what_was_sent_and_answered() -> None:
    wire = Wire()
    tap = wire.tap(0)
    tap(1, "up", b"PUB q.a _INBOX.x.1 5\r\n<a:1>\r\nHPUB q.a _INBOX.x.2 12 1")
    tap(1, "down", b"HMSG _INBOX.x.1 1 30 30\r\nNATS/1.0 503 No Responders\r\n\r\n\r\n")
    tap(1, "up", b"7\r\nNATS/1.0\r\n\r\n<a:1>\r\n")
    tap(1, "down", b"MSG _INBOX.x.2 1 %d\r\n%s\r\n" % (len(ACK), ACK))
    assert [reply for _, _, reply in wire.publishes(b"<a:1>")] == [b"_INBOX.x.1", b"_INBOX.x.2"]
    assert wire.answers(b"<a:1>") == [[b"NATS/1.0 503 No Responders"], [ACK]]
    assert "2 copies" in wire.tell(b"<a:1>")
    tap(1, "up", b"PUB q.a _INBOX.x.3 5\r\n<a:3>\r\n")
    tap(1, "down", b"MSG _INBOX.x.3 1  %d\r\n%s\r\n" % (len(ACK), ACK))
    assert wire.answers(b"<a:3>") == [[ACK]], "as 2.9 writes it"
    assert wire.answers(b"<a:2>") == []


def written(number: int, kind: str, revision: int | None, expected: int | None = None, called: float = 0.0) -> Op:
    value = None if kind == "delete" else b"<k:%d>" % number
    return Op(number, "p", kind, "k", value, expected, called, called + 2, OK, revision, ended=called + 2)


@pytest.mark.parametrize("kind", ["update", "delete"])
def test_two_writes_at_one_revision_that_the_server_has_both_stored(kind: str) -> None:
    """As 2.9.10 does where they come at the same time."""
    delete = kind == "delete"
    history = [written(1, "put", 1), written(2, "update", 3, 1, 10.0), written(3, kind, None if delete else 4, 1, 10.5)]
    log = {"k": [Entry(1, b"<k:1>"), Entry(3, b"<k:2>"), Entry(4, None if delete else b"<k:3>")]}
    findings = checkers.check_registers(history, log) + checkers.check_deletes(history, log)
    assert findings
    assert {finding.blame for finding in findings} == {"undecided"}
    asked = checkers.check_conditions(findings, history, log, lambda op: True)
    assert {finding.blame for finding in asked} == {"server"}
    assert "1 writes of k were stored although" in asked[0].what
    assert checkers.check_conditions(findings, history, log, lambda op: False) == findings, "it was not asked for"


def test_a_condition_is_found_on_the_wire() -> None:
    wire = Wire()
    head = b"NATS/1.0\r\nKV-Operation: DEL\r\nNats-Expected-Last-Subject-Sequence: 12\r\n\r\n"
    wire.tap(0)(1, "up", b"HPUB $KV.b.k1 _INBOX.1 %d %d\r\n%s\r\n" % (len(head), len(head), head))
    assert wire.asked("k1", 12)
    assert wire.asked("k1", None)
    assert not wire.asked("k1", 1)
    assert not wire.asked("k", 12)
