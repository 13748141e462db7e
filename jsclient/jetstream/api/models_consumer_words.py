"""The words of a consumer's settings: where it begins, which acks it expects, how it replays and shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

# The type checker knows the words of today, and which setting takes each: it refuses AckPolicy.ALL as deliver_policy.
# At run time they are any text, so a newer server's words decode.
if TYPE_CHECKING:

    class DeliverValue(str):
        """A word of DeliverPolicy."""

    class AckValue(str):
        """A word of AckPolicy."""

    class PriorityValue(str):
        """A word of PriorityPolicy."""

    DeliverWord = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"] | DeliverValue
    AckWord = Literal["explicit", "all", "none", "flow_control"] | AckValue
    ReplayWord = Literal["instant", "original"]
    PriorityWord = Literal["none", "overflow", "pinned_client", "prioritized"] | PriorityValue
else:
    DeliverValue = AckValue = PriorityValue = str
    DeliverWord = AckWord = ReplayWord = PriorityWord = str


class DeliverPolicy:
    """The position where a consumer begins.

    Values:
        ALL: With the first message that the stream holds.
        LAST: With the last message of the stream.
        NEW: With messages that are stored from now on.
        BY_START_SEQUENCE: At `opt_start_seq`.
        BY_START_TIME: At `opt_start_time`.
        LAST_PER_SUBJECT: With the last message of each subject.
    """

    ALL: Final = DeliverValue("all")
    LAST: Final = DeliverValue("last")
    NEW: Final = DeliverValue("new")
    BY_START_SEQUENCE: Final = DeliverValue("by_start_sequence")
    BY_START_TIME: Final = DeliverValue("by_start_time")
    LAST_PER_SUBJECT: Final = DeliverValue("last_per_subject")


class AckPolicy:
    """The acks that a consumer expects.

    Values:
        EXPLICIT: Every message needs its own ack.
        ALL: An ack covers all messages before it, too.
        NONE: Messages count as handled when they are sent.
        FLOW_CONTROL: For push consumers, the answer to flow control acknowledges (server 2.14).
    """

    EXPLICIT: Final = AckValue("explicit")
    ALL: Final = AckValue("all")
    NONE: Final = AckValue("none")
    FLOW_CONTROL: Final = AckValue("flow_control")


class ReplayPolicy:
    """The speed of delivery: as fast as possible, or in the rhythm in which the messages came in.

    Values:
        INSTANT: As fast as the reader takes them.
        ORIGINAL: At the pace at which they were stored.
    """

    INSTANT: Final = "instant"
    ORIGINAL: Final = "original"


class PriorityPolicy:
    """The way to serve the pulls of a priority group (server 2.11; prioritized 2.12).

    Values:
        NONE: All pulls are equal.
        OVERFLOW: Pulls with min_pending or min_ack_pending are served only above that.
        PINNED_CLIENT: One client is served until it goes.
        PRIORITIZED: Pulls with the lowest `priority` are served first (server 2.12).
    """

    NONE: Final = PriorityValue("none")
    OVERFLOW: Final = PriorityValue("overflow")
    PINNED_CLIENT: Final = PriorityValue("pinned_client")
    PRIORITIZED: Final = PriorityValue("prioritized")


CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "deliver_policy": ("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"),
    "ack_policy": ("explicit", "all", "none", "flow_control"),
    "replay_policy": ("instant", "original"),
    "priority_policy": ("none", "overflow", "pinned_client", "prioritized"),
}
