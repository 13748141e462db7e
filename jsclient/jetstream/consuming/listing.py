"""Whether everything has been read: one proof for every "until the end", by whatever way it is read.

The end is what the stream's leader called its last sequence before the reading began. It is reached when sequences say
so: the consumer's own (each message carries one, an ordered consumer misses none, and the server tells how many it has
sent) and the stream's. What was sent and did not arrive is read again by a new consumer; when that does not help, the
reading ends in ListingIncomplete. A consumer that has nothing to say proves nothing: its replica may lag behind, its
messages may be lost on a leaf node's link or by an import that passes one response for each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.ordered_sequence import LAST_PER_SUBJECT

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import ConsumerInfo
    from jsclient.jetstream.consuming.ordered import OrderedConsumer
    from jsclient.jetstream.consuming.ordered_messages import OrderedMessages
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.message import JetStreamMsg

LOOK_AFTER: Final = 0.5
"""Seconds without a message after which the server is asked what it has sent. What it sent before the question before
and is not here by then is lost."""

LOOK_SOONER: Final = 0.25
"""The same through an import, until it has passed more than one response to a request."""

ASK_TIMEOUT: Final = 1.0
"""Seconds for such a question: the next one may get through."""

RESTARTS: Final = 5
"""New consumers in a row that brought no message at all, although the server says that it sent some."""


ASK_TIMES: Final = 3
"""Questions whether the end is reached, beside a stream that others write to, before its subjects are listed."""

ASK_EVERY: Final = 1000
"""Messages between such questions while there is always one more."""

LIST_TIMEOUT: Final = 5.0


class Reading:
    """Messages of an ordered consumer, and the proof that no more are to come. One thread takes."""

    def __init__(self, consumer: OrderedConsumer, messages: OrderedMessages, end: int | None, one_copy: bool) -> None:
        """`end`: the stream's last sequence before the consumer was made, None when it may not be asked for;
        `one_copy`: the stream has one replica, so that no consumer of it can be behind the leader."""
        self.consumer = consumer
        self.messages = messages
        self.end = end
        self.one_copy = one_copy
        self._api = consumer.js.api
        self._seen: tuple[Any, ...] = ()
        self._restarts = 0
        self._single = 0  # consumers in a row that delivered one message at most

    def take(self, wait: float | None) -> JetStreamMsg | None:
        """The next message, or None after `wait` seconds."""
        message = self.messages._get(wait)
        if message is not None:
            self._seen = ()
            self._restarts = 0
            if not self._api.passes_many and message.metadata.consumer_seq > 1:
                self._single = 0
                self._api.passes_many = True
        return message

    @property
    def patience(self) -> float:
        """Seconds without a message after which to look."""
        return LOOK_SOONER if self.suspicious else LOOK_AFTER

    @property
    def suspicious(self) -> bool:
        """Whether the API is imported and not yet known to pass more than one response for each request."""
        return self._api.is_imported and not self._api.passes_many

    def look(self, deadline: Deadline) -> ConsumerInfo | None:
        """After a pause: the consumer's info if it has sent all there is and all of that arrived, None otherwise.

        What was lost is read again from now on. Raises ListingIncomplete.
        """
        try:
            info = self.consumer.info(timeout=deadline.at_most(ASK_TIMEOUT))
        except errors.OrderedConsumerNotCreated:
            return None
        except errors.ConsumerNotFound:
            self._read_again("the consumer is gone")
            return None
        except errors.JsClientError:
            return None  # the link is down, or nobody answers: wait on
        state = self.consumer.state
        if info.name != state.name.decode() or self.messages.buffered:
            return None
        sent, got = info.delivered.consumer_seq, state.expected - 1
        if sent == got and not info.num_pending:
            return info
        seen = (info.name, sent, got, info.num_pending)
        if seen != self._seen:
            self._seen = seen  # it may be on its way
            return None
        if sent > got:
            self._lost(sent, got)
        self._read_again(f"{sent} messages were sent, {got} arrived and {info.num_pending} wait")
        return None

    def _lost(self, sent: int, got: int) -> None:
        if not self.suspicious or got > 1:
            return
        self._single += 1
        if self._single > 1:
            prefix = self._api.prefix[:-1]
            raise errors.ImportPassesOneResponse(
                f"of {sent} messages that stream {self.consumer.stream_name!r} sent {got} arrived, twice: the import "
                f"of its API under {prefix!r} seems to pass one response for each request. Reading has not "
                "removed the messages. The account that exports it must say `response_type: stream` (the default is "
                "singleton)."
            )

    def _read_again(self, why: str) -> None:
        self._seen = ()
        self._restarts += 1
        if self._restarts > RESTARTS:
            text = f"stream {self.consumer.stream_name!r} cannot be read to its end: {why}, {RESTARTS} times in a row"
            raise errors.ListingIncomplete(text)
        self.messages.start_again(why)

    def caught_up(self, position: int, deadline: Deadline) -> bool:
        """Whether a consumer that has nothing after `position` is not just behind the leader of the stream."""
        if self.end is None or self.one_copy or position >= self.end:
            return True
        return self.at_head(position, deadline)

    def at_head(self, position: int, deadline: Deadline) -> bool:
        """Whether the stream's leader has no matching message after `position`. True where nobody may ask it."""
        try:
            return last_matching(self.consumer, deadline) <= position
        except errors.PermissionViolation:
            return True
        except errors.JsClientError:
            return False


