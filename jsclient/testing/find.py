"""Find a nats-server on this machine. Standard library only, and loadable by path: tools/nats_server.py does that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

#: Tests and the demo want what 2.14 brought (fast batches, schedules); the client itself supports 2.9 and later.
MINIMUM = (2, 14)
#: Debian installs there, and it is not on the PATH of a plain user.
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")

INSTALL_HELP = (
    "Install one (brew install nats-server, or as root apt-get install nats-server), "
    "let `make setup` fetch one, or name the program in NATS_SERVER=/path/to/nats-server."
)


class ServerNotFound(RuntimeError):
    """No nats-server that is new enough was found; the text says where was looked and what to do."""


def server_version(binary: str | os.PathLike[str]) -> tuple[int, int, int]:
    """The version that `binary --version` prints; ServerNotFound when it is not a nats-server that runs here."""
    try:
        done = subprocess.run([os.fspath(binary), "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerNotFound(f"{os.fspath(binary)} does not run: {error}") from None
    found = re.search(r"nats-server: v?(\d+)\.(\d+)\.(\d+)", done.stdout + done.stderr)
    if found is None:
        raise ServerNotFound(f"{os.fspath(binary)} does not answer --version like a nats-server")
    return int(found[1]), int(found[2]), int(found[3])


def tools_folder() -> Path | None:
    """The `.tools` folder of the tree that this file or the working directory belongs to, when there is one."""
    for base in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (base / ".tools").is_dir():
            return base / ".tools"
    return None


def candidates() -> list[Path]:
    """Where a nats-server may be, in the order of preference; only programs that exist."""
    places: list[Path] = []
    on_path = shutil.which("nats-server")
    if on_path:
        places.append(Path(on_path))
    places += [Path(folder, "nats-server") for folder in SYSTEM_FOLDERS]
    tools = tools_folder()
    if tools is not None:
        places.append(tools / "nats-server")
    return [place for place in dict.fromkeys(places) if os.access(place, os.X_OK)]


def find_server(minimum: tuple[int, ...] = MINIMUM) -> str:
    """The path of a nats-server: NATS_SERVER as it is, else the first that is at least `minimum`.

    Looks at NATS_SERVER, PATH, the system's sbin folders and `.tools/`. NATS_SERVER is the user's word: it is not
    compared with `minimum`, but it must run. Raises ServerNotFound with the places looked at.
    """
    named = os.environ.get("NATS_SERVER")
    if named:
        try:
            server_version(named)
        except ServerNotFound as error:
            raise ServerNotFound(f"NATS_SERVER: {error}") from None
        return named
    seen: list[str] = []
    for place in candidates():
        try:
            version = server_version(place)
        except ServerNotFound as error:
            seen.append(str(error))
            continue
        if version >= minimum:
            return str(place)
        seen.append(f"{place} is {'.'.join(map(str, version))}")
    wanted = ".".join(map(str, minimum))
    looked = "; ".join(seen) or "nothing on PATH, in the sbin folders or in .tools"
    raise ServerNotFound(f"No nats-server {wanted} or newer was found ({looked}). {INSTALL_HELP}")
