"""Inspect backups without a server: list their contents, and check that they are complete."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from typing import Any, Final

import attrs

from jsclient.backup import archive, files, s2
from jsclient.backup.archive import Entry
from jsclient.backup.errors import BackupCorrupt
from jsclient.backup.files import Backup
from jsclient.declared import arguments
from jsclient.errors import NotSupported
from jsclient.jetstream.api.headers import STREAM_SOURCE, readable
from jsclient.protocol.subjects import matches

_STREAM_SOURCE: Final = STREAM_SOURCE.encode()


@attrs.frozen
class Contents:
    """Counts of a backup's contents. `subjects` maps each subject to its number of messages. Fields are None for tar
    files of old servers: only their consumers can be listed here.

    Attributes:
        stream: Name of the stream.
        format: "archive" (server 2.15) or "tar".
        messages: Messages in it; None for tar.
        first_seq: Sequence of the first; None for tar.
        last_seq: Sequence of the last; None for tar.
        subjects: Messages per subject; None for tar.
        consumers: Names of the consumers in it.
    """

    stream: str
    format: str
    messages: int | None
    first_seq: int | None
    last_seq: int | None
    subjects: dict[str, int] | None
    consumers: list[str]


@arguments
def inspect(folder: str | os.PathLike[str]) -> Contents:
    """Read the complete backup and count its contents. Raises BackupCorrupt if it is damaged."""
    return _contents(files.load(folder), check=False)


@arguments
def verify(folder: str | os.PathLike[str]) -> Contents:
    """Read the complete backup and check digest, checksums, end mark, order of sequences and count. Returns its
    contents.

    Raises BackupCorrupt with the reason. Without a manifest (the NATS CLI writes none) there is no digest to check.
    """
    backup = files.load(folder)
    check_digest(backup)
    contents = _contents(backup, check=True)
    stated = backup.state.get("messages")
    if contents.messages is not None and contents.messages != stated:
        raise BackupCorrupt(f"{contents.messages} messages are in the archive, {stated} were in the stream")
    return contents


def check_digest(backup: Backup) -> None:
    """Compare the data with the digest of the manifest, if there is one."""
    if backup.manifest is None:
        return
    with backup.data.open("rb", buffering=0) as file:
        found, size = files.digest(file)
    if (found, size) != (backup.manifest.sha256, backup.manifest.bytes):
        raise BackupCorrupt(
            f"{backup.data} is not what was backed up: {size} bytes with another digest than the manifest says "
            f"({backup.manifest.bytes} bytes)"
        )


def _contents(backup: Backup, *, check: bool) -> Contents:
    if backup.format() == "tar":
        return Contents(backup.stream, "tar", None, None, None, None, _consumers_of_tar(backup, check))
    subjects: dict[str, int] = {}
    consumers: list[str] = []
    first = last = count = 0
    with backup.entries(check=check) as contents:
        for entry in contents:
            if not entry.seq:
                if entry.name.startswith(archive.CONSUMERS):
                    consumers.append(entry.name[len(archive.CONSUMERS) :])
                continue
            if entry.seq <= last:
                raise BackupCorrupt(f"message {entry.seq} comes after message {last}")
            first, last, count = first or entry.seq, entry.seq, count + 1
            subjects[entry.name] = subjects.get(entry.name, 0) + 1
    return Contents(backup.stream, "archive", count, first, last, subjects, sorted(consumers))


def _consumers_of_tar(backup: Backup, check: bool) -> list[str]:
    consumers = set()
    with backup.data.open("rb") as file:
        reader: Any = s2.Reader(file, check=check)
        try:
            with tarfile.open(fileobj=reader, mode="r|") as tar:
                for member in tar:
                    parts = member.name.split("/")
                    if parts[0] == "obs" and len(parts) > 2:
                        consumers.add(parts[1])
        except tarfile.TarError as error:
            raise BackupCorrupt(f"{backup.data} is no tar file: {error}") from None
    return sorted(consumers)


@arguments
def extract(
    folder: str | os.PathLike[str], *, subject: str = ">", first_seq: int = 0, last_seq: int | None = None
) -> Iterator[Entry]:
    """The messages of a backup (`entry.name` is the subject), oldest first, one at a time in memory.

    For backups of server 2.15. One of an older server has to be restored first: NotSupported.

    `subject`: only those that match it. `first_seq` and `last_seq`: only these sequences, both included (by default
    all).
    """
    backup = files.load(folder)
    if backup.format() == "tar":
        raise NotSupported(
            "messages can be read from backups of nats-server 2.15 or later. Nothing was read. Restore this "
            "one, on any server, to see them."
        )
    return _messages(backup, subject, first_seq, last_seq)


def _messages(backup: Backup, subject: str, first_seq: int, last_seq: int | None) -> Iterator[Entry]:
    with backup.entries() as contents:
        for entry in contents:
            if entry.seq < max(1, first_seq) or (last_seq is not None and entry.seq > last_seq):
                continue
            if subject == ">" or matches(subject, entry.name):
                yield entry


def newest_of_sources(backup: Backup) -> dict[str, int]:
    """The last sequence of each source that a message of the archive came from."""
    found: dict[str, int] = {}
    with backup.entries() as contents:
        for entry in contents:
            if not entry.seq or _STREAM_SOURCE not in entry.raw_headers:
                continue
            headers = readable(entry)
            fields = (headers.get(STREAM_SOURCE) or "").split(" ")
            if len(fields) > 1 and fields[1].isdigit():
                found[fields[0]] = max(found.get(fields[0], 0), int(fields[1]))
    return found
