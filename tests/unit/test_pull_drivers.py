"""Whatever drives the pump, beside a model of the server: bounds hold, and what is there comes, in order and once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, some_stored

from jsclient.jetstream.consuming import pump
from jsclient.jetstream.consuming.fetch import BatchEnd, Fetch
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pull_options import PullOptions, terms_for
from jsclient.jetstream.message import JetStreamMsg


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model ends pulls as soon as they are sent: a pause after that would be waited for in vain."""
    monkeypatch.setattr(pump, "FIRST_DELAY", 0.0)


every_seed = pytest.mark.parametrize("seed", range(0, 2000, 200))


@every_seed
def test_messages(seed: int) -> None:
    for number in range(seed, seed + 200):
        r = random.Random(number)
        max_bytes = r.choice([0, 500, 1000, 5000])
        left = some_stored(r, max_bytes or 1000)
        server = Server(r, left, trouble=r.choice([0.0, 0.05]))
        source: Any = Source(Connection(server), "P")  # type: ignore[arg-type]
        window = r.choice([1, 2, 3, 10, 50])
        options = PullOptions(max_messages=window, max_bytes=max_bytes, stop_after=r.choice([None, 1 + len(left) // 2]))
        wanted = left[: options.stop_after]
        messages = PullMessages(source, options)

        server.most, server.largest = window, max_bytes or server.largest
        assert [messages.next().stream_seq for _ in wanted] == [each.sequence for each in wanted], number
        server.trouble = 0.0
        messages.stop()


@every_seed
def test_fetch(seed: int) -> None:
    for number in range(seed, seed + 200):
        r = random.Random(number)
        max_bytes = r.choice([0, 500, 1000, 5000])
        left = some_stored(r, max_bytes or 1000)
        sizes = {each.sequence: each.size for each in left}
        server = Server(r, left, trouble=r.choice([0.0, 0.05]))
        source: Any = Source(Connection(server), "P")  # type: ignore[arg-type]
        seen: list[int] = []
        while server.left:
            before, want, waits = len(server.left), r.choice([1, 2, 5, 30]), r.random() < 0.5
            want = min(want, before) if waits else want
            terms = terms_for(5.0 if waits else 0.0, 0.0, no_wait=not waits)
            batch = Fetch(source, want, terms, JetStreamMsg, timeout=5.0 if waits else 0.0, max_bytes=max_bytes).run()
            found = [each.stream_seq for each in batch]
            seen += found
            assert batch.error is None
            assert found or server.trouble, number
            assert len(found) <= want
            if max_bytes:
                assert sum(sizes[each] for each in found) <= max_bytes
                assert len(found) == want or batch.ended in (
                    BatchEnd.MAX_BYTES,
                    BatchEnd.COMPLETE,
                    BatchEnd.NO_MESSAGES,
                )
            elif waits:
                assert (len(found), batch.ended) == (want, BatchEnd.COMPLETE)
            else:
                assert len(found) == min(want, before)
            assert not server.pulls
        assert seen == [each.sequence for each in left]
        assert not server.returned
