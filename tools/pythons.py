"""Run the tests that need no Spark on every Python found: `make test-pythons`. Arguments go to pytest.

Interpreters: python3.10 to python3.14 on PATH, and those of pyenv. Each gets a small environment .venv-3.X.

The last one has no interpreter lock: python3.14t on PATH, or what `python tools/free_threaded.py` has built.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import free_threaded

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = [(3, minor) for minor in range(10, 15)]
#: What of the extra `dev` these tests import; the other parts are large, and Spark has its own tests.
NEEDS = ["hypothesis", "nats-py", "opentelemetry-sdk", "pandas", "prometheus-client", "pytest", "pytest-timeout"]
#: They sign with Ed25519, and `cryptography` has no build for 3.13 without the lock.
SIGNING = ["live/test_auth.py", "live/test_auth_callout.py", "live/test_auth_callout_recipe.py"]
MARKS = "not slow and not faults and not scale and not spark and not spark_modes and not docker"


def interpreters() -> dict[tuple[int, int], str]:
    """(major, minor) -> program, one for each version found."""
    found: dict[tuple[int, int], str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in VERSIONS:
        name = ".".join(map(str, version))
        on_path = shutil.which(f"python{name}")
        choices = [*([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f"{name}.*/bin/python")))]
        for program in choices:
            check = [program, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            if done.returncode == 0 and tuple(map(int, done.stdout.split())) == version:
                found[version] = program
                break
    return found


def requirements() -> list[str]:
    """NEEDS with the version limits of setup.cfg."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    listed = settings["options.extras_require"]["dev"].split()
    return [line for line in listed if re.split("[<>=]", line)[0] in NEEDS]


def test(version: tuple[int, int], program: str, arguments: list[str]) -> int:
    """Make the environment when it is not there, and run pytest in it."""
    name = ".".join(map(str, version))
    print(f"== Python {name}", flush=True)
    venv = ROOT / f".venv-{name}"
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", str(venv)], check=True)
    # Every time: pip finds out quickly that nothing is missing, and setup.cfg may have changed.
    install = [str(python), "-m", "pip", "install", "-qq", "-e", f"{ROOT}[nkeys,testing,websocket]", *requirements()]
    if subprocess.run(install, check=False).returncode != 0:
        print(f"pip could not install what the tests need for Python {name}; its messages are above", file=sys.stderr)
        return 1
    return run_tests(str(python), arguments)


def run_tests(python: str, arguments: list[str], **environment: str) -> int:
    tests = [str(ROOT / "tests" / name) for name in ("protocol", "unit", "live")]
    command = [python, "-m", "pytest", "-q", "-m", MARKS, *tests, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode


def signs(python: str) -> bool:
    return subprocess.run([python, "-c", "import cryptography"], capture_output=True, check=False).returncode == 0


def without_lock() -> str | None:
    """An interpreter without the lock that has what the tests need; None if there is none."""
    built = free_threaded.python_of(free_threaded.FOLDER)
    if free_threaded.works(built):
        return str(built)
    program = shutil.which("python3.14t")
    if program is None:
        return None
    venv = ROOT / ".venv-3.14t"
    subprocess.run([program, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-qq", *free_threaded.NEEDS, "msgspec"], check=True)
    return str(python) if free_threaded.works(python) else None


def test_without_lock(arguments: list[str]) -> int | None:
    """The same tests with PYTHON_GIL=0, which keeps an extension module from switching the lock on again."""
    python = without_lock()
    if python is None:
        return None
    print("== Python without the interpreter lock", flush=True)
    left_out = [] if signs(python) else [f"--ignore={ROOT / 'tests' / name}" for name in SIGNING]
    arguments = ["-W", "default::RuntimeWarning", *left_out, *arguments]
    return run_tests(python, arguments, PYTHON_GIL="0", PYTHONPATH=str(ROOT))


def main(arguments: list[str]) -> int:
    found = interpreters()
    if not found:
        print("no Python from 3.10 to 3.14 was found on PATH or in pyenv", file=sys.stderr)
        return 1
    results = {version: test(version, program, arguments) for version, program in found.items()}
    free = test_without_lock(arguments)
    for version in VERSIONS:
        status = "not found" if version not in results else "passed" if results[version] == 0 else "FAILED"
        print(f"Python {'.'.join(map(str, version))}: {status}")
    missing = "not found: python3.14t, or run `python tools/free_threaded.py`"
    print(f"Python without the lock: {missing if free is None else 'FAILED' if free else 'passed'}")
    return 1 if any(results.values()) or free else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
