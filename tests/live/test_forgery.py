"""Somebody that has seen a reply subject can forge the reply to no other request: tokens are random and serve once."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import Msg, nuid
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer


@pytest.fixture
def attacker(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url) as connection:
        yield connection


def neighbours(seen: str) -> list[str]:
    """Reply subjects that may be those of other requests, if tokens had any order."""
    prefix, _, token = seen.rpartition(".")
    digits = [str(number) for number in range(200)]
    nexts = [token[:-1] + character for character in nuid.ALPHABET + "-_"]
    if token.isdigit():
        nexts += [str(int(token) + step) for step in range(-50, 50)]
    return [f"{prefix}.{guess}" for guess in dict.fromkeys([*digits, *nexts]) if guess != token]


def test_a_responder_forges_no_reply_to_another_request(nc: Any, attacker: Any) -> None:
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def tell(message: Msg) -> None:
        seen.put(message.reply)
        message.respond(b"mine")

    attacker.subscribe("forge.open", tell)
    attacker.flush()
    release = threading.Event()

    def answer_late(message: Msg) -> None:
        release.wait(5)
        message.respond(b"honest")

    with jsclient.connect(nc.connected_url) as honest:
        honest.subscribe("forge.other", answer_late)
        honest.flush()
        found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        assert nc.request("forge.open").data == b"mine"
        threads = [
            threading.Thread(target=lambda: found.put(nc.request("forge.other", timeout=10).data)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for subject in neighbours(seen.get(timeout=5)):
            attacker.publish(subject, b"forged")
        assert nc.request("forge.open").data == b"mine"
        for subject in neighbours(seen.get(timeout=5)):
            attacker.publish(subject, b"forged")
        attacker.flush()
        nc.flush()
        release.set()
        for thread in threads:
            thread.join(10)
    assert [found.get_nowait() for _ in threads] == [b"honest"] * 20


def test_a_subscriber_forges_no_ack_of_another_message(nc: Any, attacker: Any) -> None:
    js = JetStream(nc)
    stream = js.create_stream(StreamConfig(name="FORGE", subjects=["forgejs.>"], no_ack=True))
    seen = attacker.subscribe("forgejs.seen")
    attacker.flush()
    js.publish_async("forgejs.seen", b"x")
    futures = [js.publish_async(f"forgejs.{number}", b"x") for number in range(30)]
    nc.flush()
    ack = b'{"stream":"FORGE","seq":7}'
    for subject in neighbours(seen.next(timeout=5).reply):
        attacker.publish(subject, ack)
    attacker.flush()
    nc.flush()
    assert not any(future.done() for future in futures)
    js.async_publisher.recovery.abandon("the test is over")
    stream.delete()


def test_nobody_forges_the_end_of_another_pull(nc: Any, attacker: Any) -> None:
    """The subject of a pull is seen by whoever may listen to the API."""
    js = JetStream(nc)
    stream = js.create_stream(StreamConfig(name="FORGEPULL", subjects=["forgepull"]))
    consumer = stream.create_consumer(ConsumerConfig(durable_name="c"))
    pulls = attacker.subscribe("$JS.API.CONSUMER.MSG.NEXT.FORGEPULL.c")
    attacker.flush()
    assert not consumer.fetch(1, 0.2)
    first = pulls.next(timeout=5).reply
    prefix, _, token = first.rpartition(".")
    number, _, seal = token.partition("-")
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: found.put(consumer.fetch(1, 10)))
    thread.start()
    assert pulls.next(timeout=5).reply.startswith(prefix), "the inbox is used again"
    for guess in (f"{int(number) + 1}", f"{int(number) + 1}-{seal}", f"{int(number) + 1}-"):
        block = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
        engine = engine_of(attacker)
        engine.enqueue(engine.encode(f"{prefix}.{guess}", b"", headers=block))
    attacker.flush()
    nc.flush()
    js.publish("forgepull", b"real")
    thread.join(10)
    assert [message.data for message in found.get_nowait()] == [b"real"]
    stream.delete()


def test_tokens_are_random_and_come_once() -> None:
    tokens = [nuid.new_token() for _ in range(5 * nuid.TOKENS_AT_ONCE)]
    assert len(set(tokens)) == len(tokens)
    assert {len(token) for token in tokens} == {nuid.TOKEN_LENGTH}
    for place in range(nuid.TOKEN_LENGTH):
        assert len({token[place] for token in tokens}) == 64, "each character has 6 random bits"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_has_other_tokens_than_its_parent() -> None:
    nuid.new_token()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b" ".join(nuid.new_token() for _ in range(50)))
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = set(os.read(read, 10_000).split())
    os.close(read)
    os.close(write)
    assert len(theirs) == 50
    assert not theirs & {nuid.new_token() for _ in range(2 * nuid.TOKENS_AT_ONCE)}
