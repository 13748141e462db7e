"""Finite reads of messages with values, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.finite_rig import Consumer

from jsclient import errors
from jsclient.codecs import OnBad
from jsclient.jetstream.consuming.typed import reading_of
from jsclient.jetstream.consuming.typed_reads import TypedFiniteRead


class Numbers(Consumer):
    """What it brings is JSON; every third message is none."""

    decodes_with: Any = None

    def message(self, sequence: int, **options: Any) -> Any:
        found = super().message(sequence, **options)
        found.msg.payload = b"no number" if sequence % 3 == 0 else b"%d" % sequence
        return found


def reading(consumer: Numbers, on_bad: OnBad, hook: Any = None) -> TypedFiniteRead[int]:
    from jsclient import codecs

    js: Any = consumer.js
    js.decodes_with = codecs.JSON
    made = reading_of(js, int, on_bad, None, lambda: "none")
    return TypedFiniteRead(made, hook, consumer, 3, timeout=5.0)


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
