"""The proof that everything has been read, for every "until the end" and every way of reading.

The end is the last sequence that the stream's leader reported before the reading began. Two sequences prove that it is
reached: the consumer's own and the stream's. Each message carries the consumer's sequence, an ordered consumer misses
none, and the server reports the number that it has sent.

A new consumer reads lost messages again. If that does not help, the reading ends in ListingIncomplete. A silent
consumer is not a proof. Its replica may lag behind, or its messages may be lost on a leaf node's link or by an import
that passes one response for each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.ordered_sequence import LAST_PER_SUBJECT

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import ConsumerInfo
    from jsclient.jetstream.consuming.ordered_messages import OrderedMessages, OrderedSource
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.message import JetStreamMsg

LOOK_AFTER: Final = 0.5
"""Seconds without a message after which the client asks the server what it has sent. A message that the server sent
before the previous question, and that is not here by then, is lost.
"""

LOOK_SOONER: Final = 0.25
"""The same through an import, until it has passed more than one response to a request."""

ASK_TIMEOUT: Final = 1.0
"""Seconds for such a question; the next one may get through."""

RESTARTS: Final = 5
"""New consumers in a row that delivered no message at all, although the server reports that it sent some."""


ASK_TIMES: Final = 3
"""Questions about the end, while other clients write to the stream, before the client lists its subjects."""

ASK_EVERY: Final = 1000
"""Messages between such questions while there is always one more."""

LIST_TIMEOUT: Final = 5.0


class Reading:
    """Messages of an ordered consumer, and the proof that no more are to come. One thread takes."""

    def __init__(self, messages: OrderedMessages, end: int | None, one_copy: bool) -> None:
        """`end` is the stream's last sequence before the consumer was created, None without permission to request it.

        `one_copy` means that the stream has one replica, so its consumers cannot be behind the leader.
        """
        self.messages = messages
        self.source: OrderedSource = messages.source
        self.end = end
        self.one_copy = one_copy
        self._api = self.source.js.api
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
        """True if the API is imported and has never yet passed more than one response for each request."""
        return self._api.is_imported and not self._api.passes_many

    def look(self, deadline: Deadline) -> ConsumerInfo | None:
        """After a pause: the consumer's info if it has sent all there is and all of that arrived, None otherwise.

        From now on the reading repeats lost messages. Raises ListingIncomplete.
        """
        if self.source.info is None:
            return None  # the next one is not created yet
        try:
            info = self.source.ask(deadline.at_most(ASK_TIMEOUT))
        except errors.ConsumerNotFound:
            self._read_again("the consumer is gone")
            return None
        except errors.JsClientError:
            return None  # the link is down, or no server answers: continue to wait
        state = self.source.state
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
        told = errors.counted(sent, "message")
        self._read_again(f"the server sent {told}, {got} arrived and {info.num_pending} wait")
        return None

    def _lost(self, sent: int, got: int) -> None:
        if not self.suspicious or got > 1:
            return
        self._single += 1
        if self._single > 1:
            prefix = self._api.prefix[:-1]
            raise errors.ImportPassesOneResponse(
                f"of {errors.counted(sent, 'message')} that stream {self.source.stream_name!r} sent {got} arrived, "
                f"twice: the import of its API under {prefix!r} seems to pass one response for each request. Reading "
                "has not removed the messages. The account that exports it must say `response_type: stream` (default: "
                "singleton)."
            )

    def _read_again(self, why: str) -> None:
        self._seen = ()
        self._restarts += 1
        if self._restarts > RESTARTS:
            text = f"stream {self.source.stream_name!r} cannot be read to its end: {why}, {RESTARTS} times in a row"
            raise errors.ListingIncomplete(text)
        self.messages.start_again(why)

    def caught_up(self, position: int, deadline: Deadline) -> bool:
        """True if a consumer that has nothing after `position` is as far as the leader of the stream."""
        if self.end is None or self.one_copy or position >= self.end:
            return True
        return self.at_head(position, deadline)

    def at_head(self, position: int, deadline: Deadline) -> bool:
        """True if the stream's leader has no matching message after `position`, or there is no permission to ask it."""
        try:
            return last_matching(self.source, deadline) <= position
        except errors.PermissionViolation:
            return True
        except errors.JsClientError:
            return False


