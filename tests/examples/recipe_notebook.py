"""A notebook: each part between the lines `# %%` is a cell.

Jupyter, VS Code and Spyder run this file cell by cell.
"""

# %% Once: a connection of its own cell. Running it again gives the old one back.
import jsclient
from jsclient.jetstream import JetStream

nc = jsclient.shared(
    jsclient.ConnectOptions(servers="nats://127.0.0.1:4222", name="notebook")
)
js = JetStream(nc)

# %% As often as you like: the same configuration again is fine.
stream = js.create_or_update_stream(name="SENSORS", subjects=["sensors.*"])
for room, degrees in (("kitchen", 21.5), ("cellar", 12.0), ("kitchen", 22.5)):
    js.publish(f"sensors.{room}", str(degrees))

# %% All stored messages, or an error. The stop button (Ctrl-C) ends any wait.
with stream.ordered_consumer().read_until(drained=True) as messages:
    measured = {msg.stream_seq: (msg.subject, float(msg.data)) for msg in messages}
assert len(measured) >= 3

# %% What came since: run this cell again and again.
js.publish("sensors.attic", "30.0")
since = stream.ordered_consumer(
    deliver_policy="by_start_sequence", opt_start_seq=max(measured) + 1
)
batch = since.fetch(10, timeout=0.5)
assert {msg.subject for msg in batch} == {"sensors.attic"}

# %% The last cell: sends what is left, and closes.
nc.close()
