"""Finite reads of messages with values, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.finite_rig import Consumer

from jsclient import errors
from jsclient.codecs import OnBad
from jsclient.jetstream.consuming.finite import FiniteRead
from jsclient.jetstream.consuming.typed import values_of, with_policy
from jsclient.jetstream.consuming.typed_message import TypedMsg


class Numbers(Consumer):
    """What it brings is JSON; every third message is none."""

    decodes_with: Any = None

    def message(self, sequence: int, **options: Any) -> Any:
        found = super().message(sequence, **options)
        found.msg.data = b"no number" if sequence % 3 == 0 else b"%d" % sequence
        return found


def reading(consumer: Numbers, on_bad: OnBad, hook: Any = None) -> FiniteRead[TypedMsg[int]]:
    from jsclient import codecs

    js: Any = consumer.js
    js.decodes_with = codecs.JSON
    made = with_policy(values_of(js, int, on_bad, None), "none")
    given: Any = consumer
    return FiniteRead(given, 3, timeout=5.0, values=made, on_error=hook)


def bringing(count: int) -> Numbers:
    consumer = Numbers(ack_none=True, last=count)
    consumer.brings(*(consumer.message(sequence) for sequence in range(1, count + 1)))
    return consumer


def test_each_message_has_a_value() -> None:
    with reading(bringing(3), "raise") as read:
        assert [next(read).value, next(read).value] == [1, 2]
        third = next(read)
        with pytest.raises(errors.DecodeFailed):
            third.value  # noqa: B018
        assert list(read) == []


def test_what_cannot_be_decoded_is_left_out_and_told() -> None:
    told: list[tuple[Exception, Any]] = []
    with reading(bringing(3), "skip", lambda error, message: told.append((error, message))) as read:
        assert [message.value for message in read] == [1, 2]
    ((error, message),) = told
    assert isinstance(error, errors.DecodeFailed)
    assert message.stream_seq == 3
