"""The proof that everything was read: what a consumer says, what arrived, and what the leader of the stream knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.listing import RESTARTS, CompleteReading, Reading, last_matching

SILENCE = errors.RequestTimeout("nothing")
DENIED = errors.PermissionViolation("not permitted", "s", "publish")


class Consumer:
    """An ordered consumer: `infos` in turn, `last` what its stream's leader has at each subject."""

    stream_name = "S"
    info = "of its creation"

    def __init__(self, *infos: Any, got: int = 0, imported: bool = False, filters: Any = (), **last: Any) -> None:
        self.infos = list(infos)
        self.last = last
        self.asked: list[str] = []
        self.state: Any = SimpleNamespace(
            name=b"c", expected=got + 1, last_seq=got, options=SimpleNamespace(filter_subjects=filters)
        )
        api = SimpleNamespace(is_imported=imported, passes_many=False, prefix="$JS.far.API.")
        self.js: Any = SimpleNamespace(api=api, stream=lambda *_, **__: self)

    def ask(self, timeout: float) -> Any:
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
    source: Any = None

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
    messages.source = consumer
    return Reading(messages, end, one_copy), messages


def test_everything_that_was_sent_has_arrived() -> None:
    said = info(3)
    reading, _ = reading_of(Consumer(said, got=3))
    assert reading.look(Deadline(1)) is said


@pytest.mark.parametrize("trouble", [SILENCE, info(3, name="older")])
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
    with pytest.raises(errors.ListingIncomplete, match="the server sent 3 messages, 2 arrived"):
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


# --- what is there, and then what comes: CompleteReading --------------------------------------------------------------


def message(seq: int, *, number: int = 0, pending: int = 0, subject: str = "s") -> Any:
    """A message of consumer `c`; `number`: its sequence there."""
    meta = SimpleNamespace(stream_seq=seq, consumer_seq=number or seq, num_pending=pending, consumer="c")
    return SimpleNamespace(metadata=meta, msg=SimpleNamespace(raw_subject=subject.encode()))


