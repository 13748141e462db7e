"""Frames of a connection: what counts against max_payload, and which subjects are remembered as checked."""

from __future__ import annotations

import pytest

from jsclient import checks, errors
from jsclient._connection.encoding import Encoder


@pytest.fixture
def encoder() -> Encoder:
    made = Encoder(lambda: "nats://host")
    made.max_payload = 100
    return made


def test_a_payload_may_have_as_many_bytes_as_the_server_takes(encoder: Encoder) -> None:
    assert encoder.encode("s", b"x" * 100) == b"PUB s 100\r\n" + b"x" * 100 + b"\r\n"
    with pytest.raises(errors.PayloadTooLarge, match="101 bytes"):
        encoder.encode("s", b"x" * 101)


def test_headers_count_too(encoder: Encoder) -> None:
    block = len("NATS/1.0\r\nA: b\r\n\r\n")
    assert encoder.encode("s", b"x" * (100 - block), headers={"A": "b"}).startswith(f"HPUB s {block} 100\r\n".encode())
    with pytest.raises(errors.PayloadTooLarge, match="101 bytes"):
        encoder.encode("s", b"x" * (101 - block), headers={"A": "b"})


def test_headers_that_the_server_does_not_take_are_refused(encoder: Encoder) -> None:
    encoder.takes_headers = False
    assert encoder.encode("s", b"x")
    with pytest.raises(errors.HeadersNotSupported):
        encoder.encode("s", b"x", headers={"A": "b"})


def test_a_subject_with_a_filter_is_not_remembered(encoder: Encoder) -> None:
    assert encoder.pub_start(checks.FilterInSubject("api.s.>")) == b"PUB api.s.>"
    with pytest.raises(errors.InvalidSubject, match="wildcards"):
        encoder.pub_start("api.s.>")
    assert encoder.pub_start("api.s") == b"PUB api.s"
    assert list(encoder.starts) == ["api.s"]
