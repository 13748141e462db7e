"""What is kept of a message under way: of a row no more than its frame."""

from __future__ import annotations

import pytest

from jsclient import errors
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.in_flight import FrameEntry
from jsclient.jetstream.publishing.outcome import in_doubt, no_stream, unknown
from jsclient.protocol import frames

PLAIN = frames.pub(frames.with_reply(frames.pub_start(b"s.a"), b"_INBOX.x.1"), b"value")
WITH_ID = frames.hpub(frames.with_reply(frames.pub_start(b"s.a"), b"_INBOX.x.1"), b"NATS/1.0\r\nA: b\r\n\r\n", b"value")


@pytest.mark.parametrize(("frame", "block"), [(PLAIN, None), (WITH_ID, b"NATS/1.0\r\nA: b\r\n\r\n")])
def test_what_a_frame_says(frame: bytes, block: bytes | None) -> None:
    entry = FrameEntry(b"1", bytes(frame))
    assert (entry.subject, entry.payload, entry._block) == ("s.a", b"value", block)


def test_it_ends_once() -> None:
    assert not FrameEntry(b"1", PLAIN).done()
    assert FrameEntry(b"1", PLAIN, _ack=PubAck(stream="S", seq=1)).done()
    assert FrameEntry(b"1", PLAIN, _error=errors.NotStored("x")).done()


def test_a_copy_that_nobody_refused_may_be_stored() -> None:
    entry = FrameEntry(b"1", bytes(PLAIN), _sends=2, _no_responders=1)
    assert in_doubt(entry)
    assert isinstance(no_stream(entry), errors.PublishUnknown)
    assert "sent 2 times" in str(unknown(entry, "silence"))
    entry._no_responders = 2
    assert not in_doubt(entry)
    assert isinstance(no_stream(entry), errors.NoStreamResponse)
