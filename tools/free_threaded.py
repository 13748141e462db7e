"""Build a Python without the interpreter lock, for the tests: `python tools/free_threaded.py [FOLDER]`.

CPython 3.13 from Debian's source package with `--disable-gil`, in about four minutes on two cores. It needs gcc and the
-dev packages of CPython. The version guard of msgspec is lifted, because msgspec supports only 3.14 without the lock.
Prints the interpreter. `make test-pythons` uses it, or python3.14t if PATH has that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.private_apt import AptError, fetch_source  # noqa: E402 (whatever the working directory is)

FOLDER = ROOT / ".tools" / "free-threaded"
SUITE, PACKAGE = "trixie", "python3.13"
#: The tests import these packages. Later versions of hypothesis need a Rust compiler here.
NEEDS = ["attrs", "build", "hypothesis<6.140", "nats-py", "opentelemetry-sdk", "prometheus-client", "pytest"]
NEEDS += ["pytest-timeout", "setuptools", "typing_extensions", "websockets", "wheel"]
GUARD = '#error "Py_GIL_DISABLED is only supported in Python 3.14+"'
FLAG = "#define _Py_STATICALLY_ALLOCATED_FLAG 0"
NEWEST_ONLY = "#if PY314_PLUS"


def python_of(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def works(python: Path) -> bool:
    """True if it runs without the lock and has what the tests need."""
    check = "import sys, attrs, msgspec, pytest; sys.exit(sys._is_gil_enabled())"
    return python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def build_python(folder: Path, work: Path) -> None:
    archive = fetch_source(SUITE, PACKAGE, work / "apt")
    with tarfile.open(archive) as opened:
        opened.extractall(work / "source", filter="data")
    source = next((work / "source").iterdir())
    configure = ["./configure", "-q", "--disable-gil", "--disable-test-modules", f"--prefix={folder / 'python'}"]
    with (folder / "build.log").open("w") as log:
        for command in (configure, ["make", "-s", "-j2"], ["make", "-s", "install"]):
            subprocess.run(command, cwd=source, stdout=log, stderr=log, check=True)


def lift_guard(source: Path) -> None:
    """Let msgspec build on 3.13 without the lock: what it does on 3.14 works there, too, as far as the tests go."""
    text = source.read_text()
    text = text.replace(GUARD, FLAG, 1)
    before, found, after = text.partition(FLAG)
    source.write_text(before + found + after.replace(NEWEST_ONLY, f"{NEWEST_ONLY} || defined(Py_GIL_DISABLED)", 1))


def install(folder: Path, work: Path) -> None:
    subprocess.run([folder / "python" / "bin" / "python3", "-m", "venv", folder / "venv"], check=True)
    pip = [str(python_of(folder)), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", *NEEDS], check=True)
    download = [*pip, "download", "--no-deps", "--no-binary", "msgspec", "msgspec"]
    subprocess.run(download, cwd=work, check=True)
    with tarfile.open(next(work.glob("msgspec-*.tar.gz"))) as opened:
        opened.extractall(work, filter="data")
    source = next(path for path in work.glob("msgspec-*") if path.is_dir())
    lift_guard(source / "src" / "msgspec" / "_core.c")
    subprocess.run([*pip, "install", source], check=True)


def build(folder: Path) -> Path:
    """Build what is missing below `folder`; returns the interpreter."""
    python = python_of(folder)
    if works(python):
        return python
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        if not (folder / "python" / "bin" / "python3").exists():
            build_python(folder, Path(work))
        shutil.rmtree(folder / "venv", ignore_errors=True)
        install(folder, Path(work))
    if not works(python):
        raise AptError(f"{python} was built, but has the interpreter lock, or lacks a package")
    return python


def main(argv: list[str]) -> int:
    folder = Path(argv[1]).resolve() if len(argv) > 1 else FOLDER
    try:
        print(build(folder))
    except subprocess.CalledProcessError as error:
        print(f"{error}; its messages are above, or in {folder / 'build.log'}", file=sys.stderr)
        return 1
    except (AptError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
