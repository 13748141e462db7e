"""The settings for planning, in addition to those in `jsclient.arrow.settings`."""

from __future__ import annotations

from typing import Protocol

from jsclient.arrow.settings import Settings


class PlanSettings(Settings, Protocol):
    """The streams to read. For errors, `stream` is the text of the option."""

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The streams that the option names, each once."""

    @property
    def stream_patterns(self) -> tuple[str, ...]:
        """Names with `*` for any text."""
