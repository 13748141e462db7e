"""Backups of streams: files that the NATS CLI restores, and the other way round.

from jsclient import backup

backup.backup_stream(js, "ORDERS", "backups/ORDERS")
backup.verify("backups/ORDERS")                                # size and SHA-256 are as at the backup
backup.restore_stream(js, "backups/ORDERS", name="ORDERS-2")   # same sequences, times, headers, consumers
backup.backup_account(js, "backups")                           # every stream, one folder each
"""

from __future__ import annotations

from jsclient.backup.account import Outcome, backup_account, restore_account
from jsclient.backup.errors import BackupCorrupt, BackupError
from jsclient.backup.files import Backup, Manifest, load, verify
from jsclient.backup.restoring import restore_stream
from jsclient.backup.taking import backup_stream

__all__ = [
    "Backup",
    "BackupCorrupt",
    "BackupError",
    "Manifest",
    "Outcome",
    "backup_account",
    "backup_stream",
    "load",
    "restore_account",
    "restore_stream",
    "verify",
]
