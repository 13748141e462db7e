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

    # --- the guarantees for a row -------------------------------------------------------------------------

    @property
    def delivery_semantics(self) -> str:
        """`exactly-once`, `window`, `at-least-once`, or `auto` for exactly once if this user can have a journal."""

    @property
    def journal_bucket(self) -> str:
        """The key-value bucket of the receipts; created if it is missing and this user has the permission."""

    # --- sending ------------------------------------------------------------------------------------------

    @property
    def publish_mode(self) -> str:
        """`async`, `fast` (batches of nats-server 2.14), or `auto` for fast if that works."""

    def reading(self, stream: str) -> Settings:
        """Settings to read back `stream`, with which a message of the range that is gone is an error."""
