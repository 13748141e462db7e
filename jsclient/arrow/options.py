"""The settings with which jsclient.arrow reads a stream, and the errors that it raises."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

import attrs

from jsclient import errors
from jsclient.arrow.settings import Refused

log: logging.Logger = logging.getLogger("jsclient.arrow")

STALL: Final = 60.0  # seconds without any progress after which a reading gives up


@attrs.frozen(kw_only=True)
class ReadOptions:
    """See `Settings`."""

    stream: str
    api_prefix: str | None = None
    subjects: tuple[str, ...] = ()
    task_timeout: float | None = None

    domain: None = None  # the prefix contains it
    read_method: str = "auto"
    fail_on_data_loss: bool = True
    compacted: bool = False
    reconnect_timeout: float = STALL

    consumers: ClassVar[str] = "arrow"
    time_limit: ClassVar[str] = "timeout"
    accept_loss: ClassVar[str] = "read what is left, with start=None"

    def hide(self, text: str) -> str:
        return text  # a connection's own errors hold no secrets

    def refuse(self, token: str, text: str) -> Refused:
        return Refused(token, text)

    def note(self, text: str) -> None:
        log.warning("%s", text)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turns errors of the reading machinery into the errors of jsclient.errors."""
    try:
        yield
    except Refused as refused:
        cause = refused.__cause__
        if refused.token == "JETSTREAM_STREAM_NOT_FOUND" and isinstance(cause, errors.StreamNotFound):
            raise cause from None
        raise _typed(refused) from cause


def _typed(refused: Refused) -> errors.JsClientError:
    text = str(refused)
    match refused.token:
        case "JETSTREAM_DATA_LOSS":
            return errors.DataLost(text)
        case "JETSTREAM_STREAM_RECREATED":
            return errors.StreamRecreated(404, "", text)
        case "JETSTREAM_TASK_TIMEOUT":
            return errors.RangeTimeout(text)
        case "JETSTREAM_BAD_RECORD":
            return errors.BadRecord(text)
        case "JETSTREAM_SERVER_TOO_OLD" | "JETSTREAM_DIRECT_UNAVAILABLE":
            return errors.NotSupported(text)
    return errors.RangeIncomplete(text)