class CompleteReading:
    """The stored messages of a stream and then every new one; `complete` turns True behind the last stored one.

    If no client stores messages meanwhile, the count proves the end. Otherwise the reading may miss a subject that had
    a message all the time. If the old message is replaced before its turn comes, the new one is ahead. That can repeat
    as long as each new message is replaced in time. The server's number of pending messages is not a proof, because it
    subtracts replaced messages before it adds stored ones.

    So this class reads on, in the order of the stream, until the leader has nothing newer, or until every subject that
    the leader lists has come.

    `complete=True` delivers only new messages.
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
        self._window: dict[str, Any] = {"leave_buffered": True, **(window or {})}  # there is nothing to return
        self.complete: bool = complete
        self._closed = False
        self._subjects: set[bytes] = set()  # of delivered messages, until it is complete
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
        state, info = self.reading.source.state, self.reading.source.info
        if complete and info is not None:
            # If the consumer must be re-created before anything came, it begins here and not at its own "now".
            state.skip_to(info.delivered.stream_seq)
        if not complete and not self._expected and self.reading.caught_up(0, deadline):
            self._finish()

    def _last_of_stream(self, deadline: Deadline) -> tuple[int | None, bool, bool]:
        """(its last sequence, True if it has one replica, True if it keeps one message per subject)."""
        try:
            info = self._stream.info(timeout=deadline.at_most(self._js.api.timeout or ASK_TIMEOUT))
        except (errors.PermissionViolation, errors.JetStreamUnavailable):
            return None, True, False  # no permission to ask: the consumer's own answers must be enough
        config = info.config
        return info.state.last_seq, (config.num_replicas or 1) == 1, config.max_msgs_per_subject == 1

    def _open(self, start: dict[str, Any], end: int | None, one_copy: bool, deadline: Deadline) -> Reading:
        consumer = self._js.ordered_consumer(self._stream.name, **self._options, **start)
        return Reading(consumer.open_messages(deadline, **self._window), end, one_copy)

    @property
    def _expected(self) -> int:
        """The number of messages that waited for the present consumer at its creation."""
        info = self.reading.source.info
        return 1 if info is None else info.num_pending

    # --- taking ---------------------------------------------------------------------------------------------

    def next(self, deadline: Deadline) -> JetStreamMsg | None:
        """The next message. None if the time is over, or if this call found everything complete."""
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
        """True to deliver the message now; completes the reading if it is the last one."""
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
        info = self.reading.source.info
        if info is not None and meta.consumer == info.name and not beyond and meta.consumer_seq == info.num_pending:
            # All that were stored, and none of them newer than the end: the reading cannot have missed any.
            if self.reading.caught_up(seq, deadline):
                self._finish()
        elif self._in_order and (beyond or not meta.num_pending):
            self._beyond += 1
            if (not meta.num_pending and not self.reading.messages.buffered) or not self._beyond % ASK_EVERY:
                self._ask(seq, deadline)
        return True

    def _ask(self, position: int, deadline: Deadline) -> None:
        """Other clients store meanwhile: find out if this is the end for a moment, or which subjects are missing."""
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
        """Ask the server after a pause; True if this showed that everything has been delivered."""
        info = self.reading.look(deadline)
        if info is None or self.complete:
            return False
        if not self._in_order and self.reading.end is not None:
            self._go_on_in_order()
        elif self.reading.caught_up(max(self.reading.source.state.last_seq, info.delivered.stream_seq), deadline):
            self._finish()
        return self.complete

    def _go_on_in_order(self) -> None:
        """The first pass is over, and messages may have been replaced meanwhile: read all messages after its end."""
        self._known = self.reading.end or 0
        self._in_order = True
        self.reading.messages.close()

    def _begin_in_order(self, known: int, deadline: Deadline) -> bool:
        """False if there was no time for it: the next call tries again."""
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
        state = self.reading.source.state
        if self.reading.end:
            state.skip_to(self.reading.end)  # if the stream's last message was not for us
        if not state.last_seq:
            # The stream is empty: if re-created, the consumer must deliver every change since, not the last of each
            # subject.
            state.begin_with_all()

    def close(self) -> None:
        """Stop, from any thread."""
        self._closed = True
        self.reading.messages.close()


def last_matching(source: OrderedSource, deadline: Deadline) -> int:
    """Sequence of the last message that the consumer's filters select, from the stream's leader; 0 if there is none."""
    given = source.state.options.filter_subjects
    stream = source.js.stream(source.stream_name, fetch_info=False)
    last = 0
    for subject in ([given] if isinstance(given, str) else given) or [">"]:
        try:
            message = stream.get_last_msg(subject, direct=False, timeout=deadline.at_most(ASK_TIMEOUT))
        except errors.MessageNotFound:
            continue
        last = max(last, message.seq)
    return last
