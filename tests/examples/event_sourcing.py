"""Event sourcing: the state is the sum of the events of a subject.

An expected sequence prevents lost updates.
"""

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, Stream, StreamConfig


def load(stream: Stream, subject: str) -> tuple[int, int]:
    """(balance, sequence of the last event of this account)"""
    balance, last = 0, 0
    with stream.ordered_consumer(filter_subjects=[subject]).read_until(
        drained=True
    ) as events:
        for event in events:
            balance += int(event.data)
            last = event.stream_seq
    return balance, last


def withdraw(js: JetStream, stream: Stream, account: str, amount: int) -> int:
    subject = f"account.{account}"
    balance, last = load(stream, subject)
    if balance < amount:
        raise ValueError("not enough")
    js.publish(
        subject,
        str(-amount),
        expected_last_subject_seq=last,
        msg_id=f"{account}-after-{last}",
    )
    return last


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="ACCOUNTS", subjects=["account.*"])
    )
    before, _ = load(stream, "account.sue")
    js.publish("account.sue", b"100")
    seen = withdraw(js, stream, "sue", 30)
    try:  # another program, which has read the same state before that withdrawal
        js.publish("account.sue", b"-80", expected_last_subject_seq=seen)
    except errors.WrongLastSequence:
        print("somebody was faster: load again and decide again")
    assert load(stream, "account.sue")[0] == before + 70
