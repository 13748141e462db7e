"""What planning needs to be told, beside what `jsclient.arrow.settings` names."""

from __future__ import annotations

from typing import Protocol

from jsclient.arrow.settings import Settings


class PlanSettings(Settings, Protocol):
    """Which streams are read; `stream` is the text that says it, for errors."""

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Those that are named, each once."""

    @property
    def stream_patterns(self) -> tuple[str, ...]:
        """Names with `*` for any text."""
