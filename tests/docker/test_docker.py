"""The same contract against a nats-server in a container, through testcontainers.

tools/docker_engine.sh brings an engine where it can; where it cannot, these tests say why and are left out. With
REQUIRE_DOCKER=1 that is an error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import wait_until
from jsclient.testing.external import forget_streams, in_container

pytestmark = pytest.mark.docker

IMAGE = os.environ.get("NATS_IMAGE", "nats:2")


def why_no_engine() -> str:
    """Why no engine answers, or "". A raw probe: docker.from_env() leaves an open socket behind when it fails."""
    told = os.environ.get("NO_DOCKER")
    if told:
        return told
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return ""  # another machine: the test itself finds out
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(address.removeprefix("unix://"))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return "" if b" 200 " in probe.recv(100) else f"what listens at {address} is no Docker engine"
    except OSError as error:
        return f"no Docker engine at {address}: {error}"


@pytest.fixture(scope="module")
def container() -> Iterator[DockerContainer]:
    reason = why_no_engine()
    if reason:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    ready = LogMessageWaitStrategy("Server is ready").with_startup_timeout(40)
    made = DockerContainer(IMAGE).with_exposed_ports(4222).with_command("-js -sd /tmp/store").waiting_for(ready)
    with made as running:
        yield running


@pytest.fixture(scope="module")
def url(container: DockerContainer) -> str:
    return f"nats://{container.get_container_host_ip()}:{container.get_exposed_port(4222)}"


def test_publish_fetch_and_ack(url: str) -> None:
    with jsclient.connect(url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="ORDERS", subjects=["ORDERS.*"]))
        acks = [js.publish("ORDERS.new", b"%d" % number, msg_id=str(number)) for number in range(10)]
        assert [ack.seq for ack in acks] == list(range(1, 11))
        assert js.publish("ORDERS.new", b"0", msg_id="0").duplicate
        consumer = stream.create_or_update_consumer(ConsumerConfig(durable_name="CONS"))
        messages = consumer.fetch(10, timeout=10)
        assert [message.data for message in messages] == [b"%d" % number for number in range(10)]
        for message in messages:
            message.double_ack()
        info = consumer.info()
        assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 10)


def test_request_and_reply(url: str) -> None:
    with jsclient.connect(url) as nc, nc.subscribe("echo", lambda message: message.respond(message.data)):
        assert nc.request("echo", b"hello", timeout=10).data == b"hello"


def if_it_listens(url: str) -> jsclient.Connection | None:
    """The engine's proxy accepts connections before the server in the container listens, and then closes them."""
    try:
        return jsclient.connect(url)
    except errors.ConnectFailed:
        return None


def test_the_data_survives_a_restart_of_the_container(container: DockerContainer, url: str) -> None:
    with jsclient.connect(url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="KEPT", subjects=["kept"]))
        js.publish("kept", b"still here")
    container.get_wrapped_container().restart(timeout=10)
    again = f"nats://{container.get_container_host_ip()}:{container.get_exposed_port(4222)}"
    with wait_until(lambda: if_it_listens(again), 20) as nc:
        assert JetStream(nc).stream("KEPT").get_msg(1).data == b"still here"


def test_the_container_of_the_pytest_plugin(container: DockerContainer) -> None:
    with in_container(IMAGE) as found, jsclient.connect(found.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="HERE", subjects=["here"]))
        forget_streams(js, found, set())
        assert list(js.stream_names()) == []
    with pytest.raises(errors.ConnectFailed):
        jsclient.connect(found.url, connect_timeout=2)
