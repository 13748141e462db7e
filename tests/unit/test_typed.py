"""What becomes of messages that cannot be decoded, without a server: trouble while they are settled."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import codecs, errors
from jsclient.codecs import OnBad
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.fetch import Batch, BatchEnd
from jsclient.jetstream.consuming.typed import Values, tell, values_of, with_policy
from jsclient.jetstream.consuming.typed_message import UnreadMsg
from jsclient.message import Msg

CLOSED = errors.ConnectionClosed("the connection is closed")


class Engine:
    """Takes what is said about a message, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.said: list[bytes] = []
        self._engine = self

    def bound(self) -> Deadline | None:
        return None


class Bad(UnreadMsg[int]):
    """A message that is no number; what is said about it is kept in its connection."""

    def term(self, reason: str | None = None) -> None:
        engine: Any = self.connection
        if isinstance(engine.error, errors.NotSupported) and reason is None:
            engine.said.append(b"term")
        elif engine.error is not None:
            raise engine.error
        else:
            engine.said.append(b"term with a reason")

    def nak(self, delay: Any = None) -> None:
        engine: Any = self.connection
        engine.said.append(b"nak")


def reading(on_bad: OnBad, publish: Any = None) -> Values[int]:
    api = SimpleNamespace(prefix="$JS.hub.API.")
    js: Any = SimpleNamespace(api=api, decodes_with=codecs.JSON, publish_async=publish)
    return with_policy(values_of(js, int, on_bad, "dead.x" if on_bad == "reject" else None), "explicit")


def bad(made: Values[int], engine: Engine, reply: bytes = b"$JS.ACK.S.C.1.7.7.1700000000000000000.0") -> Any:
    given: Any = engine
    return Bad(Msg(b"s", b"1", reply, b"no number"), given, True, None, made)


def told(made: Values[int], message: Any) -> list[Exception]:
    found: list[Exception] = []
    assert not made.takes(message, lambda error, message: found.append(error))
    return found


def test_below_2_10_4_it_is_terminated_without_a_reason() -> None:
    engine = Engine(errors.NotSupported("a reason needs nats-server 2.10.4"))
    made = reading("skip")
    assert [type(error) for error in told(made, bad(made, engine))] == [errors.DecodeFailed]
    assert engine.said == [b"term"]


def test_what_cannot_be_settled_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(CLOSED)
    made = reading("skip")
    assert len(told(made, bad(made, engine))) == 1
    assert "comes again after ack_wait" in caplog.text


@pytest.mark.parametrize("reply", [b"$JS.ACK.S.C.2.7.7.1700000000000000000.0", b"rewritten.by.an.import"])
def test_a_dead_letter_that_cannot_be_published_is_told_and_comes_again(reply: bytes) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise CLOSED

    engine = Engine()
    made = reading("reject", refuse)
    assert [type(error) for error in told(made, bad(made, engine, reply))] == [
        errors.DecodeFailed,
        errors.ConnectionClosed,
    ]
    assert engine.said == [b"nak"]


def test_a_batch_names_what_was_skipped_and_no_other_trouble(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise CLOSED

    made = reading("reject", refuse)
    batch = made.sifted(Batch([bad(made, Engine())], BatchEnd.COMPLETE))
    assert list(batch) == []
    assert [type(error) for error in batch.skipped] == [errors.DecodeFailed]
    assert "the connection is closed" in caplog.text


def test_a_hook_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def hook(error: Exception, message: Any) -> None:
        raise RuntimeError("of the application")

    with caplog.at_level(logging.ERROR):
        tell(hook, "the consumer", CLOSED, None)  # type: ignore[arg-type]
    assert "a hook of the application failed" in caplog.text


def test_what_is_decoded_later_is_decoded_before_it_is_judged() -> None:
    made = reading("skip")
    engine: Any = Engine()
    assert made.takes(made.later(Msg(b"s", b"1", b"r", b"1"), engine), lambda error, message: None)
