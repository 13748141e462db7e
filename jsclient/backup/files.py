"""A backup on disk is a folder with three files.

- `stream.tar.s2` is what the server sent, unchanged. Only servers read it.
- `backup.json` has the configuration and the state. The NATS CLI writes these two files, too.
- `manifest.json` is our own file, with digest, format, version and counts.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
import msgspec

from jsclient import checks
from jsclient.backup.errors import BackupCorrupt, BackupError
from jsclient.first_use import prepared
from jsclient.jetstream.api import names
from jsclient.protocol.errors import BAD_JSON

DATA: Final = "stream.tar.s2"
CONFIG: Final = "backup.json"
MANIFEST: Final = "manifest.json"
READ_SIZE: Final = 1024 * 1024
WRITE_EVERY: Final = 8 * 1024 * 1024
"""Bytes after which the disk is set to work."""
ARCHIVE: Final = b"NATSARC1"
"""The first bytes that server 2.15 packs. Nothing in them repeats, so packing leaves them as they are."""
HEAD: Final = 64
_WRITE: Final = getattr(os, "POSIX_FADV_DONTNEED", 4)


class Manifest(msgspec.Struct, kw_only=True, frozen=True):
    """The facts about a backup. `sources` maps the name of a source to its last sequence that had been copied.

    Attributes:
        stream: Name of the stream.
        format: "archive" (server 2.15) or "tar".
        server_version: Version of the server that made it.
        sha256: Digest of the data, in hexadecimal.
        bytes: Size of the data.
        messages: Messages in the stream at the time of the backup.
        first_seq: Sequence of the oldest message.
        last_seq: The highest sequence.
        consumers: Consumers in it; None if the backup leaves them out.
        taken: Time of the backup, RFC 3339 in UTC.
        sources: The last sequence that had been copied, for each source of the stream.
    """

    stream: str
    format: str
    server_version: str
    sha256: str
    bytes: int
    messages: int
    first_seq: int
    last_seq: int
    consumers: int | None
    taken: str
    sources: dict[str, int] = {}


@attrs.frozen
class Backup:
    """A backup in a folder. `config` and `state` are the server's JSON as plain dicts. `manifest` may be missing if the
    NATS CLI made the backup.

    Attributes:
        folder: Path of the folder.
        config: The stream's configuration, the server's JSON.
        state: The stream's state at the time of the backup, the server's JSON.
        manifest: The facts that jsclient noted about it; None for a backup of the NATS CLI.
    """

    folder: Path
    config: dict[str, Any] = attrs.field(repr=False)
    state: dict[str, Any] = attrs.field(repr=False)
    manifest: Manifest | None = attrs.field(repr=False)

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return str(self.config["name"])

    @property
    def messages(self) -> int:
        """Messages in the stream at the time of the backup."""
        found = self.state.get("messages")
        return found if isinstance(found, int) else 0

    @property
    def data(self) -> Path:
        """The file with the messages."""
        return self.folder / DATA

    def format(self) -> str:
        """ "archive" (2.15) or "tar" (before), read from the data."""
        with self.data.open("rb") as file:
            return "archive" if ARCHIVE in file.read(HEAD) else "tar"


def load(folder: str | os.PathLike[str]) -> Backup:
    """The backup in a folder. Raises BackupError if there is none, BackupCorrupt if its files are not valid."""
    path = checks.path(folder, "folder")
    plain = _read_json(path / CONFIG)
    config, state = plain.get("config"), plain.get("state")
    if not (isinstance(config, dict) and isinstance(state, dict) and isinstance(config.get("name"), str)):
        raise BackupCorrupt(f"{path / CONFIG} holds no configuration and state of a stream")
    names.check_stream(config["name"])
    if not (path / DATA).is_file():
        raise BackupError(
            f"{path} holds no {DATA}: it is no backup, or one that was not finished. Nothing was changed. Name "
            "the folder of a whole backup."
        )
    manifest = None
    if (path / MANIFEST).exists():
        try:
            manifest = msgspec.convert(_read_json(path / MANIFEST), prepared(Manifest))
        except msgspec.ValidationError as error:
            raise BackupCorrupt(f"{path / MANIFEST}: {error}") from None
    return Backup(path, config, state, manifest)


def verify(folder: str | os.PathLike[str]) -> Backup:
    """Read the data and compare its size and SHA-256 with the manifest. Returns the backup.

    Raises BackupCorrupt if they differ. A backup of the NATS CLI has no manifest (`manifest` is None): only a restore
    shows whether its data is complete.
    """
    backup = load(folder)
    check_digest(backup)
    return backup


def check_digest(backup: Backup) -> None:
    """Compare the data with the digest of the manifest, if there is one."""
    if backup.manifest is None:
        return
    with backup.data.open("rb", buffering=0) as file:
        found, size = digest(file)
    if (found, size) != (backup.manifest.sha256, backup.manifest.bytes):
        raise BackupCorrupt(
            f"{backup.data} is not what was backed up: {size} bytes with another digest than the manifest says "
            f"({backup.manifest.bytes} bytes)"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise BackupError(
            f"there is no {path.name} in {path.parent}: this is no backup of a stream. Nothing was changed. "
            "Name the folder of one."
        ) from None
    except BAD_JSON as error:
        raise BackupCorrupt(f"{path} is not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise BackupCorrupt(f"{path} is not a JSON object")
    return plain


def save_json(path: Path, value: Any) -> None:
    """Write JSON as the NATS CLI does, completely or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    part.replace(path)


def prepare(folder: str | os.PathLike[str]) -> Path:
    """Make the folder of a new backup (mode 0700). Raises BackupError if it already holds a backup."""
    path = checks.path(folder, "folder")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (path / CONFIG).exists():
        raise BackupError(f"{path} holds a backup already: nothing was changed. Name another folder, or remove it.")
    return path


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")


def digest(file: io.FileIO) -> tuple[str, int]:
    """(SHA-256 in hex, bytes) of a file."""
    found, size, buffer = hashlib.sha256(), 0, memoryview(bytearray(READ_SIZE))
    while count := file.readinto(buffer):
        found.update(buffer[:count])
        size += count
    return found.hexdigest(), size


def begin_writing(file: BinaryIO, start: int, end: int) -> None:
    """Make the kernel start writing this part to the disk. Then the final fsync does not wait for all of it."""
    advise: Callable[[int, int, int, int], None] | None = getattr(os, "posix_fadvise", None)
    if advise is not None:
        file.flush()
        advise(file.fileno(), start, end - start, _WRITE)
