"""Backups of streams: files that the NATS CLI restores, and the other way round.

from jsclient import backup

backup.backup_stream(js, "ORDERS", "backups/ORDERS")
backup.verify("backups/ORDERS")                                # whole? digest, checksums, end mark, count
backup.restore_stream(js, "backups/ORDERS", name="ORDERS-2")   # same sequences, times, headers, consumers
backup.backup_account(js, "backups")                           # every stream, one folder each
for message in backup.extract("backups/ORDERS", subject="orders.eu.>"):
    print(message.seq, message.name, message.data)
"""

from __future__ import annotations

from jsclient.backup.archive import Entry
from jsclient.backup.errors import BackupCorrupt, BackupError
from jsclient.backup.files import Backup, Manifest, load
from jsclient.backup.looking import Contents, extract, inspect, verify
from jsclient.backup.restoring import restore_account, restore_stream
from jsclient.backup.taking import Outcome, backup_account, backup_stream

__all__ = [
    "Backup",
    "BackupCorrupt",
    "BackupError",
    "Contents",
    "Entry",
    "Manifest",
    "Outcome",
    "backup_account",
    "backup_stream",
    "extract",
    "inspect",
    "load",
    "restore_account",
    "restore_stream",
    "verify",
]
