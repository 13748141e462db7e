"""Scheduled jobs: a message for later (server 2.12), and a periodic job.

The job runs once per interval, in one of many processes.
"""

import datetime as dt

import jsclient
from jsclient import coordination
from jsclient.jetstream import JetStream, Schedule, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    if nc.server_info.at_least(2, 12):
        config = StreamConfig(
            name="LATER", subjects=["later.>", "due.>"], allow_msg_schedules=True
        )
        stream = js.create_or_update_stream(config)
        soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1)
        js.publish(
            "later.reminder", b"call Sue", schedule=Schedule.at(soon, "due.reminder")
        )
        (msg,) = stream.ordered_consumer(filter_subjects=["due.>"]).fetch(1, timeout=10)
        assert msg.data == b"call Sue"

    age = None if nc.server_info.at_least(2, 11) else 7200
    if coordination.once_per(
        coordination.lease_bucket(js, ttl=age), "nightly-report", 3600
    ):
        print("this process makes the report of this hour")
