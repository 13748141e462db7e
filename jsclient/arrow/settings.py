"""What reading a range needs to be told, and how what happens on the way is said to the user.

The same machinery reads for `jsclient.arrow` and for Spark, which have errors and options of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jsclient.connection import Connection


class Refused(Exception):
    """What the machinery found. Users see an error of their own: a subclass, or what takes its place at the edge.

    `token` is stable and meant for programs, `message` is the text without it, `shown` what `str()` gives.
    """

    def __init__(self, token: str, message: str, shown: str = "") -> None:
        super().__init__(shown or message)
        self.token = token
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.token, self.message))


class Settings(Protocol):
    """How one stream is read. Durations in seconds, sizes in bytes."""

    @property
    def stream(self) -> str: ...
    @property
    def domain(self) -> str | None: ...
    @property
    def api_prefix(self) -> str | None: ...
    @property
    def subjects(self) -> tuple[str, ...]: ...
    @property
    def read_method(self) -> str: ...
    @property
    def fail_on_data_loss(self) -> bool: ...
    @property
    def compacted(self) -> bool: ...
    @property
    def pull_records(self) -> int: ...
    @property
    def pull_bytes(self) -> int: ...
    @property
    def prefetch(self) -> int: ...
    @property
    def consumer_inactive_threshold(self) -> float: ...
    @property
    def task_timeout(self) -> float | None: ...
    @property
    def reconnect_timeout(self) -> float: ...

    @property
    def consumers(self) -> str:
        """What the names of consumers begin with."""

    @property
    def time_limit(self) -> str:
        """What the user calls `task_timeout`."""

    @property
    def accept_loss(self) -> str:
        """What the user can do to go on without messages that are lost; the end of a sentence."""

    def hide(self, text: str) -> str:
        """`text` without secrets."""

    def refuse(self, token: str, text: str) -> Refused:
        """The error for what keeps the machinery from going on; `token` is one of those of jsclient.spark.errors."""

    def note(self, nc: Connection, query: str, text: str, lost: int = 0, expired: int = 0) -> None:
        """Say what was left out although nothing failed."""
