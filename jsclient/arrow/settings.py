"""The settings for reading a range, and the way to report errors and losses to the user.

The same machinery reads for `jsclient.arrow` and for Spark, which have their own errors and options.
"""

from __future__ import annotations

from typing import Any, Protocol


class Refused(Exception):
    """An error of the reading machinery. Users get a subclass of it, or another error that replaces it in the public
    call.

    `token` is stable and meant for programs, `message` is the text without it, `shown` is the result of `str()`.
    """

    def __init__(self, token: str, message: str, shown: str = "") -> None:
        super().__init__(shown or message)
        self.token = token
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.token, self.message))


class Settings(Protocol):
    """The settings for reading one stream. Durations are in seconds, sizes in bytes."""

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
    def task_timeout(self) -> float | None: ...
    @property
    def reconnect_timeout(self) -> float: ...

    @property
    def consumers(self) -> str:
        """The prefix of the names of consumers."""

    @property
    def time_limit(self) -> str:
        """The name of the user's option for `task_timeout`."""

    @property
    def accept_loss(self) -> str:
        """Advice on how to continue without the lost messages; the end of a sentence."""

    def hide(self, text: str) -> str:
        """`text` without secrets."""

    def refuse(self, token: str, text: str) -> Refused:
        """The error that is raised if the machinery cannot continue; `token` is one of jsclient.spark.errors.TOKENS."""

    def note(self, text: str) -> None:
        """Report skipped messages although nothing failed."""
