"""The proof that everything was read: what a consumer says, what arrived, and what the leader of the stream knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.listing import RESTARTS, Reading, last_matching

SILENCE = errors.RequestTimeout("nothing")
DENIED = errors.PermissionViolation("not permitted", "s", "publish")


class Consumer:
    """An ordered consumer: `infos` in turn, `last` what its stream's leader has at each subject."""

    stream_name = "S"

    def __init__(self, *infos: Any, got: int = 0, imported: bool = False, filters: Any = (), **last: Any) -> None:
        self.infos = list(infos)
        self.last = last
        self.asked: list[str] = []
        self.state: Any = SimpleNamespace(
            name=b"c", expected=got + 1, last_seq=got, options=SimpleNamespace(filter_subjects=filters)
        )
        api = SimpleNamespace(is_imported=imported, passes_many=False, prefix="$JS.far.API.")
        self.js: Any = SimpleNamespace(api=api, stream=lambda *_, **__: self)

    def info(self, timeout: float) -> Any:
        found = self.infos.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def get_last_msg(self, subject: str, direct: bool, timeout: float) -> Any:
        self.asked.append(subject)
        found = self.last.get(subject.replace(">", "all"), errors.MessageNotFound(404, 10037, "none"))
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(seq=found)


class Messages:
    buffered = 0

    def __init__(self) -> None:
        self.restarts: list[str] = []
        self.items: list[Any] = []

    def start_again(self, why: str) -> None:
        self.restarts.append(why)

    def _get(self, wait: float | None) -> Any:
        return self.items.pop(0) if self.items else None


def info(sent: int, pending: int = 0, name: str = "c") -> Any:
    return SimpleNamespace(
        name=name, delivered=SimpleNamespace(consumer_seq=sent, stream_seq=sent), num_pending=pending
    )


def reading_of(consumer: Any, end: int | None = 10, one_copy: bool = True) -> tuple[Reading, Messages]:
    messages: Any = Messages()
    return Reading(consumer, messages, end, one_copy), messages


def test_everything_that_was_sent_has_arrived() -> None:
    said = info(3)
    reading, _ = reading_of(Consumer(said, got=3))
    assert reading.look(Deadline(1)) is said


@pytest.mark.parametrize("trouble", [errors.OrderedConsumerNotCreated("not yet"), SILENCE, info(3, name="older")])
def test_an_answer_that_says_nothing(trouble: Any) -> None:
    reading, messages = reading_of(Consumer(trouble, got=3))
    assert reading.look(Deadline(1)) is None
    assert messages.restarts == []


def test_what_waits_here_comes_first() -> None:
    reading, messages = reading_of(Consumer(info(3), got=3))
    messages.buffered = 1
    assert reading.look(Deadline(1)) is None


def test_a_consumer_that_is_gone_is_made_again() -> None:
    reading, messages = reading_of(Consumer(errors.ConsumerNotFound(404, 10014, "gone")))
    assert reading.look(Deadline(1)) is None
    assert messages.restarts == ["the consumer is gone"]


@pytest.mark.parametrize("said", [info(3), info(2, pending=4)], ids=["lost", "not sent"])
def test_what_does_not_come_until_the_second_look_is_read_again(said: Any) -> None:
    reading, messages = reading_of(Consumer(said, said, got=2))
    assert reading.look(Deadline(1)) is None
    assert messages.restarts == [], "it may be on its way"
    assert reading.look(Deadline(1)) is None
    assert len(messages.restarts) == 1


def test_a_reading_that_gets_nowhere_says_so() -> None:
    reading, messages = reading_of(Consumer(*[info(3)] * 2 * (RESTARTS + 1), got=2))
    with pytest.raises(errors.ListingIncomplete, match="3 messages were sent, 2 arrived"):
        for _ in range(2 * (RESTARTS + 1)):
            reading.look(Deadline(1))
    assert len(messages.restarts) == RESTARTS


def test_a_message_is_a_step_forward() -> None:
    reading, messages = reading_of(Consumer(*[info(3)] * 4, got=2, imported=True))
    assert reading.suspicious
    reading.look(Deadline(1))
    messages.items.append(SimpleNamespace(metadata=SimpleNamespace(consumer_seq=2)))
    assert reading.take(0) is not None
    assert not reading.suspicious, "the import passes more than one response"
    reading.look(Deadline(1))
    assert messages.restarts == [], "what was seen before it counts no more"


def test_an_import_that_passes_one_response_is_named_the_second_time() -> None:
    reading, _ = reading_of(Consumer(*[info(3)] * 4, got=1, imported=True))
    with pytest.raises(errors.ImportPassesOneResponse, match=r"'\$JS.far.API'"):
        for _ in range(4):
            reading.look(Deadline(1))


def test_an_import_that_has_passed_two_is_not_suspected() -> None:
    reading, messages = reading_of(Consumer(*[info(3)] * 4, got=2, imported=True))
    for _ in range(4):
        reading.look(Deadline(1))
    assert len(messages.restarts) == 2


@pytest.mark.parametrize(
    ("last", "caught_up"),
    [(5, True), (6, False), (errors.MessageNotFound(404, 10037, "none"), True), (SILENCE, False), (DENIED, True)],
)
def test_the_leader_of_the_stream_has_the_last_word(last: Any, caught_up: bool) -> None:
    reading, _ = reading_of(Consumer(all=last), one_copy=False)
    assert reading.caught_up(5, Deadline(1)) is caught_up


def test_with_one_replica_or_at_the_end_nobody_is_asked() -> None:
    for end, one_copy, position in ((10, True, 5), (10, False, 10), (None, False, 5)):
        consumer = Consumer()
        reading, _ = reading_of(consumer, end, one_copy)
        assert reading.caught_up(position, Deadline(1))
        assert consumer.asked == []


@pytest.mark.parametrize(("filters", "last"), [("a", 3), (["a", "b"], 4), ((), 9), (["c"], 0)])
def test_the_last_of_what_is_selected(filters: Any, last: int) -> None:
    assert last_matching(Consumer(filters=filters, a=3, b=4, all=9), Deadline(1)) == last  # type: ignore[arg-type]
