"""A fetch during the election of a leader, by a scripted server; with real clusters: `tests/faults`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream
from jsclient.testing import FakeServer
from jsclient.testing.fake import FakeClient, ScriptFailed

NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


def refused(code: int, err_code: int) -> bytes:
    return json.dumps({"type": "x", "error": {"code": code, "err_code": err_code, "description": "no"}}).encode()


def leaderless(pulls: int, about: bytes | None) -> Callable[[FakeClient], None]:
    """Nobody takes so many pulls; questions about the consumer are answered with `about` (None: not at all)."""

    def script(client: FakeClient) -> None:
        client.handshake(headers=True)
        sids: dict[bytes, bytes] = {}
        asked = 0
        while True:
            try:
                words = client.line(60).split() or [b""]
            except ScriptFailed:
                return
            if words[0] == b"PING":
                client.send(b"PONG\r\n")
            elif words[0] == b"SUB":
                sids[words[1].removesuffix(b"*")] = words[-1]
            elif words[0] == b"PUB" and len(words) == 4:
                sid = next(sid for prefix, sid in sids.items() if words[2].startswith(prefix))
                if b".CONSUMER.INFO." in words[1] and about is not None:
                    client.send(b"MSG %b %b %d\r\n%b\r\n" % (words[2], sid, len(about), about))
                elif b".CONSUMER.MSG.NEXT." in words[1]:
                    asked += 1
                    if asked <= pulls:
                        size = len(NO_RESPONDERS)
                        client.send(b"HMSG %b %b %d %d\r\n%b\r\n" % (words[2], sid, size, size, NO_RESPONDERS))
                    else:
                        client.send(b"MSG p.a %b $JS.ACK.P.C.1.1.1.1700000000000000000.0 1\r\n1\r\n" % sid)

    return script


@pytest.mark.slow
@pytest.mark.parametrize("about", [refused(503, 10008), None])
def test_a_fetch_waits_for_the_leader(about: bytes | None) -> None:
    with FakeServer(leaderless(2, about)) as fake, jsclient.connect(fake.url) as nc:
        consumer = JetStream(nc).consumer("P", "C", fetch_info=False)
        assert consumer.fetch(1, timeout=10)[0].data == b"1"
        assert consumer.next(timeout=0).data == b"1"


def test_without_a_leader_to_the_end_the_reason_is_raised() -> None:
    with FakeServer(leaderless(1000, refused(503, 10008))) as fake, jsclient.connect(fake.url) as nc:
        started = time.monotonic()
        with pytest.raises(errors.PullNoResponders):
            JetStream(nc).consumer("P", "C", fetch_info=False).fetch(1, timeout=0.6)
        assert 0.5 < time.monotonic() - started < 1


def test_a_consumer_that_does_not_exist_is_told_at_once() -> None:
    with FakeServer(leaderless(1000, refused(404, 10014))) as fake, jsclient.connect(fake.url) as nc:
        started = time.monotonic()
        with pytest.raises(errors.PullNoResponders):
            JetStream(nc).consumer("P", "C", fetch_info=False).fetch(1, timeout=10)
        assert time.monotonic() - started < 1
