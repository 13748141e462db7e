"""Print the home of a Java that Spark runs on (17 or later); unpack one below .tools when the machine has none.

Order: JAVA_HOME > java on PATH > .tools/java > Debian's openjdk-17-jre-headless through a private apt state (no root).
Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.private_apt import AptError, fetch_packages  # noqa: E402 (whatever the working directory is)

TOOLS = ROOT / ".tools"
MINIMUM = 17
SUITE, PACKAGE = "bookworm", "openjdk-17-jre-headless"
INSTALL_HELP = (
    "Spark needs Java 17 or newer. Install it (as root: apt-get install openjdk-17-jre-headless, or "
    "brew install openjdk@17), name it in JAVA_HOME, or leave Spark out of the tests: make test SPARK=0"
)


def java_home(program: str) -> tuple[Path, int] | None:
    """(java.home, major version) of a java program, or None when it does not run. On macOS /usr/bin/java is a stub."""
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"java\.home = (.+)", done.stderr)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    if done.returncode != 0 or home is None or version is None:
        return None
    return Path(home[1].strip()), int(version[1])


def unpack_java(target: Path) -> Path:
    """Debian's JRE, unpacked; its links into /etc are turned into links inside the tree."""
    TOOLS.mkdir(exist_ok=True)
    print(f"fetching {PACKAGE} (44 MB) ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="apt-") as work:
        tree = fetch_packages(SUITE, [PACKAGE], Path(work))
        repoint_links(tree)
        found = sorted((tree / "usr" / "lib" / "jvm").glob("*/bin/java"))
        if not found:
            raise AptError(f"{PACKAGE} holds no java program")
        if java_home(str(found[0])) is None:
            raise AptError(f"the java of {PACKAGE} does not run on this machine")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(tree, target)
        return target / found[0].parent.parent.relative_to(tree)


def repoint_links(tree: Path) -> None:
    """Absolute links (the package keeps its settings in /etc) become relative ones, so that the tree can be moved."""
    for link in tree.rglob("*"):
        if link.is_symlink():
            inside = tree / os.readlink(link).lstrip("/")
            if os.path.isabs(os.readlink(link)) and inside.exists():
                link.unlink()
                link.symlink_to(os.path.relpath(inside, link.parent))


def find_java() -> Path:
    """The home of a Java that is new enough, unpacking one when needed."""
    named = os.environ.get("JAVA_HOME")
    unpacked = sorted((TOOLS / "java").glob("usr/lib/jvm/*/bin/java"))
    programs = [str(Path(named, "bin", "java"))] if named else []
    programs += [p for p in [shutil.which("java"), *map(str, unpacked)] if p]
    seen = []
    for program in programs:
        found = java_home(program)
        if found is not None and found[1] >= MINIMUM:
            return found[0]
        seen.append(f"{program} " + (f"is Java {found[1]}" if found else "does not run"))
    try:
        return unpack_java(TOOLS / "java")
    except (AptError, OSError) as error:
        looked = "; ".join(seen) or "no java on PATH and no JAVA_HOME"
        raise AptError(f"No Java could be found ({looked}) or fetched ({error}).\n{INSTALL_HELP}") from None


def main() -> int:
    try:
        print(find_java())
    except AptError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
