"""Turns payloads that are documents into columns, and handles payloads that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from jsclient.arrow.formats import CORRUPT, DocumentDecoder


class Message(NamedTuple):
    """A message that does not fit the schema."""

    stream: str
    seq: int
    subject: bytes
    headers: bytes | None  # the raw block
    payload: bytes
    stored: int  # nanoseconds since 1970


Bad = tuple[Message, str]


class DocumentColumns:
    """The columns of one schema that lie inside of payloads.

    There are three ways to handle bad documents. With `refuse`, the first bad document raises the error that it makes.
    With `divert`, bad documents are passed to it before the batch is returned, and are left out of the batch. Otherwise
    they are null, with their payload in the column `_corrupt`.
    """

    def __init__(
        self,
        kind: str,
        fields: Sequence[pa.Field],
        *,
        whole: bool = False,
        corrupt: pa.DataType | None = None,
        refuse: Callable[[str], Exception] | None = None,
        divert: Callable[[list[Bad]], None] | None = None,
    ) -> None:
        self._names = [field.name for field in fields]
        self._decoder = DocumentDecoder(kind, fields, whole=whole) if fields else None
        self._corrupt = corrupt
        self._refuse = refuse
        self._divert = divert
        self.wants_headers: bool = divert is not None

    def columns(
        self, payloads: list[bytes], message: Callable[[int], Message]
    ) -> tuple[dict[str, pa.Array], pa.Array | None]:
        """The columns inside of the payloads, and a mask of the rows to keep (None: all)."""
        if self._decoder is None:
            return {}, None
        decoded = self._decoder.decode(payloads)
        found = dict(zip(self._names, decoded.columns, strict=True))
        if self._corrupt is not None:
            found[CORRUPT] = self._corrupted(payloads, decoded.bad)
        if not decoded.bad:
            return found, None
        if self._refuse is not None:
            number, reason = next(iter(decoded.bad.items()))
            bad = message(number)
            raise self._refuse(
                f"stream {bad.stream!r}: message {bad.seq} on {bad.subject.decode('utf-8', 'replace')!r} does not fit "
                f"the schema: {reason}"
            )
        if self._divert is None:
            return found, None
        self._divert([(message(number), reason) for number, reason in decoded.bad.items()])
        return found, pa.array([number not in decoded.bad for number in range(len(payloads))])

    def _corrupted(self, payloads: list[bytes], bad: dict[int, str]) -> pa.Array:
        if not bad:
            return pa.nulls(len(payloads), self._corrupt)
        raw = [payload if number in bad else None for number, payload in enumerate(payloads)]
        if pa.types.is_binary(self._corrupt):
            return pa.array(raw, self._corrupt)
        return pa.array([None if text is None else text.decode("utf-8", "replace") for text in raw], self._corrupt)
