"""One attempt to publish: its payload and its answer."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream.publishing.asynchronous import check_payload
from jsclient.jetstream.publishing.options import HeaderCheck
from jsclient.jetstream.publishing.outcome import decode_ack, has_id, may_go_on


def block(**given: Any) -> bytes | None:
    return HeaderCheck(lambda timeout: 5).block(given.pop("headers", None), given.pop("msg_id", None), given)


def test_has_id() -> None:
    assert has_id(block(msg_id="1"))
    assert has_id(block(headers={"A": "b", "Nats-Msg-Id": "1"}))
    assert not has_id(block(headers={"A": "Nats-Msg-Id: 1"}))
    assert not has_id(None)


def test_answers_to_a_publish() -> None:
    assert decode_ack(b'{"stream":"T5", "seq":6}').seq == 6
    ack = decode_ack(b'{"stream":"S","seq":9,"duplicate":true,"domain":"hub","val":"8","unknown":[1]}')
    assert (ack.stream, ack.seq, ack.duplicate, ack.domain, ack.val) == ("S", 9, True, "hub", "8")
    with pytest.raises(errors.WrongLastSequence) as caught:
        decode_ack(
            b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'
        )
    assert caught.value.last_sequence == 5


def test_a_duplicate_that_is_not_stored_yet_is_no_ack() -> None:
    """Replicated streams of 2.10 note the id before the message is stored, and answer a second copy like this."""
    with pytest.raises(errors.DuplicateInProcess):
        decode_ack(b'{"stream":"S", "seq":0,"duplicate": true}')


@pytest.mark.parametrize(
    "garbage", [b"", b"hello", b"[]", b"{}", b"\xff", b'{"seq":1}', b'{"stream":"S"}', b'"x"', b'{"error":7}']
)
def test_garbage_is_no_ack(garbage: bytes) -> None:
    with pytest.raises(errors.InvalidPubAck):
        decode_ack(garbage)


def test_only_a_refusal_may_be_followed_by_another_answer() -> None:
    assert may_go_on(b'{"error":{"code":400}}')
    assert not may_go_on(b'{"stream":"S","seq":1}')
    assert not may_go_on(b'{"error":"of a plain service"}')


@pytest.mark.parametrize("payload", [b"text", "text", bytearray(b"text"), memoryview(b"text")])
def test_payloads_become_bytes(payload: Any) -> None:
    assert check_payload(payload, 4) == b"text"
    with pytest.raises(errors.PayloadTooLarge, match="6 bytes, the server takes 5"):
        check_payload(payload, 5, headers=2)


@pytest.mark.parametrize("payload", [None, 5, ["x"]])
def test_what_is_no_payload(payload: Any) -> None:
    with pytest.raises(errors.ConfigError, match="bytes or str"):
        check_payload(payload, 100)
