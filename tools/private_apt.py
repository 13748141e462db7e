"""Fetch Debian packages without root and without touching the machine's apt state. Standard library only.

The mirror and the keyring come from the machine's own apt sources; the suite is ours. apt checks the signatures as
always. Nothing is installed: the packages are unpacked into a folder.

    python tools/private_apt.py SUITE FOLDER PACKAGE...        unpacks into FOLDER/tree
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

DEFAULT_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class AptError(RuntimeError):
    """The packages could not be fetched this way; the text says why."""


def parse_deb822(text: str) -> list[dict[str, str]]:
    """The stanzas of a `.sources` file, keys in lower case, continuation lines joined."""
    stanzas: list[dict[str, str]] = []
    for block in text.replace("\r", "").split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t":
                fields[key] = f"{fields.get(key, '')} {line.strip()}".strip()
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        if fields:
            stanzas.append(fields)
    return stanzas


def parse_one_line(line: str) -> dict[str, str] | None:
    """`deb [signed-by=..] URI suite components` as a stanza; None for other lines."""
    words = line.split("#", 1)[0].split()
    if len(words) < 4 or words[0] != "deb":
        return None
    signed = ""
    rest = words[1:]
    if rest[0].startswith("["):
        options: list[str] = []
        while rest:
            word = rest.pop(0)
            options.append(word.strip("[]"))
            if word.endswith("]"):
                break
        signed = next((o.partition("=")[2] for o in options if o.lower().startswith("signed-by=")), "")
    if len(rest) < 3:
        return None
    return {"types": "deb", "uris": rest[0], "suites": rest[1], "components": " ".join(rest[2:]), "signed-by": signed}


def debian_source(folder: Path = Path("/etc/apt")) -> tuple[str, str]:
    """(URI, keyring) of the machine's Debian main archive."""
    stanzas: list[dict[str, str]] = []
    lists = folder / "sources.list.d"
    for path in sorted(lists.glob("*.sources")) if lists.is_dir() else []:
        stanzas += parse_deb822(path.read_text(errors="replace"))
    one_line = [folder / "sources.list", *(sorted(lists.glob("*.list")) if lists.is_dir() else [])]
    for path in one_line:
        if path.is_file():
            found = (parse_one_line(line) for line in path.read_text(errors="replace").splitlines())
            stanzas += [stanza for stanza in found if stanza is not None]
    for stanza in stanzas:
        if stanza.get("enabled", "yes").lower() == "no" or "deb" not in stanza.get("types", "").split():
            continue
        if "main" not in stanza.get("components", "").split():
            continue
        suites = [s for s in stanza.get("suites", "").split() if not s.endswith("-security") and "/" not in s]
        uris = [u for u in stanza.get("uris", "").split() if "debian" in u and "ubuntu" not in u]
        if suites and uris:
            return uris[0], stanza.get("signed-by") or DEFAULT_KEYRING
    raise AptError("the machine's apt sources name no Debian archive")


def run(command: list[str], cwd: Path) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise AptError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith(("E:", "W:"))]
        raise AptError((lines or (done.stderr or done.stdout or "no output").splitlines())[0][:300])


def apt_options(work: Path) -> list[str]:
    """Options that make apt-get use only `work`; without an update that really worked it must fail (Error-Mode)."""
    values = {
        "Dir::Etc": work / "etc",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::State": work / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "1",
        "APT::Update::Error-Mode": "any",
    }
    return [part for key, value in values.items() for part in ("-o", f"{key}={value}")]


def prepare(suite: str, work: Path, types: str = "deb") -> list[str]:
    """Make a private apt below `work` that knows `suite` of the machine's archive; the start of its commands."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise AptError("there is no apt-get and dpkg-deb on this machine")
    uri, keyring = debian_source()
    for folder in ("etc/sources.list.d", "etc/preferences.d", "etc/apt.conf.d"):
        (work / folder).mkdir(parents=True)
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    stanza = f"Types: {types}\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {keyring}\n"
    (work / "etc/sources.list.d/private.sources").write_text(stanza)
    apt = ["apt-get", *apt_options(work), "-q"]
    os.environ.setdefault("LC_ALL", "C")
    run([*apt, "update"], work)
    return apt


def fetch_packages(suite: str, packages: list[str], work: Path) -> Path:
    """Download `packages` of `suite` (without their dependencies) and unpack them into one tree below `work`."""
    apt = prepare(suite, work)
    for folder in ("debs", "tree"):
        (work / folder).mkdir()
    run([*apt, "download", *packages], work / "debs")
    for deb in sorted((work / "debs").glob("*.deb")):
        run(["dpkg-deb", "-x", str(deb), str(work / "tree")], work)
    return work / "tree"


def fetch_source(suite: str, package: str, work: Path) -> Path:
    """Download the source of a package, without Debian's changes; returns its archive."""
    apt = prepare(suite, work, "deb-src")
    run([*apt, "source", "--download-only", "--tar-only", package], work)
    return next(work.glob("*.orig.tar.*[!c]"))


def main(argv: list[str]) -> int:
    if len(argv) < 4:
        print("usage: private_apt.py SUITE FOLDER PACKAGE...", file=sys.stderr)
        return 2
    try:
        fetch_packages(argv[1], argv[3:], Path(argv[2]).resolve())
    except (AptError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
