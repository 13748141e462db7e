"""The points of the review of ADR-50 where clients differ on batches: one test each that no other file has.

The page on conformance lists all points and names the test of each. The name of a test has the number of its point if
the review numbers it, else a word for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import AtomicBatch, FastBatch, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until

START, APPEND, COMMIT, END, PING = "01234"


def storing(server: NatsServer, version: tuple[int, int, int], **config: Any) -> Iterator[JetStream]:
    if server.version < version:
        pytest.skip(f"needs nats-server {'.'.join(map(str, version))}")
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="B", subjects=["t.>"], storage="memory", **config))
        js.create_stream(StreamConfig(name="PLAIN", subjects=["plain.>"], storage="memory"))
        yield js
        for name in list(js.stream_names()):
            js.delete_stream(name)


@pytest.fixture
def atomic(server: NatsServer) -> Iterator[JetStream]:
    yield from storing(server, (2, 12, 0), allow_atomic=True)


@pytest.fixture
def fast(server: NatsServer) -> Iterator[JetStream]:
    yield from storing(server, (2, 14, 0), allow_batched=True)


@pytest.fixture
def atomic_and_fast(fast: JetStream) -> Stream:
    stream = fast.stream("B")
    fast.update_stream(stream.info().config.replace(allow_atomic=True))
    return stream


def count(js: JetStream, stream: str = "B") -> int:
    return js.stream(stream).info().state.messages


class Watcher:
    """Another client that sees each message of a batch on its way to the stream, with its reply subject."""

    def __init__(self, js: JetStream) -> None:
        self.nc = js.nc
        self.messages = self.nc.subscribe("t.>")
        self.nc.flush()

    def next(self) -> jsclient.Msg:
        return self.messages.next(timeout=5)

    def reply(self) -> list[str]:
        """The tokens of the next reply subject: inbox, batch id, flow, gap mode, number, operation, $FI."""
        reply = self.next().reply
        assert reply is not None
        return reply.split(".")

    def make_a_gap(self, tokens: list[str], number: int) -> None:
        """Send a later message of the batch, as if the messages before it were lost."""
        tokens = [*tokens[:-3], str(number), APPEND, tokens[-1]]
        self.nc.publish("t.forged", b"", reply=".".join(tokens))
        self.nc.flush()


@pytest.fixture
def client(server: NatsServer) -> Iterator[JetStream]:
    """The client under test; the fixtures of the streams are the other one."""
    with jsclient.connect(server.url) as nc:
        yield JetStream(nc)


# --- 1: the number of messages ----------------------------------------------------------------------------------


def test_point_1_1_a_message_too_many_costs_only_itself(atomic: JetStream) -> None:
    batch = atomic.atomic_batch(max_messages=3)
    for number in range(3):
        batch.add("t.a", b"%d" % number)
    with pytest.raises(errors.BatchTooLarge):
        batch.add("t.a", b"3")
    assert (batch.commit().count, count(atomic)) == (3, 3)


@pytest.mark.parametrize(("limit", "messages"), [(1500, 1200), (20, 21)])
def test_point_1_2_a_server_with_another_limit(server: NatsServer, limit: int, messages: int) -> None:
    """The server does not announce its limit. An option allows a larger batch, and the server refuses a large one."""
    if server.version < (2, 12, 0):
        pytest.skip("atomic batches need nats-server 2.12")
    config = f"jetstream {{ limits {{ batch {{ max_msgs: {limit} }} }} }}"
    with NatsServer(config) as other, jsclient.connect(other.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="B", subjects=["t.>"], storage="memory", allow_atomic=True))
        batch = js.atomic_batch(max_messages=1500)
        for _ in range(messages):
            batch.add("t.a", b"x")
        if messages <= limit:
            assert batch.commit().count == messages
        else:
            with pytest.raises(errors.BatchRefused) as caught:
                batch.commit()
            assert (caught.value.err_code, count(js)) == (10199, 0)


# --- headers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"])
def test_point_headers_that_the_batch_sets_are_refused_before_anything_is_sent(atomic: JetStream, name: str) -> None:
    batch = atomic.atomic_batch()
    batch.add("t.a", b"1")
    with pytest.raises(errors.ConfigError, match=name):
        batch.add("t.a", b"2", headers={name: "1"})
    assert batch.add("t.a", b"2") == 2
    assert batch.commit().count == 2


@pytest.mark.usefixtures("atomic_and_fast")
def test_point_headers_of_an_atomic_batch_mean_nothing_in_a_fast_batch(fast: JetStream) -> None:
    """A stored message of an atomic batch has these headers, and a program may publish it again."""
    headers = {"Nats-Batch-Id": "other", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    batch = fast.fast_batch()
    for _ in range(3):
        batch.add("t.a", b"x", headers=headers)
    ack = batch.commit()
    assert (ack.batch, ack.count, count(fast)) == (batch.id, 3, 3)


@pytest.mark.parametrize("stale", [0, 1])
def test_point_headers_expected_last_seq_after_the_first_message(atomic: JetStream, stale: int) -> None:
    """The server refuses it, even if the stream has that sequence."""
    batch = atomic.atomic_batch()
    batch.add("t.a", b"1")
    batch.add("t.a", b"2", expected_last_seq=stale)
    with pytest.raises(errors.WrongLastSequence):
        batch.commit()
    assert count(atomic) == 0


def test_point_headers_a_subject_is_expected_before_it_is_written_to(atomic: JetStream) -> None:
    batch = atomic.atomic_batch()
    batch.add("t.a", b"1", expected_last_subject_seq=0)
    batch.add("t.b", b"2", expected_last_subject_seq=0)
    assert batch.commit().count == 2
    batch = atomic.atomic_batch()
    batch.add("t.a", b"3")
    batch.add("t.a", b"4", expected_last_subject_seq=1)
    with pytest.raises(errors.WrongLastSequence):
        batch.commit()
    assert count(atomic) == 2


def test_point_headers_an_expected_subject_needs_its_sequence(atomic: JetStream) -> None:
    last = atomic.publish("t.c", b"before").seq
    batch = atomic.atomic_batch()
    batch.add("t.a", b"1")
    for given in (
        {"expected_last_subject": "t.c"},
        {"headers": {"Nats-Expected-Last-Subject-Sequence-Subject": "t.c"}},
    ):
        with pytest.raises(errors.ConfigError, match="expected_last_subject_seq"):
            batch.add("t.b", b"2", **given)
    batch.add("t.b", b"2", expected_last_subject="t.c", expected_last_subject_seq=last)
    assert (batch.commit().count, count(atomic)) == (2, 3)


def test_point_headers_the_stream_that_is_expected(atomic: JetStream) -> None:
    for stream, stored in (("B", 2), ("PLAIN", 0)):
        atomic.stream("B").purge()
        batch = atomic.atomic_batch()
        batch.add("t.a", b"1")
        batch.add("t.a", b"2", expected_stream=stream)
        if stored:
            batch.commit()
        else:
            with pytest.raises(errors.ApiError) as caught:
                batch.commit()
            assert caught.value.err_code == 10060
        assert count(atomic) == stored


# --- 3: the end without a message -------------------------------------------------------------------------------


def test_point_3_1_the_end_is_called_commit(fast: JetStream, client: JetStream) -> None:
    """A marker ends the batch. Neither the server nor `len` counts it as a message."""
    watcher = Watcher(fast)
    batch = client.fast_batch()
    batch.add("t.a", b"1")
    batch.add("t.b", b"2")
    ack = batch.commit()
    assert (ack.count, ack.seq, len(batch), count(fast)) == (2, 2, 2, 2)
    operations = [watcher.reply()[-2] for _ in range(3)]
    assert operations == [START, APPEND, END]


def test_point_3_1_an_atomic_batch_needs_no_marker(atomic: JetStream, client: JetStream) -> None:
    """The newest message waits for the next call, so it can carry the commit. This works with 2.12, too."""
    watcher = Watcher(atomic)
    batch = client.atomic_batch()
    batch.add("t.a", b"1")
    batch.add("t.b", b"2")
    ack = batch.commit()
    assert (ack.count, ack.seq, len(batch), count(atomic)) == (2, 2, 2, 2)
    seen = [watcher.next() for _ in range(2)]
    assert [message.headers.get("Nats-Batch-Commit") for message in seen] == [None, "1"]


# --- 4: a gap ---------------------------------------------------------------------------------------------------


def batch_with_a_gap(fast: JetStream, client: JetStream) -> FastBatch:
    """The server stored the first message, missed the second and ended the batch. Its answers have arrived."""
    watcher = Watcher(fast)
    batch = client.fast_batch()
    batch.add("t.a", b"1")
    tokens = watcher.reply()
    answers = fast.nc.subscribe(".".join([*tokens[:-5], ">"]))
    watcher.make_a_gap(tokens, 3)
    assert json.loads(answers.next(timeout=5).data) == {"type": "gap", "last_seq": 2, "seq": 3}
    assert json.loads(answers.next(timeout=5).data)["count"] == 1
    client.nc.flush()
    return batch


def test_point_4_1_the_next_call_ends_with_the_gap(fast: JetStream, client: JetStream) -> None:
    batch = batch_with_a_gap(fast, client)
    with pytest.raises(errors.BatchGap) as caught:
        batch.add("t.a", b"2")
    assert caught.value.lost == range(2, 3)
    with pytest.raises(errors.BatchClosed):
        batch.add("t.a", b"3")
    assert count(fast) == 1


def test_point_4_2_an_idle_batch_does_not_notice_its_end(fast: JetStream, client: JetStream) -> None:
    """No thread reads the answers. The next call does."""
    batch = batch_with_a_gap(fast, client)
    assert not batch.closed
    with pytest.raises(errors.BatchGap):
        batch.commit()
    assert (batch.closed, count(fast)) == (True, 1)


def test_point_last_ack_the_error_reports_what_is_stored(fast: JetStream, client: JetStream) -> None:
    """After a gap, the server counts in a last ack what it stored."""
    batch = batch_with_a_gap(fast, client)
    with pytest.raises(errors.BatchGap, match="The server has confirmed all messages up to 1"):
        batch.add("t.a", b"2")
    assert batch.ack is not None
    assert (batch.ack.count, batch.acked, count(fast)) == (1, 1, 1)


# --- 6: acks within an atomic batch -----------------------------------------------------------------------------


@pytest.mark.parametrize(("ack_every", "asked"), [(0, [1, 6]), (1, [1, 2, 3, 4, 5, 6]), (2, [1, 2, 4, 6])])
def test_point_6_1_which_messages_ask_for_an_answer(
    atomic: JetStream, client: JetStream, ack_every: int, asked: list[int]
) -> None:
    watcher = Watcher(atomic)
    batch = client.atomic_batch(ack_every=ack_every)
    for number in range(6):
        batch.add("t.a", b"%d" % number)
    batch.commit()
    seen = [watcher.next() for _ in range(6)]
    assert [number for number, message in enumerate(seen, 1) if message.reply] == asked


def test_point_6_2_the_first_answer_shows_a_stream_without_batches(atomic: JetStream) -> None:
    """The first message goes out with the second call."""
    batch = atomic.atomic_batch()
    assert batch.add("plain.a", b"1") == 1
    with pytest.raises(errors.BatchRefused) as caught:
        batch.add("plain.a", b"2")
    assert caught.value.err_code == 10174
    assert batch.closed
    assert count(atomic, "PLAIN") == 0


def test_point_6_3_no_message_chooses_for_itself(atomic: JetStream) -> None:
    batch = atomic.atomic_batch()
    with pytest.raises(TypeError):
        batch.add("t.a", b"1", ack=True)  # type: ignore[call-arg]
    assert len(batch) == 0


# --- 7: the id --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["_INBOX", "_INBOX.a.team"])
def test_point_7_the_id_is_ours_and_one_token(fast: JetStream, server: NatsServer, prefix: str) -> None:
    """The server finds the id in the reply subject, even if the inbox prefix has several tokens."""
    with jsclient.connect(server.url, inbox_prefix=prefix) as nc:
        batch = JetStream(nc).fast_batch()
        for number in range(3):
            batch.add("t.a", b"%d" % number)
        ack = batch.commit()
    assert (ack.batch, ack.count) == (batch.id, 3)
    assert batch.id.isalnum()
    assert len(batch.id) <= 64
    for kind in (AtomicBatch, FastBatch):
        with pytest.raises(TypeError):
            kind(fast, id="mine")  # type: ignore[call-arg]


# --- flow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"flow": 10, "max_outstanding": 3, "gap": "ok"}])
def test_point_flow_what_is_asked_for_and_how_far_the_client_is_ahead(
    fast: JetStream, client: JetStream, given: dict[str, Any]
) -> None:
    flow, outstanding = given.get("flow", 100), given.get("max_outstanding", 2)
    watcher = Watcher(fast)
    batch = client.fast_batch(**given)
    ahead = [batch.add("t.a", b"x") - batch.acked for _ in range(1000)]
    batch.commit()
    assert watcher.reply()[-5:-2] == [str(flow), given.get("gap", "fail"), "1"]
    assert max(ahead) < flow * outstanding
    assert count(fast) == 1000


# --- 9: pings ---------------------------------------------------------------------------------------------------


def test_point_9_1_and_9_2_a_ping_is_sent_when_acks_are_lost(fast: JetStream, server: NatsServer) -> None:
    """A ping has the subject and the number of the newest message. No public method sends one."""
    watcher = Watcher(fast)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        batch = JetStream(nc).fast_batch(flow=1, max_outstanding=1, timeout=3)
        batch.add("t.first", b"x")
        lost: list[bytes] = []

        def lose_an_ack(piece: bytes) -> bytes:
            if not lost and b'"seq":2' in piece:
                lost.append(piece)
                return piece.replace(b'"seq":2', b'"seq":0')
            return piece

        proxy.mutate(lose_an_ack)
        batch.add("t.second", b"x")
        assert lost
        assert batch.commit().count == 2
    seen = [watcher.next() for _ in range(3)]
    assert [message.subject for message in seen] == ["t.first", "t.second", "t.second"]
    assert [str(message.reply).split(".")[-3:-1] for message in seen] == [["1", START], ["2", APPEND], ["2", PING]]
    assert not hasattr(batch, "ping")


# --- 10: leaving the block -----------------------------------------------------------------------------------


def test_point_10_nothing_is_called_close_and_giving_up_sends_nothing(
    fast: JetStream, atomic_and_fast: Stream, client: JetStream
) -> None:
    watcher = Watcher(fast)
    for batch in (client.atomic_batch(), client.fast_batch()):
        assert not hasattr(batch, "close")
        batch.add("t.a", b"1")
        batch.add("t.a", b"2")
        batch.discard()
        batch.discard()
        assert batch.closed
        with pytest.raises(errors.BatchClosed):
            batch.commit()
    client.nc.flush()
    seen = [watcher.next() for _ in range(3)]
    assert watcher.messages.pending == 0
    assert [message.data for message in seen] == [b"1", b"1", b"2"]
    assert count(fast) == 2


# --- an add that fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", ["atomic_batch", "fast_batch"])
@pytest.mark.usefixtures("atomic_and_fast")
def test_point_a_failed_add_that_sent_nothing_gives_its_number_back(fast: JetStream, kind: str, begun: bool) -> None:
    batch = getattr(fast, kind)()
    if begun:
        batch.add("t.a", b"0")
    number = len(batch) + 1
    for subject, payload, headers, error in (
        ("t.*", b"x", None, errors.InvalidSubject),
        ("t.a", bytes(fast.nc.max_payload + 1), None, errors.PayloadTooLarge),
        ("t.a", b"x", {"not valid": "x"}, errors.InvalidHeader),
    ):
        with pytest.raises(error):
            batch.add(subject, payload, headers=headers)
        assert (len(batch), batch.closed) == (number - 1, False)
    assert batch.add("t.a", b"1") == number
    assert batch.commit().count == number
    assert count(fast) == number


# --- no responders ----------------------------------------------------------------------------------------------


def test_point_no_responders_for_a_commit(atomic: JetStream) -> None:
    batch = atomic.atomic_batch()
    for number in range(3):
        batch.add("t.a", b"%d" % number)
    atomic.delete_stream("B")
    with pytest.raises(errors.NoStreamResponse, match="Nothing of the batch is stored"):
        batch.commit(timeout=5)
    assert batch.closed


def test_point_no_responders_on_the_control_channel(fast: JetStream) -> None:
    """The 503 arrives as a message on the channel, and ends the wait immediately."""
    batch = fast.fast_batch(timeout=60)
    batch.add("t.a", b"1")
    fast.delete_stream("B")
    wait_until(lambda: "B" not in list(fast.stream_names()))
    with pytest.raises(errors.PublishUnknown, match="503"):
        batch.commit()
    assert batch.closed
