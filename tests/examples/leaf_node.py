"""A leaf node: a server at the edge with its own JetStream.

The hub copies the streams of the leaf when the line is up.
"""

import jsclient
from jsclient.jetstream import ExternalStream, JetStream, StreamConfig, StreamSource
from jsclient.testing import LeafPair, wait_until

with (
    LeafPair() as pair,
    jsclient.connect(pair.leaf.url) as edge,
    jsclient.connect(pair.hub.url) as center,
):
    at_edge, at_hub = JetStream(edge, domain="leaf"), JetStream(center, domain="hub")
    at_edge.create_stream(StreamConfig(name="SENSORS", subjects=["sensors.>"]))
    at_edge.publish(
        "sensors.1", b"21.5"
    )  # stored at the edge, also while the line is down

    source = StreamSource(name="SENSORS", external=ExternalStream(api="$JS.leaf.API"))
    copy = at_hub.create_stream(StreamConfig(name="ALL", sources=[source]))
    wait_until(lambda: copy.info().state.messages == 1, 20)
