"""Errors of backups and restores."""

from __future__ import annotations

from jsclient.errors import JetStreamError


class BackupError(JetStreamError):
    """A backup or restore failed. The text names the step, and what it has left behind."""


class BackupCorrupt(BackupError, ValueError):
    """A backup on disk is damaged or incomplete: do not rely on it."""

    meaning = "The backup cannot be relied on."
    advice = "Take another one, or use an older one."
