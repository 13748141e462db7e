"""The parts of a stream's configuration: the words of its settings, its sources and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from jsclient.errors import ConfigError
from jsclient.jetstream.api import names
from jsclient.jetstream.api.model_base import OpenWire, Seconds, Timestamp

# The type checker knows the words of today, and which setting takes each: it refuses AckPolicy.ALL as deliver_policy.
# At run time they are any text, so a newer server's words decode.
if TYPE_CHECKING:

    class DiscardValue(str):
        """A word of Discard."""

    class CompressionValue(str):
        """A word of Compression."""

    RetentionWord = Literal["limits", "interest", "workqueue"]
    StorageWord = Literal["file", "memory"]
    DiscardWord = Literal["old", "new"] | DiscardValue
    CompressionWord = Literal["none", "s2"] | CompressionValue
    PersistWord = Literal["default", "async"]
else:
    DiscardValue = CompressionValue = str
    RetentionWord = StorageWord = DiscardWord = CompressionWord = PersistWord = str


class Retention:
    """When a stream removes messages: at its limits, when all consumers have them, or when one has it.

    Values:
        LIMITS: Messages stay until a limit (age, number, bytes) drops them.
        INTEREST: A message is removed when every consumer has acknowledged it.
        WORKQUEUE: A message is removed when it is acknowledged. Consumers share the stream.
    """

    LIMITS: Final = "limits"
    INTEREST: Final = "interest"
    WORKQUEUE: Final = "workqueue"


class Storage:
    """The place of a stream's messages: in files, or in memory (lost when the server stops).

    Values:
        FILE: In files.
        MEMORY: In memory, and lost when the server stops.
    """

    FILE: Final = "file"
    MEMORY: Final = "memory"


class Discard:
    """The behaviour of a full stream: drop the oldest message, or refuse the new one.

    Values:
        OLD: The server drops the oldest message.
        NEW: The server refuses the new message.
    """

    OLD: Final = DiscardValue("old")
    NEW: Final = DiscardValue("new")


class Compression:
    """Compression of a stream's files (server 2.10).

    Values:
        NONE: Files are not compressed.
        S2: Files are compressed with S2.
    """

    NONE: Final = CompressionValue("none")
    S2: Final = CompressionValue("s2")


class PersistMode:
    """The time of an ack: after the message is written, or before (server 2.12); async is for one replica only.

    Values:
        DEFAULT: An ack is sent when the message is written.
        ASYNC: An ack does not wait for the disk. This is faster, but a crash may lose messages.
    """

    DEFAULT: Final = "default"
    ASYNC: Final = "async"


CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "retention": ("limits", "interest", "workqueue"),
    "storage": ("file", "memory"),
    "discard": ("old", "new"),
    "compression": ("none", "s2"),
    "persist_mode": ("default", "async"),
}


class SubjectTransform(OpenWire, kw_only=True, frozen=True):
    """Rewrites subjects on the way in; `{{wildcard(1)}}` in `dest` is a wildcard of `src` (server 2.10).

    Attributes:
        src: Subjects to rewrite, with wildcards.
        dest: The new subjects.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    src: str = ""
    dest: str = ""


class ExternalStream(OpenWire, kw_only=True, frozen=True):
    """The way to a stream of another account or domain; `StreamSource(domain=)` fills it for a domain.

    Attributes:
        api: The prefix of the API there, such as `$JS.hub.API`.
        deliver: The prefix of the subjects on which we receive its messages.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    api: str = ""
    deliver: str | None = None


class SourceConsumer(OpenWire, kw_only=True, frozen=True):
    """The durable consumer through which a source or mirror reads (server 2.14).

    Attributes:
        name: Name of the durable consumer on the origin.
        deliver_subject: The subject on which it delivers.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str | None = None
    deliver_subject: str | None = None


class StreamSource(OpenWire, kw_only=True, frozen=True):
    """The origin of a mirror, or one of the sources of a stream.

    `domain="hub"` is short for `external=ExternalStream(api="$JS.hub.API")`.

    Attributes:
        name: Name of the origin.
        opt_start_seq: The first sequence to copy.
        opt_start_time: The first point in time to copy from. It needs a time zone.
        filter_subject: Only messages of this subject.
        subject_transforms: Rules that rewrite subjects on the way (server 2.10).
        external: The way to a stream of another account or domain.
        consumer: The durable consumer through which it is read (server 2.14).
        domain: The domain of the origin, as a short form of `external`.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str
    opt_start_seq: int | None = None
    opt_start_time: Timestamp | None = None
    filter_subject: str | None = None
    subject_transforms: list[SubjectTransform] | None = None
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None
    domain: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain is None:
            return
        if self.external is not None:
            raise ConfigError("StreamSource: domain and external exclude each other")
        api = f"$JS.{names.check_domain(self.domain)}.API"
        msgspec.structs.force_setattr(self, "external", ExternalStream(api=api))
        msgspec.structs.force_setattr(self, "domain", None)


class Republish(OpenWire, kw_only=True, frozen=True):
    """Publishes every stored message again, on `dest`.

    Attributes:
        src: Subjects of stored messages that are published again. An empty string means all.
        dest: The subject for them.
        headers_only: Publish them without the payloads.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    src: str = ""
    dest: str = ""
    headers_only: bool | None = None


class StreamConsumerLimits(OpenWire, kw_only=True, frozen=True):
    """Limits and defaults for the consumers of a stream (server 2.10).

    Attributes:
        inactive_threshold: Seconds without use after which a consumer is removed. This is the default and the maximum
            for consumers.
        max_ack_pending: The most messages without an ack that a consumer may allow.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    inactive_threshold: Seconds | None = None
    max_ack_pending: int | None = None
