"""What is known about the streams behind subjects, and for how long."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream.publishing import streams as publish_streams
from jsclient.jetstream.publishing.streams import (
    EXISTS,
    FACTS_FOR,
    FORBIDDEN,
    NONE,
    UNAVAILABLE,
    Streams,
    ask_for_stream,
    check_window,
    names_answer,
    same_id_for,
)


def test_answers_about_streams() -> None:
    assert names_answer(b'{"streams":["S"],"total":1}') == "exists"
    assert names_answer(b'{"streams":null,"total":0}') == "none"
    assert names_answer(b'{"total":0}') == "none"
    assert names_answer(b'{"error":{"code":503}}') == "unavailable"
    assert names_answer(b"nonsense") == "unavailable"


def stream_info(name: str = "S", subjects: tuple[str, ...] = ("s.>",), **config: Any) -> bytes:
    plain = {"name": name, "subjects": list(subjects), "duplicate_window": 120_000_000_000, **config}
    return json.dumps({"config": plain, "created": "2024-01-01T00:00:00Z", "state": {}}).encode()


NAMES = b'{"streams":["S"],"total":1}'
DENIED = errors.PermissionViolation("not permitted", "s", "publish")


def js_of(*answers: Any) -> Any:
    left = list(answers)

    def request(subject: str, body: bytes, timeout: float) -> Any:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(data=found)

    class Line:
        """A connection and its engine in one."""

        def __init__(self) -> None:
            self._engine = self
            self.request = request

    return SimpleNamespace(nc=Line(), api=SimpleNamespace(subject=lambda operation: operation))


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([NAMES, stream_info()], EXISTS),
        ([b'{"streams":[]}'], NONE),
        ([DENIED], FORBIDDEN),
        ([NAMES, DENIED], FORBIDDEN),
        ([errors.NoResponders("nobody", "s")], UNAVAILABLE),
        ([NAMES, errors.RequestTimeout("nothing")], UNAVAILABLE),
        ([NAMES, b"nonsense"], UNAVAILABLE),
    ],
)
def test_the_stream_of_a_subject_is_asked_for(answers: list[Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    streams = Streams()
    assert streams.ask(js_of(*answers), "s.a", 1.0) == found
    window = streams.window("s.a", 100.0)
    assert window == {EXISTS: 120.0, FORBIDDEN: FORBIDDEN}.get(found)


def test_is_there_one_at_all() -> None:
    assert ask_for_stream(js_of(NAMES), "s", 1.0) == EXISTS
    assert ask_for_stream(js_of(DENIED), "s", 1.0) == FORBIDDEN
    assert ask_for_stream(js_of(errors.ConnectionLost("lost")), "s", 1.0) == UNAVAILABLE


def test_facts_grow_old() -> None:
    streams = Streams()
    assert streams.learn(stream_info(num_replicas=3), 100.0)
    assert (streams.window("s.a", 100.0), streams.replicas("S", 100.0)) == (120.0, 3)
    assert streams.window("other", 100.0) is None
    late = 100.0 + FACTS_FOR
    assert (streams.window("s.a", late), streams.replicas("S", late)) == (None, None)
    assert streams.replicas("T", 100.0) is None


def test_a_stream_forgets_ids_with_its_messages() -> None:
    streams = Streams()
    streams.learn(stream_info(max_age=5_000_000_000), 100.0)
    assert streams.window("s.a", 100.0) == 5.0
    assert same_id_for(5.0) == 4.5
    assert same_id_for(100.0) == 90.0
    assert same_id_for(0.1) == 0.0


def test_who_may_not_ask_is_believed_or_does_not_know() -> None:
    for believed, window in ((None, FORBIDDEN), (30.0, 30.0)):
        streams = Streams(believed=believed)
        assert streams.window("s", 100.0) is None
        streams.forbidden(100.0)
        assert streams.window("s", 101.0) == window
        assert streams.window("s", 200.0) is None
    assert Streams(stated=7.0).window("s", 0.0) == 7.0


def test_nobody_knocks_again_and_again() -> None:
    streams = Streams()
    assert streams.denied("S", 100.0) == 0
    streams.deny("S", 2, 100.0)
    assert (streams.denied("S", 101.0), streams.denied("S", 200.0)) == (2, 0)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_streams, "KNOWN_STREAMS", 2)
    streams = Streams()
    for name in ("A", "B", "C"):
        streams.learn(stream_info(name), 100.0)
        streams.deny(name, 1, 100.0)
    assert [streams.replicas(name, 100.0) for name in ("A", "B", "C")] == [None, None, 1]
    assert [streams.denied(name, 100.0) for name in ("A", "B", "C")] == [0, 0, 1]


def test_a_window_that_is_stated() -> None:
    assert (check_window(None), check_window(0), check_window(5)) == (None, 0.0, 5.0)
    with pytest.raises(errors.ConfigError):
        check_window(-1)


@pytest.mark.parametrize("answer", [b"{}", b'{"total":1}', b'{"streams":{"a":1}}', b'{"streams":"S"}', b"[]", b"x"])
def test_an_answer_without_a_list_of_streams_says_nothing(answer: bytes) -> None:
    assert names_answer(answer) == UNAVAILABLE