class Given(Messages):
    """What an ordered consumer brings, in turn."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def _get(self, wait: float | None) -> Any:
        if self.closed:
            raise errors.IteratorClosed("it was closed")
        return super()._get(wait)


class Made:
    """An ordered consumer for which `pending` messages waited when it was made."""

    stream_name = "S"

    def __init__(self, js: Any, pending: int, *messages: Any) -> None:
        self.js = js
        self.info: Any = info(0, pending)
        self.messages = Given()
        self.messages.source = self
        self.messages.items = list(messages)
        self.skipped: list[int] = []
        self.for_all = False
        self.state: Any = SimpleNamespace(
            name=b"c",
            expected=1,
            last_seq=0,
            options=SimpleNamespace(filter_subjects=">"),
            skip_to=self.skipped.append,
            begin_with_all=self._begin_with_all,
        )
        self.infos: list[Any] = []

    def _begin_with_all(self) -> None:
        self.for_all = True

    def open_messages(self, deadline: Deadline, **window: Any) -> Any:
        return self.messages

    def ask(self, timeout: float) -> Any:
        found = self.infos.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


class Context:
    """A stream with `last` as its last sequence (or an error), and the consumers that are made of it in turn."""

    def __init__(self, last: Any, *, per_subject: int = -1, replicas: int = 1) -> None:
        self.api = SimpleNamespace(is_imported=False, passes_many=True, prefix="$JS.API.", timeout=5.0)
        self.last = last
        self.config = SimpleNamespace(num_replicas=replicas, max_msgs_per_subject=per_subject)
        self.made: list[Made] = []
        self.starts: list[dict[str, Any]] = []
        self.name = "S"
        self.heads: list[Any] = []  # what the leader has as the last message, in turn; the last word stays
        self.lists: list[Any] = []  # the subjects that it lists, in turn

    def stream(self, name: str, fetch_info: bool) -> Any:
        return self

    def info(self, timeout: float) -> Any:
        if isinstance(self.last, Exception):
            raise self.last
        return SimpleNamespace(config=self.config, state=SimpleNamespace(last_seq=self.last))

    def get_last_msg(self, subject: str, direct: bool, timeout: float) -> Any:
        found = self.heads.pop(0) if len(self.heads) > 1 else self.heads[0]
        return SimpleNamespace(seq=found)

    def subjects(self, pattern: str, timeout: float) -> Any:
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return [(subject, 1) for subject in found]

    def ordered_consumer(self, stream: str, *, filter_subjects: Any, headers_only: Any, **start: Any) -> Any:
        self.starts.append(start)
        return self.made[len(self.starts) - 1]

    def brings(self, pending: int, *messages: Any) -> Made:
        self.made.append(Made(self, pending, *messages))
        return self.made[-1]

    def read(self, policy: str = "all", **options: Any) -> CompleteReading:
        js: Any = self
        return CompleteReading(js, "S", [">"], {"deliver_policy": policy}, Deadline(5), **options)


def taken(reading: CompleteReading, count: int) -> list[int]:
    """The sequences of so many messages; none of them may be missing."""
    found = [reading.next(Deadline(5)) for _ in range(count)]
    return [message.metadata.stream_seq for message in found if message is not None]


def test_as_many_as_waited_when_it_began() -> None:
    context = Context(3)
    context.brings(3, message(1, pending=2), message(2, pending=1), message(3))
    reading = context.read()
    assert (taken(reading, 2), reading.complete) == ([1, 2], False)
    assert (taken(reading, 1), reading.complete) == ([3], True)
    assert context.made[0].skipped == [3], "a consumer that is made again goes on behind the end"


@pytest.mark.parametrize("error", [DENIED, errors.JetStreamUnavailable("nobody")])
def test_who_may_not_ask_for_the_stream_believes_the_consumer(error: Exception) -> None:
    context = Context(error)
    context.brings(1, message(1))
    reading = context.read()
    assert (taken(reading, 1), reading.complete) == ([1], True)


def test_an_empty_stream_is_complete_at_once() -> None:
    context = Context(0)
    made = context.brings(0)
    assert context.read().complete
    assert made.for_all, "made again, it gives every change since"


def test_one_message_per_subject_is_read_in_the_order_of_the_stream() -> None:
    context = Context(1, per_subject=1)
    context.brings(1, message(1))
    context.read("last_per_subject")
    assert context.starts == [{"deliver_policy": "all"}]


def test_who_wants_only_what_is_new_begins_where_the_consumer_did() -> None:
    context = Context(9)
    made = context.brings(0)
    made.info = info(7)
    assert context.read("new", complete=True).complete
    assert made.skipped == [7]


@pytest.mark.parametrize("how", ["a newer one", "silence"])
def test_after_a_pass_over_the_last_ones_it_goes_on_in_order(how: str) -> None:
    """A subject may have been replaced before its turn came."""
    context = Context(5)
    first = context.brings(
        3, message(4, number=1, pending=2), *([message(7, number=2)] if how == "a newer one" else [])
    )
    if how == "silence":
        first.infos = [info(1), info(1)]
        first.state.expected = 2
    second = context.brings(2, message(6, number=1, pending=1), message(7, number=2))
    reading = context.read("last_per_subject")
    assert taken(reading, 1) == [4]
    context.last = 7
    assert (taken(reading, 2), reading.complete) == ([6, 7], True)
    assert first.messages.closed
    assert context.starts[1] == {"deliver_policy": "by_start_sequence", "opt_start_seq": 6}
    assert second.skipped == [7]


def test_nothing_newer_was_stored_during_the_pass() -> None:
    context = Context(5)
    context.brings(3, message(4, number=1, pending=2), message(7, number=2))
    context.brings(0)
    reading = context.read("last_per_subject")
    assert taken(reading, 1) == [4]
    context.last = 5
    assert reading.next(Deadline(5)) is None
    assert reading.complete


def test_a_stream_that_does_not_answer_in_between() -> None:
    context = Context(5)
    context.brings(3, message(4, number=1, pending=2), message(7, number=2))
    context.brings(0)
    reading = context.read("last_per_subject")
    assert taken(reading, 1) == [4]
    context.last = SILENCE
    with pytest.raises(errors.RequestTimeout):
        reading.next(Deadline(5))
    assert reading.next(Deadline(0)) is None, "there is no time: the next call tries again"
    assert not reading.complete
    context.last = 5
    assert reading.next(Deadline(5)) is None
    assert reading.complete


def test_close_between_the_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread closes it just when the first pass is over."""
    context = Context(5)
    made = context.brings(3, message(4, number=1, pending=2), message(7, number=2))
    reading = context.read("last_per_subject")
    assert taken(reading, 1) == [4]

    def close() -> None:
        made.messages.closed = True
        reading._closed = True

    monkeypatch.setattr(made.messages, "close", close)
    with pytest.raises(errors.IteratorClosed):
        reading.next(Deadline(5))
    assert len(context.starts) == 1, "no second consumer is made"


def test_silence_behind_the_last_one_is_asked_about() -> None:
    context = Context(3)
    made = context.brings(2, message(1, pending=1))
    reading = context.read()
    assert taken(reading, 1) == [1]
    made.state.expected = 2
    made.infos = [info(1)]
    assert reading.next(Deadline(5)) is None
    assert reading.complete, "the others were deleted meanwhile"


def growing(**head: Any) -> tuple[Context, CompleteReading]:
    """A stream to which others write all the time: the message at the end is never that of the leader."""
    context = Context(3)
    context.brings(2, *(message(seq, number=seq - 3, subject=f"s{seq}") for seq in range(4, 12)))
    context.heads = head.get("heads", [99])
    return context, context.read()


def test_for_a_moment_nothing_newer_is_there() -> None:
    _, reading = growing(heads=[99, 5])
    assert (taken(reading, 1), reading.complete) == ([4], False)
    assert (taken(reading, 1), reading.complete) == ([5], True)


@pytest.mark.parametrize(
    ("lists", "complete_after"),
    [
        ([["s4", "s5", "s6"]], 3),
        ([["s4", "s8"]], 5),
        ([SILENCE, ["s4"]], 4),
        ([["s4", "s5", "s7", "s8"]], 5),
    ],
    ids=["all seen", "one is missing", "asked again", "two are missing"],
)
def test_where_there_is_always_something_newer_subjects_are_compared(lists: list[Any], complete_after: int) -> None:
    context, reading = growing()
    context.lists = lists
    for number in range(1, complete_after + 1):
        assert not reading.complete
        assert taken(reading, 1) == [3 + number]
    assert reading.complete
