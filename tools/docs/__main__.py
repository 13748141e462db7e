"""`make docs`: gather the pages into build/docs-source and let Sphinx make build/docs of them.

Every warning is an error: a dead link, an anchor that is not there, a page without a place in the table of contents.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tools.docs import site

HERE = Path(__file__).parent
SOURCE = site.ROOT / "build" / "docs-source"
TARGET = site.ROOT / "build" / "docs"


def without_spark() -> AbstractContextManager[None]:
    """PySpark is 400 MB, and the reference only needs the names of its classes: stand-ins do where it is missing."""
    from sphinx.ext.autodoc.mock import mock

    return nullcontext() if importlib.util.find_spec("pyspark") else mock(["pyspark"])


def main(arguments: list[str]) -> int:
    from sphinx.cmd.build import main as sphinx

    began = time.monotonic()
    try:
        with without_spark():
            site.gather(SOURCE)
    except site.DeadLink as error:
        print(f"make docs: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(TARGET, ignore_errors=True)
    options = ["-c", str(HERE), "-W", "--keep-going", "-q", "-d", str(SOURCE.with_name("docs-cache")), "-E"]
    status = int(sphinx([*options, *arguments, str(SOURCE), str(TARGET)]))
    if status == 0:
        print(f"build/docs/index.html, {len(list(TARGET.rglob('*.html')))} pages in {time.monotonic() - began:.0f} s")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
