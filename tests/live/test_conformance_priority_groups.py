"""Cases of the conformance framework for priority groups (ADR-42): the name of a test has the numbers of its cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, wait_until

SECOND = 1_000_000_000
REFUSED = range(400, 500)


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 12, 0):
        pytest.skip("all kinds of priority groups need nats-server 2.12")
    return js


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return js.create_stream(StreamConfig(name="PG", subjects=["t.>"], storage="memory"))


POLICIES: dict[str, dict[str, Any]] = {
    "overflow": {},
    "pinned_client": {"priority_timeout": 30.0},
    "prioritized": {},
}


def group(stream: Stream, policy: str, name: str = "C", messages: int = 0, **config: Any) -> Consumer:
    """A consumer with one group, `jobs`, of a stream with so many messages."""
    for number in range(messages):
        stream.js.publish("t.a", b"%d" % number)
    return stream.create_consumer(
        ConsumerConfig(
            name=name,
            **{
                "ack_policy": "explicit",
                "priority_groups": ["jobs"],
                "priority_policy": policy,
                **POLICIES[policy],
                **config,
            },
        )
    )


def raw(stream: Stream, pedantic: bool = False, name: str = "C", **config: Any) -> dict[str, Any]:
    """The answer to a request for a consumer that the client itself would refuse to send."""
    plain = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    request = {"stream_name": stream.name, "config": plain, "action": "", "pedantic": pedantic}
    subject = f"$JS.API.CONSUMER.CREATE.{stream.name}.{name}"
    found: dict[str, Any] = json.loads(stream.js.nc.request(subject, json.dumps(request).encode(), timeout=5).data)
    return found


class Pull:
    """One pull request as it is on the wire, and what came to it."""

    def __init__(self, consumer: Consumer, seconds: float = 1.5, **fields: Any) -> None:
        nc = consumer.js.nc
        inbox = nc.new_inbox()
        self.answers = nc.subscribe(inbox)
        request = {"batch": 1, "expires": int(seconds * SECOND), "group": "jobs", **fields}
        plain = {name: value for name, value in request.items() if value is not None}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream_name}.{consumer.name}"
        nc.publish(subject, json.dumps(plain).encode(), reply=inbox)

    def next(self, timeout: float = 5.0) -> jsclient.Msg:
        return self.answers.next(timeout=timeout)

    def status(self) -> int:
        """The code of the status that it was answered with; 0 for a message."""
        status = self.next().status
        return 0 if status is None else status.code

    def pin(self, timeout: float = 5.0) -> str:
        """The pin in a message."""
        message = self.next(timeout)
        assert message.status is None, message.status
        return message.headers["Nats-Pin-Id"]

    def served(self) -> bool:
        return bool(self.answers.pending)


# --- 100: settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_pg_101_102_103_policies(stream: Stream, policy: str) -> None:
    config = group(stream, policy).info().config
    assert (config.priority_groups, config.priority_policy) == (["jobs"], policy)
    assert policy != "pinned_client" or config.priority_timeout == 30.0


WRONG: list[dict[str, Any]] = [
    {"priority_groups": ["jobs"], "priority_policy": "bogus"},
    {"priority_groups": ["jobs"]},
    {"priority_groups": [], "priority_policy": "overflow"},
    {"priority_groups": ["jobs"], "priority_policy": "overflow", "deliver_subject": "d"},
]


@pytest.mark.parametrize("config", WRONG, ids=str)
def test_pg_104_105_106_109_wrong_settings(stream: Stream, config: dict[str, Any]) -> None:
    assert "error" in raw(stream, **config)
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        stream.create_consumer(ConsumerConfig(name="C", **config))
    assert list(stream.consumer_names()) == []


@pytest.mark.parametrize(
    ("name", "good"),
    [
        *(("jobs", True), ("abcdefghij012345", True), ("abcdefghij0123456", False)),
        *(("bad name", False), ("bad.name", False), ("", False)),
    ],
)
def test_pg_108_names_of_groups(stream: Stream, name: str, good: bool) -> None:
    answer = raw(stream, priority_groups=[name], priority_policy="overflow")
    assert ("error" not in answer) == good, answer


def test_pg_115_the_timeout_of_a_pin_can_be_changed(stream: Stream) -> None:
    pinned = group(stream, "pinned_client").info().config
    assert stream.update_consumer(pinned.replace(priority_timeout=300.0)).info().config.priority_timeout == 300.0


@pytest.mark.parametrize("policy", ["overflow", "pinned_client"])
def test_differs_from_pg_107_110_111_what_is_not_refused(stream: Stream, policy: str) -> None:
    """Several groups; and acks that are not explicit, also in a pedantic request."""
    config: dict[str, Any] = {"priority_groups": ["a", "b"], "priority_policy": policy, "priority_timeout": SECOND}
    assert "error" not in raw(stream, name="SEVERAL", **config)
    for ack in ("none", "all"):
        answer = raw(stream, pedantic=True, name=ack, **{**config, "priority_groups": ["jobs"], "ack_policy": ack})
        assert answer["config"]["ack_policy"] == ack


def test_differs_from_pg_112_113_114_each_policy_can_become_another(stream: Stream) -> None:
    plain = stream.create_consumer(ConsumerConfig(name="C", durable_name="C", ack_policy="explicit")).info().config
    for groups, policy in ((["jobs"], "overflow"), (["jobs"], "pinned_client"), (None, None)):
        changed: dict[str, Any] = {"priority_groups": groups, "priority_policy": policy}
        config = stream.update_consumer(plain.replace(**changed)).info().config
        assert (config.priority_groups, config.priority_policy) == (groups, policy)


# --- 200: overflow ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["overflow", "prioritized"])
@pytest.mark.parametrize("name", [None, "ghost"])
def test_pg_201_202_601_a_pull_without_a_group(stream: Stream, policy: str, name: str | None) -> None:
    consumer = group(stream, policy, messages=1)
    assert Pull(consumer, group=name).status() in REFUSED


def test_pg_203_204_205_the_conditions_of_a_pull(stream: Stream) -> None:
    consumer = group(stream, "overflow", messages=100)
    assert Pull(consumer, seconds=1, min_pending=1000).status() == 408
    enough = Pull(consumer, batch=5, min_pending=50)
    assert [enough.status() for _ in range(5)] == [0] * 5
    assert Pull(consumer, seconds=1, min_pending=1000, min_ack_pending=10).status() == 408
    rest = Pull(consumer, batch=45)
    assert [rest.status() for _ in range(45)] == [0] * 45
    assert Pull(consumer, min_pending=1000, min_ack_pending=10).status() == 0


@pytest.mark.parametrize("seconds", [4, 5, 3600, 3601])
def test_differs_from_pg_206_207_208_209_210_there_is_no_failover(stream: Stream, seconds: int) -> None:
    """A pull with it is served like one without, immediately."""
    pull = Pull(group(stream, "overflow", messages=1), failover=seconds)
    assert pull.next(2).status is None


# --- 300 and 400: pinned clients --------------------------------------------------------------------------------


def state(consumer: Consumer) -> tuple[str, bool]:
    """The pin of the group, and whether there is a time of it."""
    (found,) = consumer.info().priority_groups or []
    assert found.group == "jobs"
    return found.pinned_client_id or "", found.pinned_ts is not None


@pytest.mark.parametrize("fields", [{}, {"no_wait": True, "expires": None}], ids=str)
def test_pg_301_307_701_702_the_first_pull_is_pinned(stream: Stream, fields: dict[str, Any]) -> None:
    consumer = group(stream, "pinned_client", messages=1)
    assert state(consumer)[0] == ""
    pin = Pull(consumer, **fields).pin()
    assert state(consumer) == (pin, True)


def test_pg_302_303_304_others_wait(stream: Stream) -> None:
    consumer = group(stream, "pinned_client", messages=1)
    pin = Pull(consumer).pin()
    for _ in range(4):
        stream.js.publish("t.a", b"more")
    assert Pull(consumer, seconds=1).status() == 408
    assert Pull(consumer, id="definitely-not-the-pin").status() == 423
    pull = Pull(consumer, id=pin, batch=4)
    assert [pull.pin() for _ in range(4)] == [pin] * 4


@pytest.mark.slow
def test_pg_305_503_a_silent_client_loses_its_pin(stream: Stream) -> None:
    consumer = group(stream, "pinned_client", messages=2, priority_timeout=5.0)
    with stream.js.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.PG.C") as unpinned:
        pin = Pull(consumer).pin()
        other = Pull(consumer, seconds=30).pin(20)
        assert other != pin
        assert state(consumer)[0] == other
        assert Pull(consumer, id=pin).status() == 423
        assert json.loads(unpinned.next(timeout=5).data)["reason"] == "timeout"


@pytest.mark.slow
def test_pg_306_each_pull_keeps_the_pin(stream: Stream) -> None:
    consumer = group(stream, "pinned_client", messages=1, priority_timeout=3.0)
    pin = Pull(consumer).pin()
    for _ in range(5):
        time_passes(1.0, "the pins of a client last from pull to pull")
        stream.js.publish("t.a", b"more")
        assert Pull(consumer, id=pin).pin() == pin
    assert state(consumer)[0] == pin


def test_pg_401_501_502_703_an_unpin_lets_another_client_in(stream: Stream) -> None:
    consumer = group(stream, "pinned_client", messages=1)
    nc = stream.js.nc
    with nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PINNED.PG.C") as pinned:
        with nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.PG.C") as unpinned:
            nc.flush()
            pin = Pull(consumer).pin()
            told = json.loads(pinned.next(timeout=5).data)
            assert told["type"] == "io.nats.jetstream.advisory.v1.consumer_group_pinned"
            assert (told["stream"], told["consumer"], told["group"], told["pinned_id"]) == ("PG", "C", "jobs", pin)
            standby = Pull(consumer, seconds=30)
            stream.js.publish("t.a", b"2")
            consumer.unpin("jobs")
            other = standby.pin()
            assert other != pin
            assert state(consumer)[0] == other
            assert Pull(consumer, id=pin).status() == 423
            told = json.loads(unpinned.next(timeout=5).data)
            assert told["type"] == "io.nats.jetstream.advisory.v1.consumer_group_unpinned"
            assert (told["stream"], told["consumer"], told["group"], told["reason"]) == ("PG", "C", "jobs", "admin")


@pytest.mark.parametrize("body", [b'{"group":"ghost"}', b"", b"{not json"])
def test_pg_402_404_an_unpin_that_is_refused(stream: Stream, body: bytes) -> None:
    consumer = group(stream, "pinned_client", messages=1)
    pin = Pull(consumer).pin()
    assert "error" in json.loads(stream.js.nc.request("$JS.API.CONSUMER.UNPIN.PG.C", body, timeout=5).data)
    assert state(consumer)[0] == pin


def test_differs_from_pg_403_an_unpin_without_pins_is_no_error(stream: Stream) -> None:
    group(stream, "overflow").unpin("jobs")


# --- 600: prioritized -------------------------------------------------------------------------------------------


def test_pg_602_603_bounds_of_a_priority(stream: Stream) -> None:
    consumer = group(stream, "prioritized", messages=1)
    assert Pull(consumer, priority=-1).status() in REFUSED
    assert Pull(consumer, priority=10).status() in REFUSED
    assert Pull(consumer).status() == 0


def test_pg_604_605_the_lowest_is_served_first(stream: Stream) -> None:
    consumer = group(stream, "prioritized")
    high = Pull(consumer, seconds=30, batch=5, priority=5)
    stream.js.publish("t.a", b"alone")
    assert high.next().data == b"alone"
    low = Pull(consumer, seconds=30, batch=5, priority=0)
    for data in (b"1", b"2", b"3"):
        stream.js.publish("t.a", data)
    assert [low.next().data for _ in range(3)] == [b"1", b"2", b"3"]
    assert not high.served()


def test_pg_606_equals_take_turns(stream: Stream) -> None:
    consumer = group(stream, "prioritized")
    pulls = [Pull(consumer, seconds=30, batch=10, priority=0) for _ in range(2)]
    for number in range(4):
        stream.js.publish("t.a", b"%d" % number)
    wait_until(lambda: sum(pull.answers.pending for pull in pulls) == 4)
    assert all(pull.served() for pull in pulls)


def test_pg_704_no_groups_no_state(stream: Stream) -> None:
    plain = stream.create_consumer(ConsumerConfig(name="PLAIN", ack_policy="explicit"))
    assert not plain.info().priority_groups
