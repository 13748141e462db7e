"""The requests behind consumers, as far as they need no server."""

from __future__ import annotations

from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.api import consumer_requests


def test_comparing_configurations() -> None:
    base = ConsumerConfig(durable_name="C")
    echo = ConsumerConfig(durable_name="C", name="C", ack_wait=30, max_deliver=-1, deliver_policy="all", num_replicas=0)
    assert consumer_requests.same(base, echo)
    assert consumer_requests.same(base.replace(headers_only=False, ack_wait=30.0), echo)
    assert not consumer_requests.same(base.replace(max_deliver=3), echo)
    assert not consumer_requests.same(ConsumerConfig(name="C"), echo)


def test_a_consumer_gets_a_name_once() -> None:
    """A create that is repeated with the same name makes no second consumer."""
    made = consumer_requests.named(ConsumerConfig())
    assert made.effective_name
    assert consumer_requests.named(made) is made
    durable = ConsumerConfig(durable_name="C")
    assert consumer_requests.named(durable) is durable


def test_metadata_of_the_server_is_not_sent_back() -> None:
    theirs = ConsumerConfig(durable_name="C", metadata={"_nats.level": "1", "mine": "yes"})
    assert consumer_requests.clean(theirs).metadata == {"mine": "yes"}
    ours = ConsumerConfig(durable_name="C", metadata={"mine": "yes"})
    assert consumer_requests.clean(ours) is ours
