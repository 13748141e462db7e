"""Two domains over a leaf node, as in the NATS documentation: work from both sides, mirrors, sources, imports, cuts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, StreamSource
from jsclient.testing import LeafPair, NatsServer, Proxy, wait_until


@pytest.fixture(scope="module")
def pair() -> Iterator[LeafPair]:
    with LeafPair() as pair:
        yield pair


@pytest.fixture
def sides(pair: LeafPair) -> Iterator[dict[str, jsclient.Connection]]:
    """A connection to each server; afterwards both have no streams."""
    with jsclient.connect(pair.hub.url) as hub, jsclient.connect(pair.leaf.url) as leaf:
        sides = {"hub": hub, "leaf": leaf}
        yield sides
        for nc in sides.values():
            js = JetStream(nc)
            for name in list(js.stream_names()):
                js.delete_stream(name)


@pytest.mark.parametrize("domain", ["hub", "leaf"])
@pytest.mark.parametrize("side", ["hub", "leaf"])
def test_create_publish_and_consume_by_domain(sides: dict[str, jsclient.Connection], side: str, domain: str) -> None:
    js = JetStream(sides[side], domain=domain)
    assert js.account_info().domain == domain
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    for number in range(20):
        ack = js.publish(f"s.{number}", b"x", msg_id=str(number))
        assert (ack.stream, ack.seq, ack.domain) == ("S", number + 1, domain)
    assert stream.info().state.messages == 20
    assert stream.get_msg(7).subject == "s.6"
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    batch = consumer.fetch(5, timeout=5)
    assert [msg.metadata.stream_seq for msg in batch] == [1, 2, 3, 4, 5]
    for msg in batch:
        msg.double_ack(timeout=5)
    with consumer.messages() as messages:
        for msg in messages:
            msg.ack()
            if msg.metadata.stream_seq == 20:
                break
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 20, 5)
    for number, pattern in enumerate(("s.*", "s.>", "s.3")):  # the filter is part of the subject
        filtered = stream.create_consumer(ConsumerConfig(durable_name=f"F{number}", filter_subject=pattern))
        assert filtered.next(timeout=5).subject == ("s.3" if pattern == "s.3" else "s.0")
    assert list(js.stream_names()) == ["S"]
    other = JetStream(sides[side], domain="leaf" if domain == "hub" else "hub")
    assert list(other.stream_names()) == []
    assert list(JetStream(sides[domain]).stream_names()) == ["S"]


def test_a_server_answers_to_its_own_domain_and_to_none(sides: dict[str, jsclient.Connection]) -> None:
    assert JetStream(sides["leaf"]).account_info().domain == "leaf"
    assert JetStream(sides["leaf"], domain="leaf").account_info().domain == "leaf"
    assert JetStream(sides["leaf"], api_prefix="$JS.hub.API").account_info().domain == "hub"


def test_mirror_and_source_across_domains(sides: dict[str, jsclient.Connection]) -> None:
    hub, leaf = JetStream(sides["hub"]), JetStream(sides["leaf"])
    leaf.create_stream(StreamConfig(name="EDGE", subjects=["edge.>"]))
    mirror = hub.create_stream(StreamConfig(name="COPY", mirror=StreamSource(name="EDGE", domain="leaf")))
    both = hub.create_stream(
        StreamConfig(name="SUM", sources=[StreamSource(name="EDGE", domain="leaf", filter_subject="edge.a")])
    )
    for _ in range(10):
        leaf.publish("edge.a", b"x")
        leaf.publish("edge.b", b"y")
    wait_until(lambda: mirror.info().state.messages == 20 and both.info().state.messages == 10, 20)
    info = mirror.info()
    assert info.config.mirror is not None
    assert info.config.mirror.external is not None
    assert info.config.mirror.external.api == "$JS.leaf.API"
    assert {msg.subject for msg in hub.ordered_consumer("COPY").fetch(20, timeout=5)} == {"edge.a", "edge.b"}
    assert hub.update_stream(info.config.replace(max_msgs=5)).info().config.mirror == info.config.mirror


def test_a_cut_leaf_link_looks_like_one() -> None:
    """NoResponders at once, and all as before when the link is back."""
    proxies: list[Proxy] = []

    def between(port: int) -> int:
        proxies.append(Proxy(port).start())
        return proxies[0].port

    try:
        with LeafPair(via=between) as pair, jsclient.connect(pair.leaf.url) as nc:
            js = JetStream(nc, domain="hub")
            wait_until(lambda: _answers(js), 10)
            stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
            consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
            js.publish("s.1", b"x")
            proxies[0].refuse()
            wait_until(lambda: not _answers(js), 10)
            for call in (
                js.account_info,
                stream.info,
                lambda: js.publish("s.2", b"x", retry_attempts=0),
                lambda: consumer.next(timeout=5),
                lambda: consumer.fetch(10, timeout=5),
            ):
                # The best of three: a loaded machine may be away for longer than the promised time.
                assert min(until_refused(call) for _ in range(3)) < 0.1
            healed = time.monotonic()
            proxies[0].accept()
            for number in range(100):
                js.publish(f"s.{number}", b"x", msg_id=str(number))
            assert time.monotonic() - healed < 10
            assert stream.info().state.messages == 101
            assert len(consumer.fetch(101, timeout=10)) == 101
    finally:
        for proxy in proxies:
            proxy.close()


def until_refused(call: Callable[[], object]) -> float:
    """Seconds until NoResponders is raised."""
    started = time.monotonic()
    with pytest.raises(errors.NoResponders):
        call()
    return time.monotonic() - started


def _answers(js: JetStream) -> bool:
    try:
        js.account_info(timeout=1)
    except (errors.NoResponders, errors.RequestTimeout):
        return False
    return True


# --- an import from another account ------------------------------------------------------------------------------

ACCOUNTS = """
accounts {
  acc {
    jetstream: enabled
    users: [ { user: owner, password: x } ]
    exports: [
      { service: "$JS.hub.API.CONSUMER.MSG.NEXT.S.C", response_type: stream }
      { service: "$JS.ACK.S.C.>", response_type: stream }
    ]
  }
  guest {
    users: [ { user: guest, password: x } ]
    imports: [
      { service: { account: acc, subject: "$JS.hub.API.CONSUMER.MSG.NEXT.S.C" },
        to: "JS.acc@hub.API.CONSUMER.MSG.NEXT.S.C" }
      { service: { account: acc, subject: "$JS.ACK.S.C.>" } }
    ]
  }
}
no_auth_user: guest
"""


def check_import(owner: jsclient.Connection, guest: jsclient.Connection) -> None:
    """Bind by name, fetch, iterate, ack, metadata: with nothing exported but MSG.NEXT and the acks, and no question."""
    asked: list[str] = []
    home = JetStream(owner)
    stream = home.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    for number in range(30):
        home.publish(f"s.{number}", b"m%d" % number)
    js = JetStream(guest, api_prefix="JS.acc@hub.API", on_request=lambda subject, payload: asked.append(subject))
    consumer = js.consumer("S", "C", fetch_info=False)
    for msg in consumer.fetch(10, timeout=5):
        assert (msg.metadata.stream, msg.metadata.consumer, msg.metadata.num_delivered) == ("S", "C", 1)
        msg.ack()
    msg = consumer.next(timeout=5)
    assert (msg.subject, msg.data, msg.metadata.stream_seq) == ("s.10", b"m10", 11)
    msg.double_ack(timeout=5)
    seen = []
    with consumer.messages() as messages:
        for msg in messages:
            seen.append(msg.metadata.stream_seq)
            msg.ack()
            if len(seen) == 19:
                break
    assert seen == list(range(12, 31))
    assert asked == []
    wait_until(lambda: home.consumer_info("S", "C").ack_floor.stream_seq == 30, 5)
    with pytest.raises((errors.JetStreamUnavailable, errors.RequestTimeout), match="JS.acc@hub.API"):
        js.consumer("S", "C", timeout=2)


def test_an_import_on_one_server() -> None:
    with (
        NatsServer("jetstream { domain: hub }\n" + ACCOUNTS) as server,
        jsclient.connect(server.url, user="owner", password="x") as owner,
        jsclient.connect(server.url, user="guest", password="x") as guest,
    ):
        check_import(owner, guest)


def test_an_import_seen_from_a_leaf_node() -> None:
    """The leaf is connected to the importing account of the hub."""
    with (
        LeafPair(hub_config=ACCOUNTS) as pair,
        jsclient.connect(pair.hub.url, user="owner", password="x") as owner,
        jsclient.connect(pair.leaf.url) as leaf,
    ):
        check_import(owner, leaf)
