"""Build what a release uploads, and try it; nothing is uploaded: `make dist`.

    python tools/dist.py [--url URL] [--pythons] [--release]

1. The version stands in setup.cfg, in the library and in CHANGELOG.md, and is the same in all three.
2. From a copy of the tracked files a source archive and a wheel are built into dist/. The description for a package
   index is README.md with links that work there: below URL (make dist URL=https://...) or, without one, as plain text.
3. `twine check --strict`; the wheel contains py.typed, the chapters and the plugin, and neither tests nor tools; the
   source archive contains the tracked files and nothing else.
4. In a fresh environment (with --pythons: one for each Python found) the wheel alone is installed: it imports, mypy
   reads its types and finds a mistake, `jsclient --help` answers, pytest knows the fixtures, and the first example of
   the README runs against a private server (where there is a nats-server).

To release: date the entry in CHANGELOG.md, commit, run `make release-check`, tag `v` and the version, and push the tag.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
sys.path.insert(0, str(ROOT / "tools"))

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IN_WHEEL = [
    "jsclient/py.typed",
    "jsclient/protocol/parser.py",
    "pytest_jsclient/py.typed",
    "pyspark_jetstream/__init__.py",
    "pyspark_jetstream_kv/__init__.py",
    "pyspark_jetstream_objects/__init__.py",
    "jsclient/jetstream/README.md",
]
#: Of the tracked files these stay behind: they are for the repository.
NOT_IN_ARCHIVE = (".github/", ".gitignore", "jsclient/protocol")
#: What packaging itself puts into a source archive.
OF_PACKAGING = ("PKG-INFO", "DESCRIPTION.md", "jsclient.egg-info/", "jsclient/protocol/")
USES_TYPES = """
import jsclient
from jsclient.jetstream import JetStream, PubAck

def publish(nc: jsclient.Connection) -> PubAck:
    return JetStream(nc).publish("orders.new", b"1", msg_id="1")

def mistake(nc: jsclient.Connection) -> int:
    return JetStream(nc).publish("orders.new", b"1")
"""


class DistError(Exception):
    """The release is not fit; the text says why."""


def run(*command: str, cwd: Path = ROOT, fails: bool = False) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        raise DistError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """The version, if all three places agree."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    wanted = settings["metadata"]["version"]
    dated = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    library = run(sys.executable, "-c", "import jsclient; print(jsclient.__version__)").strip()
    for place, found in (("CHANGELOG.md", dated[1] if dated else "nothing"), ("jsclient.__version__", library)):
        if found != wanted:
            raise DistError(f"setup.cfg says version {wanted}, {place} says {found}")
    return wanted


def check_release(number: str) -> None:
    """A release has a date in CHANGELOG.md and no uncommitted change; a tag on it names its version."""
    heading = next(line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if "## [" in line)
    if not re.fullmatch(rf"## \[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d", heading):
        raise DistError(f"the entry of CHANGELOG.md needs a date: {heading}")
    if changes := run("git", "status", "--porcelain"):
        raise DistError(f"there are uncommitted changes:\n{changes}")
    tags = run("git", "tag", "--points-at", "HEAD").split()
    if tags and f"v{number}" not in tags:
        raise DistError(f"the commit is tagged {' '.join(tags)}, not v{number}")


