"""Leg 1: every record as JSON into the stream, with a message id, by the asynchronous publisher."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jsclient.jetstream import JetStream, StreamConfig
from tools.demo.flights import DemoError, Expected, Flight
from tools.demo.progress import Bar

STREAM = "FLIGHTS"


def publish_flights(js: JetStream, flights: Iterable[Flight], expected: Expected, bar: Bar) -> int:
    """Publish all records and check every acknowledgement; returns how many are stored."""
    js.create_stream(StreamConfig(name=STREAM, subjects=["flights.*"]))
    encode = msgspec.json.Encoder().encode
    futures = []
    for flight in flights:
        futures.append(js.publish_async(f"flights.{flight.carrier}", encode(flight), msg_id=f"flight-{flight.row}"))
        expected.add(flight)
        bar.step()
    js.publish_async_complete(timeout=60)
    acks = [future.result(60) for future in futures]
    bar.say(f"{len(acks):,} flights are stored, each with its ack")
    doubled = sum(1 for ack in acks if ack.duplicate)
    if doubled:
        raise DemoError(f"the server took {doubled:,} records for doubles")
    if len({ack.seq for ack in acks}) != len(acks):
        raise DemoError("two records were acknowledged with the same sequence number")
    return len(acks)
