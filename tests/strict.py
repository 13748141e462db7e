"""Programs of tests in which a warning is an error, except the one of the import without the interpreter lock."""

from __future__ import annotations

import sys

PYTHON = [sys.executable, "-W", "error", "-W", "ignore:jsclient without the global interpreter lock:RuntimeWarning"]
