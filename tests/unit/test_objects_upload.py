"""The chunks of an upload: their acks prove that they were stored in the order in which they were sent."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.objectstore import upload
from jsclient.objectstore.upload import Upload


class Future:
    def __init__(self, seq: int, payload: bytes) -> None:
        self.seq, self.payload = seq, payload

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None) -> Any:
        return SimpleNamespace(seq=self.seq)


def uploading(monkeypatch: pytest.MonkeyPatch, sequences: list[int], there: int | None = None) -> Upload:
    """An upload whose chunks get these sequences; `there` chunks are found when they are recounted."""
    numbers = iter(sequences)
    monkeypatch.setattr(upload, "engine_of", lambda nc: SimpleNamespace(round_trip=0.001))
    js: Any = SimpleNamespace(nc=None, publish_async=lambda subject, chunk, msg_id: Future(next(numbers), chunk))
    found: dict[str, int] = {}
    stream: Any = SimpleNamespace(info=lambda **options: SimpleNamespace(state=SimpleNamespace(subjects=found)))
    made = Upload(js, stream, "bucket", 1 << 20, Deadline(None))
    if there is not None:
        found[made.subject] = there
        ticks = itertools.count(0.0, 10.0)
        monkeypatch.setattr(upload, "elapsed", lambda: next(ticks))
    return made


def test_sequences_may_have_holes_and_must_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = uploading(monkeypatch, [3, 4, 9])
    made.run(iter([b"a", b"b", b"c"]), 3, None)
    assert (made.size, made.chunks) == (3, 3)
    assert made.digest == "SHA-256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0="


@pytest.mark.parametrize("sequences", [[1, 3, 2], [5, 4, 6], [1, 2, 2]])
def test_another_order_than_sent_is_no_object(monkeypatch: pytest.MonkeyPatch, sequences: list[int]) -> None:
    with pytest.raises(errors.ObjectChanged, match="another order"):
        uploading(monkeypatch, sequences).run(iter([b"a", b"b", b"c"]), 3, None)


def test_a_slow_upload_is_recounted(monkeypatch: pytest.MonkeyPatch) -> None:
    uploading(monkeypatch, [1, 2, 3], there=3).run(iter([b"a", b"b", b"c"]), 3, None)
    with pytest.raises(errors.ObjectChanged, match="1 of 3 chunks"):
        uploading(monkeypatch, [1, 2, 3], there=2).run(iter([b"a", b"b", b"c"]), 3, None)
