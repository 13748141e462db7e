"""Without the interpreter lock the import warns, once."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("enabled", [True, False])
def test_the_import_warns_where_the_interpreter_lock_is_off(enabled: bool) -> None:
    code = (
        f"import sys, warnings; sys._is_gil_enabled = lambda: {enabled}\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    import jsclient, jsclient.jetstream\n"
        "print([str(one.message) for one in told if one.category is RuntimeWarning])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("global interpreter lock") == (not enabled)
