"""Several tenants on one server: an account each.

The subjects and streams of one account do not exist for the other.
"""

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer

CONFIG = """
accounts {
  red:  { jetstream: enabled, users: [ { user: red,  password: r } ] }
  blue: { jetstream: enabled, users: [ { user: blue, password: b } ] }
}
"""

with NatsServer(CONFIG) as server:
    with (
        jsclient.connect(server.url, user="red", password="r") as red,
        jsclient.connect(server.url, user="blue", password="b") as blue,
    ):
        JetStream(red).create_stream(StreamConfig(name="ORDERS", subjects=["orders"]))
        JetStream(red).publish("orders", b"of red")
        try:
            JetStream(blue).stream("ORDERS")
        except errors.StreamNotFound:
            print("blue has no such stream")
