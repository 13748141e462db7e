"""Encodes messages as frames that are valid and within the server's limits. `protocol.frames` builds the frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jsclient import checks, errors
from jsclient.message import HeadersLike, Payload
from jsclient.protocol.errors import LineTooLong
from jsclient.protocol.frames import hpub, pub, pub_start, with_reply

KNOWN_SUBJECTS: Final = 4096
"""Validated subjects that a connection remembers: a check costs 1 µs, a dictionary look-up 40 ns."""


class Encoder:
    """Knows which limits the server has announced, and which subjects were checked before."""

    def __init__(self, connected_url: Callable[[], str]) -> None:
        self._connected_url = connected_url
        self.starts: dict[str, bytes] = {}  # subject, checked -> how its line begins
        self.max_payload = 1024 * 1024
        self.takes_headers = True

    def encode(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str | bytes = b"",
        headers: HeadersLike | bytes | None = None,
    ) -> bytes:
        """One validated PUB or HPUB frame. For layers: `reply` as bytes and `headers` as an encoded block are used
        unchanged."""
        return self.frame(self.pub_start(subject, reply), payload, headers)

    def frame(self, start: bytes, payload: Payload, headers: HeadersLike | bytes | None = None) -> bytes:
        """The same for a start of line that was checked already, or came over the wire."""
        if payload.__class__ is not bytes:
            payload = checks.payload(payload)
        size = len(payload)
        if not headers:
            if size > self.max_payload:
                raise self.too_large(size)
            return pub(start, payload)
        if not self.takes_headers:
            self.check_headers()
        block = headers if headers.__class__ is bytes else checks.header_block(headers)  # type: ignore[arg-type]
        size += len(block)
        if size > self.max_payload:
            raise self.too_large(size)
        return hpub(start, block, payload)

    def pub_start(self, subject: str, reply: str | bytes = b"") -> bytes:
        """The beginning of a message's line (see `protocol.frames`), validated as in `encode`."""
        try:
            start = self.starts[subject]
        except (KeyError, TypeError):  # new, or no str at all
            start = self.learn_subject(subject)
        if not reply:
            return start
        try:
            return with_reply(start, reply if isinstance(reply, bytes) else checks.subject(reply, "reply"))
        except LineTooLong as error:
            raise errors.InvalidSubject(error.what) from None

    def learn_subject(self, subject: str) -> bytes:
        with_filter = isinstance(subject, checks.FilterInSubject)
        raw = checks.filter_subject(subject) if with_filter else checks.subject(subject)
        try:
            start = pub_start(raw)
        except LineTooLong as error:
            raise errors.InvalidSubject(error.what) from None
        if with_filter:
            return start  # not remembered, or a plain str that is equal to it would pass
        if len(self.starts) >= KNOWN_SUBJECTS:
            self.starts.clear()
        self.starts[subject] = start
        return start

    def too_large(self, size: int) -> errors.PayloadTooLarge:
        return errors.PayloadTooLarge(
            f"headers and payload have {size} bytes, the server takes {self.max_payload} (max_payload)"
        )

    def check_headers(self) -> None:
        """When `takes_headers` is False: raises HeadersNotSupported."""
        if not self.takes_headers:
            raise errors.HeadersNotSupported(
                f"{self._connected_url() or 'the server'} takes no headers (no_header_support), and this "
                "message has some"
            )
