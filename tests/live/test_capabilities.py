"""What the server can do, and what users must be granted: proved by users who have no more than that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer


def test_level_of_the_running_server(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        level = js.api_level()
        version = server.version[:2]
        assert level is not None
        assert (level == 0) == (version < (2, 11))
        for release in ((2, 10), (2, 11), (2, 12), (2, 14), (2, 15)):
            assert js.capabilities.at_least(release) is (version >= release)


def test_the_level_is_asked_again_after_a_reconnect() -> None:
    calls: list[str] = []
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc, on_request=lambda subject, payload: calls.append(subject))
        js.api_level()
        js.api_level()
        assert calls == ["$JS.API.INFO"]
        server.restart()
        assert js.account_info(timeout=10).streams == 0
        js.api_level(timeout=10)
        js.api_level()
        assert calls == ["$JS.API.INFO"] * 3


def test_account_info(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", storage="memory", max_bytes=1000))
        info = js.account_info()
        assert info.streams == 1
        assert info.consumers == 0
        assert info.limits.max_streams == -1
        assert info.domain == ""
        js.delete_stream("S")


def test_no_jetstream_at_all() -> None:
    with NatsServer(jetstream=False) as server, jsclient.connect(server.url) as nc:
        with pytest.raises(errors.JetStreamUnavailable, match="no JetStream"):
            JetStream(nc).account_info()
        assert JetStream(nc).api_level() is None


def test_an_account_without_jetstream() -> None:
    config = (
        "accounts { A { users: [{user: a, password: a}] }, B { jetstream: enabled, users: [{user: b, password: b}] } }"
    )
    with NatsServer(config) as server, jsclient.connect(server.url, user="a", password="a") as nc:
        with pytest.raises((errors.JetStreamNotEnabledForAccount, errors.JetStreamUnavailable)):
            JetStream(nc).account_info()


def test_unknown_domain(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc, domain="nowhere")
        with pytest.raises(errors.JetStreamUnavailable, match=r"\$JS\.nowhere\.API"):
            js.account_info(timeout=2)
        with pytest.raises(errors.NoResponders):
            js.create_stream(StreamConfig(name="S"))


# --- permissions ----------------------------------------------------------------------------------------------

USES = {
    "publisher": ("publish",),
    "worker": ("consume",),
    "asker": ("consume", "info"),
    "reader": ("read",),
    "manager": ("manage", "list"),
    "orderly": ("ordered",),
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[NatsServer]:
    """A server on which every user has exactly what required_permissions says."""
    with NatsServer() as plain, jsclient.connect(plain.url) as nc:
        js = JetStream(nc)
        users = ["{ user: root, password: x }"]
        for name, uses in USES.items():
            consumer = "C" if "consume" in uses else None
            granted = js.required_permissions("S", consumer, uses=uses, subjects=["s.>"])  # type: ignore[arg-type]
            users.append(f"{{ user: {name}, password: x, {granted} }}")
    with NatsServer("authorization { users: [\n" + "\n".join(users) + "\n] }") as server:
        with jsclient.connect(server.url, user="root", password="x") as nc:
            js = JetStream(nc)
            stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
            js.create_stream(StreamConfig(name="OTHER", subjects=["o"]))
            stream.create_consumer(ConsumerConfig(durable_name="C"))
            for number in range(5):
                js.publish(f"s.{number}", b"x")
        yield server


@pytest.fixture
def as_user(guarded: NatsServer, request: pytest.FixtureRequest) -> Iterator[JetStream]:
    with jsclient.connect(guarded.url, user=request.param, password="x") as nc:
        yield JetStream(nc, timeout=3)


def test_one_subject_may_be_given_as_a_str(js: JetStream) -> None:
    granted = js.required_permissions("S", uses=("publish",), subjects="s.>")
    assert granted == js.required_permissions("S", uses=("publish",), subjects=["s.>"])
    assert "s.>" in granted.publish


@pytest.mark.parametrize("as_user", ["publisher"], indirect=True)
def test_a_publisher(as_user: JetStream) -> None:
    assert as_user.publish("s.new", b"x").stream == "S"
    assert as_user.publish_async("s.new", b"x", msg_id="1").result(5).stream == "S"
    with pytest.raises(errors.PermissionViolation):
        as_user.publish("o", b"x", timeout=3)


@pytest.mark.parametrize("as_user", ["worker"], indirect=True)
def test_a_worker_that_may_not_ask(as_user: JetStream) -> None:
    consumer = as_user.consumer("S", "C", fetch_info=False)
    first = consumer.fetch(2, timeout=5)
    assert len(first) == 2
    assert all(msg.metadata.stream == "S" for msg in first)
    for msg in first:
        msg.double_ack(timeout=5)
    with pytest.raises(errors.PermissionViolation):
        as_user.consumer("S", "C")


@pytest.mark.parametrize("as_user", ["asker"], indirect=True)
def test_a_worker_that_may_ask(as_user: JetStream) -> None:
    assert as_user.consumer("S", "C").cached_info is not None
    assert as_user.stream("S").info().config.name == "S"
    with pytest.raises(errors.PermissionViolation):
        as_user.stream("OTHER")


@pytest.mark.parametrize("as_user", ["reader"], indirect=True)
def test_a_reader(as_user: JetStream) -> None:
    stream = as_user.stream("S")
    assert stream.get_msg(1).seq == 1
    assert stream.get_last_msg("s.1").subject == "s.1"
    assert stream.get_msg(1, direct=False).seq == 1
    with pytest.raises(errors.PermissionViolation):
        stream.delete_msg(1)


@pytest.mark.parametrize("as_user", ["orderly"], indirect=True)
def test_an_ordered_reader(as_user: JetStream) -> None:
    with as_user.ordered_consumer("S") as consumer:
        assert len(consumer.fetch(3, timeout=5)) == 3


@pytest.mark.parametrize("as_user", ["manager"], indirect=True)
def test_a_manager(as_user: JetStream) -> None:
    stream = as_user.stream("S")
    stream.create_consumer(ConsumerConfig(durable_name="M", filter_subject="s.1"))
    stream.create_or_update_consumer(ConsumerConfig(durable_name="M", filter_subject="s.1", max_deliver=7))
    assert sorted(stream.consumer_names()) == ["C", "M"]
    stream.delete_consumer("M")
    as_user.update_stream(stream.info().config.replace(max_msgs=1000))
    assert sorted(as_user.stream_names()) == ["OTHER", "S"]
    assert as_user.account_info().streams == 2
    with pytest.raises(errors.PermissionViolation):
        as_user.delete_stream("OTHER")


def test_permissions_of_domains_imports_and_push(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        granted = JetStream(nc, domain="hub").required_permissions("S", "C", uses=["consume", "info"])
        assert granted.publish[0] == "$JS.hub.API.CONSUMER.MSG.NEXT.S.C"
        assert "$JS.ACK.S.C.>" in granted.publish
        assert "$JS.hub.API.CONSUMER.INFO.S.C" in granted.publish
        assert granted.subscribe == ("_INBOX.>",)
        js = JetStream(nc, api_prefix="JS.acc@hub.API")
        push = js.required_permissions("S", "P", uses=["push"], deliver_subject="deliver.P")
        assert "deliver.P" in push.subscribe
        assert "$JS.FC.S.P.>" in push.publish
        assert '"JS.acc@hub.API.CONSUMER.INFO.S.P"' in str(push)
        for kind in ({}, {"uses": ["publish"]}):
            with pytest.raises(errors.ConfigError, match=r"pass subjects=\['orders\.\*'\]"):
                js.required_permissions("S", **kind)  # type: ignore[arg-type]
        for wrong in ({"uses": ["everything"]}, {"uses": ["push"]}, {"uses": "publish", "subjects": ["a..b"]}):
            with pytest.raises(errors.ConfigError):
                js.required_permissions("S", "P", **wrong)
        with pytest.raises(errors.InvalidName):
            js.required_permissions("a.b")
