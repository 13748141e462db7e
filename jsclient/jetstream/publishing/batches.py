"""The common part of the two kinds of batches: the state, and the `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsclient import kinds, nuid
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Timeout, resolve
from jsclient.errors import BatchClosed
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.future import PubMsg
from jsclient.jetstream.publishing.options import HeadersLike, PublishOptions, V
from jsclient.message import Msg, Payload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.publishing.base import PublishingBase


B = TypeVar("B", bound="PublishBatch[Any]")


class PublishBatch(ABC, Generic[V]):
    """Messages that the server counts as one batch. Not for several threads."""

    def __init__(self, js: PublishingBase[V], timeout: Timeout) -> None:
        self.id: str = nuid.next_nuid()
        self._js = js
        self._nc = js.nc
        self._engine = engine_of(js.nc)
        self._timeout = resolve(timeout, js.publish_timeout)
        self._size = 0
        self._closed = ""

    def __len__(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        """True once it has ended in any way."""
        return bool(self._closed)

    @abstractmethod
    def add(
        self,
        subject: str,
        payload: Payload | V = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Timeout = DEFAULT,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Add a message; returns its number in the batch, from 1."""

    def add_msg(
        self,
        msg: PubMsg | Msg,
        *,
        msg_id: str | None = None,
        timeout: Timeout = DEFAULT,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Add a message object: its subject, headers and data."""
        kinds.check(PubMsg, Msg, msg=msg)
        return self.add(msg.subject, msg.data, headers=msg.headers, msg_id=msg_id, timeout=timeout, **options)

    @abstractmethod
    def commit(self, *, timeout: Timeout = DEFAULT) -> PubAck:
        """End the batch; returns the ack of its last message."""

    @abstractmethod
    def discard(self) -> None:
        """End the batch without a commit."""

    def _check_open(self) -> None:
        if self._closed:
            raise BatchClosed(f"the batch {self._closed}")

    def __enter__(self: B) -> B:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._closed:
            return
        try:
            if kind is None and self._size:
                self.commit()
        finally:
            self.discard()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} size={self._size} {self._closed or 'open'}>"

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)