def for_an_index(text: str, url: str) -> str:
    """README text with links and pictures that work outside of the repository: below `url`, or as text without one."""

    def change(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if target.startswith(("#", "http://", "https://")):
            return match[0]
        if url:
            return f"{picture}[{LINK.sub(change, label)}]({url.rstrip('/')}/{target})"
        return "" if picture else LINK.sub(change, label)

    return LINK.sub(change, text)


def tracked_files() -> list[str]:
    return run("git", "ls-files").splitlines()


def copy_tree(folder: Path, url: str) -> None:
    """The tracked files in `folder`, with the description for an index and the project's URL."""
    for name in tracked_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (folder / "DESCRIPTION.md").write_text(for_an_index(readme, url), encoding="utf-8")
    with (folder / "MANIFEST.in").open("a") as manifest:
        manifest.write("include DESCRIPTION.md\n")
    settings = (folder / "setup.cfg").read_text(encoding="utf-8")
    settings = settings.replace("long_description = file: README.md", "long_description = file: DESCRIPTION.md")
    if url:
        urls = f"project_urls =\n    Source = {url}\n    Changelog = {url.rstrip('/')}/CHANGELOG.md\n"
        settings = settings.replace("[metadata]\n", f"[metadata]\nurl = {url}\n{urls}", 1)
    (folder / "setup.cfg").write_text(settings, encoding="utf-8")


def build(url: str) -> Path:
    """dist/ with the source archive and the wheel; returns the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="jsclient-dist-") as folder:
        copy_tree(Path(folder), url)
        run(sys.executable, "-m", "build", "--outdir", str(DIST), folder)
    (wheel,) = DIST.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
    return wheel


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in IN_WHEEL if name not in names]
    strangers = [name for name in names if name.split("/")[0] in ("tests", "tools")]
    if missing or strangers:
        raise DistError(f"{wheel.name}: missing {missing}, too much {strangers[:5]}")


def check_archive(archive: Path, tracked: set[str]) -> None:
    """Whether a source archive has every tracked file that belongs into it, and no other."""
    with tarfile.open(archive) as opened:
        inside = {member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()}
    strangers = sorted(name for name in inside - tracked if not name.startswith(OF_PACKAGING))
    missing = sorted(name for name in tracked - inside if not name.startswith(NOT_IN_ARCHIVE))
    if missing or strangers:
        raise DistError(f"{archive.name}: missing {missing[:5]}, too much {strangers[:5]}")


def first_example() -> str:
    """The first program of the README."""
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


def try_example(fresh: str, folder: Path) -> None:
    """Run the README's first program with a server of its own, from the installed wheel."""
    (folder / "example.py").write_text(
        "import sys\n"
        "from jsclient.testing import NatsServer\n"
        "with NatsServer() as server:\n"
        "    program = sys.stdin.read().replace('nats://127.0.0.1:4222', server.url)\n"
        "    exec(compile(program, 'README.md', 'exec'))\n"
    )
    done = subprocess.run([fresh, "example.py"], input=first_example(), cwd=folder, capture_output=True, text=True)
    if done.returncode or "ORDERS.new b'hello'" not in done.stdout:
        raise DistError(f"the first example of the README fails with the wheel:\n{done.stdout}{done.stderr}")


def try_wheel(wheel: Path, python: str) -> None:
    """Install the wheel and pytest into a fresh environment, and use it as a stranger would."""
    with tempfile.TemporaryDirectory(prefix="jsclient-wheel-") as name:
        folder = Path(name)
        if python == sys.executable:
            venv.create(folder / "venv", with_pip=True)
        else:
            run(python, "-m", "venv", str(folder / "venv"))
        fresh = str(folder / "venv" / "bin" / "python")
        run(fresh, "-m", "pip", "install", "-q", str(wheel), "pytest", cwd=folder)
        run(fresh, "-c", "import jsclient, jsclient.jetstream, jsclient.workers, jsclient.protocol", cwd=folder)
        run(str(folder / "venv" / "bin" / "jsclient"), "--help", cwd=folder)
        fixtures = run(fresh, "-m", "pytest", "--fixtures", "-q", cwd=folder)
        if "nats_server" not in fixtures or "fault_proxy" not in fixtures:
            raise DistError("pytest does not know the fixtures of the installed plugin")
        if os.environ.get("NATS_SERVER"):
            try_example(fresh, folder)
        (folder / "uses.py").write_text(USES_TYPES)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder / "cache")]
        said = run(*mypy, "--python-executable", fresh, "uses.py", cwd=folder, fails=True)
        if "return-value" not in said or "Found 1 error" not in said:
            raise DistError(f"the types of the wheel are not read; mypy said:\n{said}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="", help="public address of the repository, for links and metadata")
    parser.add_argument("--pythons", action="store_true", help="try the wheel on every Python that is found")
    parser.add_argument("--release", action="store_true", help="fail if the tree is not what a tag may name")
    options = parser.parse_args()
    try:
        number = version()
        if options.release:
            check_release(number)
        wheel = build(options.url)
        check_contents(wheel)
        check_archive(next(DIST.glob("*.tar.gz")), set(tracked_files()))
        pythons = [sys.executable]
        if options.pythons:
            from pythons import interpreters  # type: ignore[import-not-found]

            pythons = list(interpreters().values())
        for python in pythons:
            try_wheel(wheel, python)
            print(f"{wheel.name} works with {run(python, '-V').strip()}")
    except DistError as error:
        print(f"make dist: {error}", file=sys.stderr)
        return 1
    print(
        f"dist/ holds version {number}. Nothing was uploaded; what is left to do stands at the head of tools/dist.py."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
