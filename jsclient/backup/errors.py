"""What can go wrong with a backup."""

from __future__ import annotations

from jsclient.errors import JetStreamError


class BackupError(JetStreamError):
    """A backup or restore failed; the text says at which step, and what is left behind."""


class BackupCorrupt(BackupError, ValueError):
    """A backup on disk is damaged or incomplete: do not rely on it."""

    meaning = "The backup cannot be relied on."
    advice = "Take another one, or use an older one."
