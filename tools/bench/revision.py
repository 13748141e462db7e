"""An earlier revision of the library, for `make bench BEFORE=<revision>`; lies below `.tools` until the end."""

from __future__ import annotations

import compileall
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def unpacked(revision: str) -> Iterator[str]:
    """The folder that holds `jsclient` and `protocol` of a revision. SystemExit if git does not have it."""
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    if not commit:
        raise SystemExit(
            f"git has no revision {revision!r} here; a shallow clone has only the newest (git fetch --unshallow)"
        )
    packed = _git("archive", commit, "jsclient", "protocol")
    if not packed:
        raise SystemExit(f"git cannot give the folders jsclient and protocol of {revision}")
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="before-", dir=tools) as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        compileall.compile_dir(folder, quiet=2)
        print(f"before: {_git('log', '-1', '--format=%h %s', commit).decode().strip()}", flush=True)
        yield folder


def _git(*arguments: str) -> bytes:
    """The output of git, or nothing if git fails."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False).stdout
    except OSError as error:
        raise SystemExit(f"git is needed for an earlier revision: {error}") from None
