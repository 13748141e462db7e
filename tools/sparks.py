"""Run the core of the Spark tests with every PySpark that jsclient supports: `make test-sparks`.

    python tools/sparks.py [--only 4.0,4.1] [pytest arguments]

Each version gets an environment .venv-spark-X.Y with an old pyarrow. A bound of `jsclient[spark]` that would upgrade
a cluster fails the installation. Interpreters are found as in `tools/pythons.py`. A version without one fails the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.pythons import interpreters

ROOT = Path(__file__).resolve().parents[1]
#: PySpark -> (the Pythons that it supports, the pins of its environment)
SPARKS = {
    "3.5": ([(3, 11), (3, 10)], ["pyspark==3.5.*", "pyarrow==11.*", "numpy<2", "pandas==2.2.*"]),
    "4.0": ([(3, 11), (3, 12), (3, 10)], ["pyspark==4.0.*", "pyarrow==11.*", "numpy<2", "pandas==2.2.*"]),
    "4.1": ([(3, 12), (3, 11), (3, 10)], ["pyspark==4.1.*", "pyarrow==15.*", "numpy<2", "pandas==2.2.*"]),
    "4.2": ([(3, 12), (3, 13), (3, 11)], ["pyspark==4.2.*", "pyarrow==18.*", "pandas==2.2.*"]),
    "4.3": ([(3, 12), (3, 13), (3, 11)], ["pyspark==4.3.*", "pandas==2.2.*"]),
}
NEEDS = ["cryptography", "hypothesis", "pytest", "pytest-timeout"]
TESTS = ["tests/spark/test_versions.py"]


def test(name: str, program: str, pins: list[str], arguments: list[str]) -> int:
    """Make the environment when it is not there, and run the tests in it."""
    print(f"== PySpark {name}, {program}", flush=True)
    venv = ROOT / f".venv-spark-{name}"
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", str(venv)], check=True)
    install = [str(python), "-m", "pip", "install", "-qq", "-e", f"{ROOT}[spark]", *pins, *NEEDS]
    if subprocess.run(install, check=False).returncode != 0:
        print(f"pip could not install what PySpark {name} needs; its messages are above", file=sys.stderr)
        return 1
    command = [str(python), "-m", "pytest", "-q", *(str(ROOT / each) for each in TESTS), *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    wanted = set(SPARKS)
    if arguments[:1] == ["--only"]:
        wanted, arguments = set(arguments[1].split(",")), arguments[2:]
    found, results = interpreters(), {}
    for name, (versions, pins) in SPARKS.items():
        program = next((found[version] for version in versions if version in found), None)
        if name in wanted and program is not None:
            results[name] = test(name, program, pins, arguments)
    for name in sorted(wanted):
        status = "no Python for it" if name not in results else "passed" if results[name] == 0 else "FAILED"
        print(f"PySpark {name}: {status}")
    return 0 if len(results) == len(wanted) and not any(results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
