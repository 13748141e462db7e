"""What an import loads: a start takes long enough as it is."""

from __future__ import annotations

import subprocess
import sys

RARE = {
    "_hashlib",  # the library of OpenSSL, 3 ms
    "jsclient.auth.credentials",
    "jsclient.jetstream.advisories",
    "jsclient.jetstream.api.batch_get",
    "jsclient.jetstream.api.config_fields",
    "jsclient.jetstream.consumer",
    "jsclient.jetstream.message",
    "jsclient.jetstream.publishing.atomic_batch",
}


def test_what_few_programs_need_is_loaded_when_it_is_needed() -> None:
    code = "import sys, jsclient.jetstream; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & RARE == set()
    assert len([name for name in loaded if name.split(".")[0] == "jsclient"]) <= 105