class CompleteReading:
    """What a stream holds and then every new message; `complete` turns True behind the last of what it held.

    Where nothing is stored meanwhile the count proves it. Else a subject may be left out that had a message all the
    time: its old one was replaced before its turn came, and the new one is ahead of us, for as long as it is replaced
    again in time. (The number that the server calls pending is no proof: it takes off what was replaced before it adds
    what was stored.) So this reads on, in the order of the stream, until the leader has nothing newer, or every subject
    that it lists has been seen.

    `complete=True`: only new messages are wanted.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subjects: Sequence[str],
        start: dict[str, Any],
        deadline: Deadline,
        *,
        headers_only: bool | None = None,
        window: dict[str, Any] | None = None,
        complete: bool = False,
    ) -> None:
        self._js = js
        self._stream = js.stream(stream, fetch_info=False)
        self._options: dict[str, Any] = {"filter_subjects": list(subjects), "headers_only": headers_only}
        self._window: dict[str, Any] = {"leave_buffered": True, **(window or {})}  # nothing is to be given back
        self.complete: bool = complete
        self._closed = False
        self._subjects: set[bytes] = set()  # of what was given, until it is complete
        self._unseen: set[bytes] | None = None  # subjects that are still to come
        self._beyond = 0  # messages that were stored after the end
        self._asked = 0
        self._known: int | None = None  # from where on to read in order, until that has begun
        end, one_copy = None, True
        if not complete:
            end, one_copy, single = self._last_of_stream(deadline)
            if single and start.get("deliver_policy") == LAST_PER_SUBJECT:
                start = {"deliver_policy": "all"}  # the same messages, in the order in which new ones come
        self._in_order = start.get("deliver_policy") != LAST_PER_SUBJECT
        self.reading: Reading = self._open(start, end, one_copy, deadline)
        state, info = self.reading.consumer.state, self.reading.consumer.cached_info
        if complete and info is not None:
            # If the consumer must be made again before anything came, it begins here and not at its own "now".
            state.skip_to(info.delivered.stream_seq)
        if not complete and not self._expected and self.reading.caught_up(0, deadline):
            self._finish()

    def _last_of_stream(self, deadline: Deadline) -> tuple[int | None, bool, bool]:
        """(its last sequence, whether it has one replica, whether it keeps one message per subject)."""
        try:
            info = self._stream.info(timeout=deadline.at_most(self._js.api.timeout or ASK_TIMEOUT))
        except (errors.PermissionViolation, errors.JetStreamUnavailable):
            return None, True, False  # not to be asked: the consumer's own words have to do
        config = info.config
        return info.state.last_seq, (config.num_replicas or 1) == 1, config.max_msgs_per_subject == 1

    def _open(self, start: dict[str, Any], end: int | None, one_copy: bool, deadline: Deadline) -> Reading:
        consumer = self._js.ordered_consumer(self._stream.name, **self._options, **start)
        return Reading(consumer, consumer.open_messages(deadline, **self._window), end, one_copy)

    @property
    def _expected(self) -> int:
        """How many messages waited for the present consumer when it was made."""
        info = self.reading.consumer.cached_info
        return 1 if info is None else info.num_pending

    # --- taking ---------------------------------------------------------------------------------------------

    def next(self, deadline: Deadline) -> JetStreamMsg | None:
        """The next message. None when the time is over, or when this call found everything complete."""
        while True:
            if self._known is not None and (not self._begin_in_order(self._known, deadline) or self.complete):
                return None
            asks = not self.complete or self.reading.suspicious
            message = self.reading.take(deadline.at_most(self.reading.patience) if asks else deadline.remaining())
            if message is not None:
                if self.complete or self._judge(message, deadline):
                    return message
                continue  # it comes again, in order
            if asks and self._look(deadline):
                return None
            if deadline.expired():
                return None

    def _judge(self, message: JetStreamMsg, deadline: Deadline) -> bool:
        """Whether to give the message out now; completes the reading if it is the last one."""
        meta, end = message.metadata, self.reading.end
        seq = meta.stream_seq
        beyond = end is not None and seq > end
        if beyond and not self._in_order:
            self._go_on_in_order()
            return False
        subject = message.msg.raw_subject
        self._subjects.add(subject)
        if self._unseen is not None:
            self._unseen.discard(subject)
            if not self._unseen:
                self._finish()
                return True
        info = self.reading.consumer.cached_info
        if info is not None and meta.consumer == info.name and not beyond and meta.consumer_seq == info.num_pending:
            # As many as there were, and none of them newer than the end: nothing can have been left out.
            if self.reading.caught_up(seq, deadline):
                self._finish()
        elif self._in_order and (beyond or not meta.num_pending):
            self._beyond += 1
            if (not meta.num_pending and not self.reading.messages.buffered) or not self._beyond % ASK_EVERY:
                self._ask(seq, deadline)
        return True

    def _ask(self, position: int, deadline: Deadline) -> None:
        """Others store while we read: are we at the end for a moment, or which subjects have not come?"""
        if self._unseen is not None:
            return
        if self.reading.at_head(position, deadline):
            self._finish()
            return
        self._asked += 1
        if self._asked < ASK_TIMES:
            return
        try:
            self._unseen = self._listed(deadline) - self._subjects
        except errors.JsClientError:
            return  # the next message asks again
        if not self._unseen:
            self._finish()

    def _listed(self, deadline: Deadline) -> set[bytes]:
        """The subjects that have messages now, as the stream's leader knows them."""
        return {
            subject.encode("utf-8", "surrogateescape")
            for pattern in self._options["filter_subjects"]
            for subject, _ in self._stream.subjects(pattern, timeout=deadline.at_most(LIST_TIMEOUT))
        }

    def _look(self, deadline: Deadline) -> bool:
        """Ask the server after a pause; True when this showed that everything has been given."""
        info = self.reading.look(deadline)
        if info is None or self.complete:
            return False
        if not self._in_order and self.reading.end is not None:
            self._go_on_in_order()
        elif self.reading.caught_up(max(self.reading.consumer.state.last_seq, info.delivered.stream_seq), deadline):
            self._finish()
        return self.complete

    def _go_on_in_order(self) -> None:
        """The first pass is over, and something may have been replaced while it ran: read what came after its end."""
        self._known = self.reading.end or 0
        self._in_order = True
        self.reading.messages.close()

    def _begin_in_order(self, known: int, deadline: Deadline) -> bool:
        """False when there was no time for it: the next call tries again."""
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": known + 1}
        if not self._closed:
            try:
                end, one_copy, _ = self._last_of_stream(deadline)
                self.reading = self._open(start, end, one_copy, deadline)
            except errors.TimedOut:
                if deadline.expired():
                    return False
                raise
        self._known = None
        if self._closed:
            self.reading.messages.close()
        elif not self._expected and self.reading.caught_up(known, deadline):
            self._finish()
        return True

    def _finish(self) -> None:
        self.complete = True
        self._subjects.clear()
        state = self.reading.consumer.state
        if self.reading.end:
            state.skip_to(self.reading.end)  # where the stream's last message was not for us
        if not state.last_seq:
            # Nothing is there: made again, the consumer must give every change since, not the last of each subject.
            state.begin_with_all()

    def close(self) -> None:
        """Stop, from any thread."""
        self._closed = True
        self.reading.messages.close()


def last_matching(consumer: OrderedConsumer, deadline: Deadline) -> int:
    """Sequence of the last message that the consumer's filters select, as the stream's leader knows it; 0: none."""
    given = consumer.state.options.filter_subjects
    stream = consumer.js.stream(consumer.stream_name, fetch_info=False)
    last = 0
    for subject in ([given] if isinstance(given, str) else given) or [">"]:
        try:
            message = stream.get_last_msg(subject, direct=False, timeout=deadline.at_most(ASK_TIMEOUT))
        except errors.MessageNotFound:
            continue
        last = max(last, message.seq)
    return last
