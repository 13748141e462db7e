"""Exactly-once processing: one transaction of the database stores result and position.

An ack alone is not enough: after a crash of the server or of this program, a message
may be redelivered. So the database remembers the sequence of the last message that it
contains, and the program recognizes redelivered messages.
"""

import sqlite3

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig

db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE balance (account TEXT PRIMARY KEY, cents INTEGER)")
db.execute("CREATE TABLE position (stream TEXT PRIMARY KEY, seq INTEGER)")
db.execute("INSERT INTO position VALUES ('PAYMENTS', 0)")


def book(msg: JetStreamMsg) -> None:
    with db:  # one transaction: both rows, or none
        (last,) = db.execute(
            "SELECT seq FROM position WHERE stream = 'PAYMENTS'"
        ).fetchone()
        if msg.stream_seq <= last:
            return  # it was booked before; only its ack was lost
        account, cents = msg.data.decode().split()
        db.execute("INSERT OR IGNORE INTO balance VALUES (?, 0)", (account,))
        db.execute(
            "UPDATE balance SET cents = cents + ? WHERE account = ?",
            (int(cents), account),
        )
        db.execute(
            "UPDATE position SET seq = ? WHERE stream = 'PAYMENTS'", (msg.stream_seq,)
        )


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="PAYMENTS", subjects=["payments"])
    )
    for number in range(10):
        js.publish(
            "payments", "sue 100", msg_id=f"payment-{number}"
        )  # a repeated publish is stored once

    # Begin behind the position in the database. max_ack_pending=1: one message at a
    # time, in the order of the stream.
    (last,) = db.execute(
        "SELECT seq FROM position WHERE stream = 'PAYMENTS'"
    ).fetchone()
    start = ConsumerConfig(
        deliver_policy="by_start_sequence", opt_start_seq=last + 1, max_ack_pending=1
    )
    with stream.create_consumer(start).messages(max_messages=1) as messages:
        for msg in messages:
            book(msg)
            book(msg)  # as if it had been delivered twice
            msg.ack()
            if msg.metadata.num_pending == 0:
                break
    payments = stream.info().state.messages

assert db.execute("SELECT cents FROM balance").fetchone() == (100 * payments,)
