"""Find a nats-server on this machine. Standard library only, and loadable by path: tools/nats_server.py does that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

#: Tests and the demo need features of 2.14 (fast batches, schedules); the client itself supports 2.9 and later.
MINIMUM = (2, 14)
#: Debian installs there, and it is not on the PATH of a plain user.
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")

INSTALL_HELP = (
    "Install a release of nats-server, let `make setup` in a clone of jsclient fetch one, "
    "or name any version of the program in NATS_SERVER=/path/to/nats-server."
)


class ServerNotFound(RuntimeError):
    """There is no nats-server that is new enough. The text lists the places searched and tells you what to do."""


def server_version(binary: str | os.PathLike[str]) -> tuple[int, int, int]:
    """The version that `binary --version` prints. Raises ServerNotFound if it is not a nats-server that runs here."""
    try:
        done = subprocess.run([os.fspath(binary), "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerNotFound(f"{os.fspath(binary)} does not run: {error}") from None
    found = re.search(r"nats-server: v?(\d+)\.(\d+)\.(\d+)", done.stdout + done.stderr)
    if found is None:
        raise ServerNotFound(f"{os.fspath(binary)} does not answer --version like a nats-server")
    return int(found[1]), int(found[2]), int(found[3])


def tools_folder() -> Path | None:
    """The `.tools` folder of the tree that this file or the working directory belongs to, if there is one."""
    for base in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (base / ".tools").is_dir():
            return base / ".tools"
    return None


def candidates() -> list[Path]:
    """The existing nats-server programs, in the order of preference."""
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
    """The path of a nats-server: NATS_SERVER unchecked, else the first one that is at least `minimum`.

    Searches NATS_SERVER, PATH, the system's sbin folders and `.tools/`. NATS_SERVER is the user's decision, so it is
    not compared with `minimum`, but it must run. Raises ServerNotFound with the places searched.
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
