"""Tests of a project; tests/live/test_testing_plugin.py runs them with the plugin."""

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import Proxy, wait_until


def place_order(js: JetStream, item: str) -> None:  # the code under test
    js.publish("orders.new", item, msg_id=f"order-{item}")


def test_an_order_is_stored(jetstream: JetStream) -> None:
    stream = jetstream.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    place_order(jetstream, "book")
    assert stream.info().state.messages == 1


def test_a_cut_link_loses_nothing(jetstream: JetStream, fault_proxy: Proxy) -> None:
    stream = jetstream.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    with jsclient.connect(fault_proxy.url) as nc:
        fault_proxy.cut()
        place_order(JetStream(nc), "book")
        wait_until(lambda: nc.stats().reconnects == 1)
    assert stream.info().state.messages == 1
