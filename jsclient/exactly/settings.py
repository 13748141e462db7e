"""What writing the partitions of a batch needs to be told, beside what `jsclient.arrow.settings` names."""

from __future__ import annotations

from typing import Protocol

from jsclient.arrow.settings import Settings


class WriteSettings(Settings, Protocol):
    """How rows are written; an engine gives these names to options of its own. Durations in seconds.

    The texts of errors name options as Spark's users write them: `publishMode` for `publish_mode`.
    """

    # --- what becomes of a row ----------------------------------------------------------------------------

    @property
    def subject(self) -> str | None:
        """Where all rows go; None: the column `subject` says it."""

    @property
    def value_format(self) -> str:
        """`binary`: the column `value` as it is; `json` or `msgpack`: documents are made."""

    @property
    def null_value(self) -> str:
        """`error`, or `empty` for an empty payload."""

    @property
    def message_id(self) -> str:
        """Where ids come from: `column` (msg_id), `content`, `none`, or `auto`: the column where there is one."""

    # --- what holds for it --------------------------------------------------------------------------------

    @property
    def delivery_semantics(self) -> str:
        """`exactly-once`, `window`, `at-least-once`; `auto`: exactly once where this user may have a journal."""

    @property
    def when_unsure(self) -> str | None:
        """`fail`, or `publish` rows that may be stored already; None: `fail` with `exactly-once`, else `publish`."""

    @property
    def journal_bucket(self) -> str:
        """The key-value bucket of the receipts; made where it is missing, if this user may."""

    @property
    def min_dedup_window(self) -> float:
        """A stream that recognises ids for a shorter time gets a note, and one that may not be asked is taken to
        recognise them for so long."""

    # --- how it is sent -----------------------------------------------------------------------------------

    @property
    def publish_mode(self) -> str:
        """`async`, `fast` (batches of nats-server 2.14), `atomic` (2.12.1), or `auto`: fast where that works."""

    @property
    def atomic_marker_subject(self) -> str | None:
        """With `atomic`: what the subjects of the markers begin with."""

    @property
    def max_in_flight(self) -> int:
        """Rows without an ack."""

    @property
    def ack_timeout(self) -> float:
        """After so long without an ack another copy of a row is sent."""

    @property
    def publish_retries(self) -> int: ...

    def reading(self, stream: str) -> Settings:
        """How `stream` is read back: a message of the range that is gone is an error."""
