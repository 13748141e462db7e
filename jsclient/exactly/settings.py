"""The settings for writing the partitions of a batch, in addition to those in `jsclient.arrow.settings`."""

from __future__ import annotations

from typing import Protocol

from jsclient.arrow.settings import Settings


class WriteSettings(Settings, Protocol):
    """Settings for writing rows; an engine gives these names to its own options. Durations in seconds.

    The texts of errors name options as Spark's users write them, for example `publishMode` for `publish_mode`.
    """

    # --- the content of a row -----------------------------------------------------------------------------

    @property
    def subject(self) -> str | None:
        """The subject of all rows; with None the column `subject` has it."""

    @property
    def value_format(self) -> str:
        """With `binary` the column `value` is sent unchanged. With `json` or `msgpack` rows become documents."""

    @property
    def null_value(self) -> str:
        """`error`, or `empty` for an empty payload."""

    @property
    def message_id(self) -> str:
        """The origin of ids: `column` (msg_id), `content`, `none`, or `auto` for the column if there is one."""

    # --- the guarantees for a row -------------------------------------------------------------------------

    @property
    def delivery_semantics(self) -> str:
        """`exactly-once`, `window`, `at-least-once`, or `auto` for exactly once if this user can have a journal."""

    @property
    def when_unsure(self) -> str | None:
        """`fail`, or `publish` rows that may be stored already. None is `fail` with `exactly-once`, else `publish`."""

    @property
    def journal_bucket(self) -> str:
        """The key-value bucket of the receipts; created if it is missing and this user has the permission."""

    @property
    def min_dedup_window(self) -> float:
        """Seconds. A stream that recognises ids for a shorter time gets a note. The client assumes this value for a
        stream that it has no permission to ask."""

    # --- sending ------------------------------------------------------------------------------------------

    @property
    def publish_mode(self) -> str:
        """`async`, `fast` (batches of nats-server 2.14), or `auto` for fast if that works."""

    @property
    def max_in_flight(self) -> int:
        """Rows without an ack."""

    @property
    def ack_timeout(self) -> float:
        """Seconds without an ack after which another copy of a row is sent."""

    @property
    def publish_retries(self) -> int: ...

    def reading(self, stream: str) -> Settings:
        """Settings to read back `stream`, with which a message of the range that is gone is an error."""
