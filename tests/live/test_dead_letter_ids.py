"""Letters of different messages are different letters, also where stream, consumer and sequence are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.jetstream.api.headers import MSG_ID
from jsclient.testing import LeafPair, NatsServer, wait_until
from jsclient.workers import DeadLetters, Reject, WorkerPool


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    return js


def jobs(js: JetStream, *payloads: bytes, **settings: Any) -> Consumer:
    """A work queue JOBS, new, with these messages; the one that was there is deleted."""
    if "JOBS" in list(js.stream_names()):
        js.delete_stream("JOBS")
    given: dict[str, Any] = {"subjects": ["jobs.>"], "retention": "workqueue", "storage": "memory"}
    stream = js.create_stream(StreamConfig(name="JOBS", **(given | settings)))
    for payload in payloads:
        js.publish("jobs.a", payload)
    return stream.create_consumer(ConsumerConfig(durable_name="w", ack_wait=1.0))


def rejects(message: Any) -> None:
    raise Reject(f"no {message.data.decode()}")


def give_up(consumer: Consumer, way: str) -> None:
    """Everything that the consumer has becomes a dead letter, by a pool or by `typed`."""
    stream = consumer.js.stream(consumer.stream_name)
    if way == "typed":
        with consumer.typed(dict, on_bad="reject", dead_letter="dead.x").messages(
            on_error=lambda error: None
        ) as messages:
            with pytest.raises(errors.NoMessages):
                messages.next(0.2)
            wait_until(lambda: stream.info().state.messages == 0, 10)
        return
    ways: dict[str, dict[str, Any]] = {
        "pool": {},
        "keyed": {"key": lambda message: message.data},
        "batch": {"batch": (5, 0.01)},
    }

    def many(batch: list[Any]) -> list[Any]:
        return [Reject("no") for _ in batch]

    with WorkerPool(consumer, many if way == "batch" else rejects, threads=2, dead_letter="dead.x", **ways[way]):
        wait_until(lambda: stream.info().state.messages == 0, 10)


def payloads(js: JetStream, name: str = "DEAD") -> list[bytes]:
    stream = js.stream(name)
    state = stream.info().state
    return [message.data for message in stream.get_batch(100)] if state.messages else []


@pytest.mark.parametrize("way", ["pool", "keyed", "batch", "typed"])
def test_a_queue_that_is_made_again_has_letters_of_its_own(js: JetStream, way: str) -> None:
    for text in (b"first", b"second"):
        give_up(jobs(js, text), way)
    assert payloads(js) == [b"first", b"second"]


@pytest.mark.parametrize("way", ["pool", "typed"])
def test_the_letter_of_a_message_that_comes_again_is_stored_once(js: JetStream, way: str) -> None:
    """As after a lost term: all of the stream is delivered again."""
    for _ in range(2):
        consumer = (
            js.create_consumer("JOBS", ConsumerConfig(durable_name="w"))
            if _
            else jobs(js, b"a", b"b", retention="limits")
        )
        if way == "pool":
            with WorkerPool(consumer, rejects, dead_letter="dead.x"):
                wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 2, 10)  # type: ignore[misc]
        else:
            consumer.typed(dict, on_bad="reject", dead_letter="dead.x").fetch(2, timeout=5)
            wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 2, 10)  # type: ignore[misc]
        consumer.delete()
    assert sorted(payloads(js)) == [b"a", b"b"]


@pytest.mark.parametrize("way", ["pool", "typed"])
@pytest.mark.parametrize("taken", ["removed", "another"])
def test_an_id_that_is_known_is_no_letter_that_is_stored(js: JetStream, way: str, taken: str) -> None:
    """The letter was removed within the window, or something else has its id."""
    consumer = jobs(js, b"a", retention="limits")
    with WorkerPool(consumer, rejects, dead_letter="dead.x"):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 1, 10)
    dead = js.stream("DEAD")
    own = dead.get_msg(1).headers[MSG_ID]
    if taken == "removed":
        dead.delete_msg(1)
    else:
        js.delete_stream("DEAD")
        dead = js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
        js.publish("dead.x", b"other", msg_id=own)
    consumer.delete()
    again = js.create_consumer("JOBS", ConsumerConfig(durable_name="w"))
    if way == "pool":
        with WorkerPool(again, rejects, dead_letter="dead.x"):
            wait_until(lambda: again.info().ack_floor.stream_seq == 1, 10)
    else:
        again.typed(dict, on_bad="reject", dead_letter="dead.x").fetch(1, timeout=5)
        wait_until(lambda: again.info().ack_floor.stream_seq == 1, 10)
    assert payloads(js)[-1] == b"a"


def test_a_letter_that_cannot_be_looked_at_is_stored_again() -> None:
    """The user has no permission for STREAM.MSG.GET."""
    users = """
        accounts { A { jetstream: enabled, users: [
          { user: admin, password: a },
          { user: w, password: w, permissions: { publish: { deny: ["$JS.API.STREAM.MSG.GET.>"] } } }
        ] } }
    """
    with NatsServer(users) as server, jsclient.connect(server.url, user="admin", password="a") as admin:
        js = JetStream(admin)
        js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
        jobs(js, b"a", retention="limits").delete()
        with jsclient.connect(server.url, user="w", password="w") as nc:
            for _ in range(2):
                consumer = JetStream(nc).create_consumer("JOBS", ConsumerConfig(durable_name="w"))
                with WorkerPool(consumer, rejects, dead_letter="dead.x"):
                    wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 1, 10)  # type: ignore[misc]
                consumer.delete()
        assert payloads(js) == [b"a", b"a"]


def test_letters_made_again_are_replayed(js: JetStream) -> None:
    """A stream of letters that is deleted and made again numbers its letters from 1."""
    js.create_stream(StreamConfig(name="TARGET", subjects=["target"], storage="memory"))
    for text in (b"first", b"second"):
        give_up(jobs(js, text), "pool")
        DeadLetters(js).replay(1, to="target")
        js.delete_stream("DEAD")
        js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    assert payloads(js, "TARGET") == [b"first", b"second"]


def test_a_replay_without_its_message_keeps_the_letter(js: JetStream) -> None:
    """A replay that was stored, and not removed from the letters; its message was deleted since."""
    target = js.create_stream(StreamConfig(name="TARGET", subjects=["target"], storage="memory"))
    give_up(jobs(js, b"a"), "pool")
    letters = DeadLetters(js)
    (letter,) = letters.list()
    own: list[str] = []
    letters.replay(letter, to="target")
    own.append(target.get_msg(1).headers[MSG_ID])
    target.purge()
    with pytest.raises(errors.PublishUnknown, match="knows the id of letter 1"):
        letters.replay(letter, to="target")
    js.delete_stream("TARGET")
    js.create_stream(StreamConfig(name="TARGET", subjects=["target"], storage="memory"))
    js.publish("target", b"other", msg_id=own[0])
    with pytest.raises(errors.PublishUnknown, match="is another message"):
        letters.replay(letter, to="target")


def test_a_reason_belongs_to_its_message_alone() -> None:
    """The letter of a message could not be stored; after a restart without files another one has its sequence."""
    handled: list[bytes] = []

    def handle(message: Any) -> None:
        handled.append(message.data)
        if message.data == b"first":
            raise Reject("the first")
        if handled.count(b"second") == 1:
            raise ValueError("once")

    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        with WorkerPool(jobs(js, b"first"), handle, dead_letter="dead.x", backoff=[0.05]) as pool:
            wait_until(lambda: pool.snapshot().failed, 20)
            server.restart()
            wait_until(lambda: "JOBS" not in list(js.stream_names()), 20)
            jobs(js, b"second")
            wait_until(lambda: handled == [b"first", b"second", b"second"], 20)


# --- two leaf nodes and a hub -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Iterator[dict[str, NatsServer]]:
    """A hub and two leaf nodes, each with a domain of its own."""
    with LeafPair() as pair:
        remote = f'leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{pair.leaf_port}" }}] }}\n'
        with NatsServer(remote + "jetstream { domain: second }\n", name="second") as second:
            wait_until(lambda: pair.hub.monitor("leafz").get("leafnodes", 0) >= 2, 20)
            yield {"hub": pair.hub, "leaf": pair.leaf, "second": second}


@pytest.fixture
def sides(three: dict[str, NatsServer]) -> Iterator[dict[str, JetStream]]:
    sides = {name: JetStream(jsclient.connect(server.url)) for name, server in three.items()}
    sides["hub"].create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    yield sides
    for js in sides.values():
        for name in list(js.stream_names()):
            js.delete_stream(name)
        js.nc.close()


def same_on_both(sides: dict[str, JetStream]) -> list[Stream]:
    """A stream JOBS at each leaf."""
    return [
        sides[name].create_stream(StreamConfig(name="JOBS", subjects=[f"jobs.{name}"])) for name in ("leaf", "second")
    ]


@pytest.mark.parametrize("way", ["pool", "typed"])
@pytest.mark.parametrize("through", ["own connection", "the hub"])
def test_letters_of_two_leaf_nodes(sides: dict[str, JetStream], way: str, through: str) -> None:
    same_on_both(sides)
    for name in ("leaf", "second"):
        js = sides[name] if through == "own connection" else JetStream(sides["hub"].nc, domain=name)
        js.publish(f"jobs.{name}", name.encode())
        consumer = js.create_consumer("JOBS", ConsumerConfig(durable_name="w"))
        if way == "pool":
            with WorkerPool(consumer, rejects, dead_letter="dead.x"):
                wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 1, 10)  # type: ignore[misc]
        else:
            consumer.typed(dict, on_bad="reject", dead_letter="dead.x").fetch(1, timeout=5)
            wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 1, 10)  # type: ignore[misc]
    assert payloads(sides["hub"]) == [b"leaf", b"second"]
    dead = sides["hub"].stream("DEAD")
    assert [dead.get_msg(seq).headers[MSG_ID].partition(".")[0] for seq in (1, 2)] == ["leaf", "second"]


def test_the_letter_of_a_leaf_node_that_comes_again_is_stored_once(sides: dict[str, JetStream]) -> None:
    """The look goes to the domain that has the letter."""
    same_on_both(sides)
    js = sides["leaf"]
    js.publish("jobs.leaf", b"a")
    for _ in range(2):
        consumer = js.create_consumer("JOBS", ConsumerConfig(durable_name="w"))
        with WorkerPool(consumer, rejects, dead_letter="dead.x"):
            wait_until(lambda consumer=consumer: consumer.info().ack_floor.stream_seq == 1, 10)  # type: ignore[misc]
        consumer.delete()
    assert payloads(sides["hub"]) == [b"a"]
