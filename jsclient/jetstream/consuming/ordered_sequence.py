"""The sequence logic of ordered consumers: which message comes next, and how the next consumer begins. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final, TypedDict

import attrs

from jsclient import kinds
from jsclient.durations import plain
from jsclient.errors import ConfigError, NotJetStreamMessage
from jsclient.jetstream.api.models import ConsumerConfig
from jsclient.jetstream.api.models_consumer_words import DeliverWord, ReplayWord
from jsclient.jetstream.message import consumer_position
from jsclient.nuid import PREFIX_LENGTH, next_nuid

INACTIVE: Final = 300.0
"""Seconds after which the server removes a consumer that the client could not remove (nats.go)."""

LAST_PER_SUBJECT: Final = "last_per_subject"

DELIVER: Final = "deliver"
SKIP: Final = "skip"
STALE: Final = "stale"
GAP: Final = "gap"

NOTHING: Final = b"\0"  # no subject begins with it


class OrderedOptionsDict(TypedDict, total=False):
    """Keyword arguments of `ordered_consumer` and `ordered_push_consumer`.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `OrderedOptions`.
    """

    filter_subjects: str | Sequence[str]
    deliver_policy: DeliverWord
    opt_start_seq: int | None
    opt_start_time: dt.datetime | None
    replay_policy: ReplayWord | None
    inactive_threshold: float | dt.timedelta
    headers_only: bool | None
    max_reset_attempts: int | None
    metadata: dict[str, str] | None
    name_prefix: str


@attrs.frozen(kw_only=True)
class OrderedOptions:
    """Options of an ordered consumer. With `max_reset_attempts` None it retries indefinitely.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        filter_subjects: Only messages on these subjects, by default all. Wildcards are allowed; several subjects need
            server 2.10.
        deliver_policy: The message with which it begins, see DeliverPolicy.
        opt_start_seq: The first sequence, with "by_start_sequence".
        opt_start_time: Messages stored at that time or later, with "by_start_time".
        replay_policy: "original" delivers as slowly as the messages were stored. None delivers as fast as you read.
        inactive_threshold: Seconds after which the server removes its consumer if nothing reads.
        headers_only: True delivers messages without their payloads.
        max_reset_attempts: Attempts in a row to make a new consumer after a gap; None tries indefinitely.
        metadata: Your key-value pairs for the consumers (server 2.10).
        name_prefix: The beginning of the names of its consumers; by default a random one.
    """

    filter_subjects: str | Sequence[str] = attrs.field(default=(), validator=kinds.field(str, kinds.TEXTS))
    deliver_policy: DeliverWord = attrs.field(default="all", validator=kinds.field(str))
    opt_start_seq: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    opt_start_time: dt.datetime | None = attrs.field(default=None, validator=kinds.field(dt.datetime, None))
    replay_policy: ReplayWord | None = attrs.field(default=None, validator=kinds.field(str, None))
    inactive_threshold: float = attrs.field(default=INACTIVE, converter=plain, validator=kinds.field(float))
    headers_only: bool | None = attrs.field(default=None, validator=kinds.field(bool, None))
    max_reset_attempts: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    metadata: dict[str, str] | None = attrs.field(default=None, validator=kinds.field(kinds.TEXT_MAP, None))
    name_prefix: str = attrs.field(default="", validator=kinds.field(str))

    def __attrs_post_init__(self) -> None:
        if self.max_reset_attempts is not None and self.max_reset_attempts < 1:
            raise ConfigError("max_reset_attempts must be positive, or None to try for ever")
        if self.opt_start_seq is not None and self.opt_start_seq < 0:
            raise ConfigError(f"opt_start_seq must be 0 or more, got {self.opt_start_seq}")
        if not self.inactive_threshold >= 0:
            raise ConfigError(f"inactive_threshold must be 0 or more seconds, got {self.inactive_threshold!r}")

    def filters(self) -> dict[str, str | list[str]]:
        if isinstance(self.filter_subjects, str):
            return {"filter_subject": self.filter_subjects}
        names = list(self.filter_subjects)
        if len(names) == 1:
            return {"filter_subject": names[0]}
        if not names:
            # Servers before 2.10 want a filter for last_per_subject.
            return {"filter_subject": ">"} if self.deliver_policy == LAST_PER_SUBJECT else {}
        return {"filter_subjects": names}


class OrderedState:
    """The cursor: the last stream sequence delivered, and the sequence that the current consumer must send next."""

    def __init__(self, options: OrderedOptions) -> None:
        self.options: OrderedOptions = options
        # Without the first part of the id, which is the same for the complete process: every message carries the name.
        self.prefix: str = options.name_prefix or next_nuid()[PREFIX_LENGTH:]
        self.serial: int = 0
        self.name: bytes = b""
        self.expected: int = 1  # consumer sequence of the next message
        self._last_raw = b"0"
        self._head = NOTHING  # the head of the current consumer's ack subjects, after the first one
        self._snapshot = options.deliver_policy == LAST_PER_SUBJECT  # the first pass is under way
        self._snapshot_size = 0  # messages that the current consumer sends for it

    def next_config(self) -> ConsumerConfig:
        """The configuration of the next consumer. It begins at the user's start, or else right after the last message.

        It repeats an incomplete `last_per_subject` snapshot, and the client skips delivered messages. A start by
        sequence would deliver older values as if they were the last (nats.go #1633).
        """
        self.serial += 1
        name = f"{self.prefix}_{self.serial}"
        live = self.last_seq > 0 and not self.in_snapshot
        self.name = name.encode()
        self.expected = 1
        self._head = NOTHING
        options = self.options
        start: dict[str, object] = {"deliver_policy": options.deliver_policy}
        if live:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.last_seq + 1}
        elif options.deliver_policy == "by_start_sequence":
            start["opt_start_seq"] = options.opt_start_seq
        elif options.deliver_policy == "by_start_time":
            start["opt_start_time"] = options.opt_start_time
        return ConsumerConfig(
            name=name,
            ack_policy="none",
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=options.inactive_threshold,
            replay_policy=options.replay_policy,
            headers_only=options.headers_only,
            metadata=options.metadata,
            **start,  # type: ignore[arg-type]
            **options.filters(),  # type: ignore[arg-type]
        )

    def created(self, num_pending: int) -> None:
        """The consumer exists; the first `num_pending` messages of a last_per_subject one are the snapshot."""
        self._snapshot_size = num_pending

    @property
    def in_snapshot(self) -> bool:
        """True while the first pass of a last_per_subject read is under way."""
        if self._snapshot and self.expected > self._snapshot_size:
            self._snapshot = False
        return self._snapshot

    def check(self, reply: bytes | None) -> str:
        """DELIVER, SKIP (delivered before), STALE (of an earlier consumer) or GAP (something is missing).

        The part of the ack subject before the sequences is the same for all messages of a consumer. Comparing it as one
        string takes a third of the cost of splitting the subject.
        """
        try:
            head, stream_seq, consumer_seq, _, _ = reply.rsplit(b".", 4)  # type: ignore[union-attr]
            if head == self._head and int(consumer_seq) == self.expected:
                self.expected += 1
                self._last_raw = stream_seq
                return DELIVER
        except (ValueError, AttributeError):
            pass
        return self._check_slowly(reply)

    @property
    def head(self) -> bytes:
        """The beginning of the ack subjects of the present consumer's messages, after the check of the first one."""
        return self._head + b"."

    def advance(self, reply: bytes, count: int) -> bool:
        """Count a row of messages as delivered and return True, if nothing is missing among them.

        `count` messages came in a row, all of them with `head`, and the last one with this reply. A consumer's
        sequences only grow, so checking the last one is sufficient. This takes 0.15 µs per message, where a loop that
        looks at each sequence takes 0.3 and `check` 0.45.
        """
        try:
            head, stream_seq, consumer_seq, _, _ = reply.rsplit(b".", 4)
            if head != self._head or int(consumer_seq) != self.expected + count - 1:
                return False
        except ValueError:
            return False
        self.expected += count
        self._last_raw = stream_seq
        return True

    def _check_slowly(self, reply: bytes | None) -> str:
        consumer, consumer_seq, stream_seq = consumer_position(reply)
        if consumer != self.name:
            return STALE
        if consumer_seq != self.expected:
            return GAP if consumer_seq > self.expected else STALE
        self.expected += 1
        if stream_seq <= self.last_seq:
            return SKIP
        self._last_raw = b"%d" % stream_seq
        assert reply is not None
        before, found, _ = reply.partition(b".%b.1.%d.%d." % (consumer, stream_seq, consumer_seq))
        if found:
            # No message is skipped from here on, because sequences only grow.
            self._head = b"%b.%b.1" % (before, consumer)
        return DELIVER

    def rewind(self, reply: bytes | None) -> None:
        """The message with this reply was checked, but not taken. The next use begins with it."""
        _, consumer_seq, stream_seq = consumer_position(reply)
        self._last_raw = b"%d" % (stream_seq - 1)
        self.expected = consumer_seq
        if self.options.deliver_policy == LAST_PER_SUBJECT and consumer_seq <= self._snapshot_size:
            self._snapshot = True

    @property
    def last_seq(self) -> int:
        """Stream sequence of the last message delivered; 0 before the first."""
        try:
            return int(self._last_raw)
        except ValueError:  # too rare for a check of every message
            text = f"not a message of a JetStream consumer: its stream sequence is {self._last_raw!r}"
            raise NotJetStreamMessage(text) from None

    def skip_to(self, seq: int) -> None:
        """Count everything up to `seq` as delivered, so the next consumer begins after it.

        For watchers, if the first pass is complete although the stream's last message was not for them.
        """
        if seq > self.last_seq:
            self._last_raw = b"%d" % seq

    def begin_with_all(self) -> None:
        """The stream had no messages at the start: the next consumer delivers every message since. For watchers."""
        self.options = attrs.evolve(self.options, deliver_policy="all")

    def behind(self, last_consumer_seq: int) -> bool:
        """True if a heartbeat names a message that has not come."""
        return last_consumer_seq >= self.expected
