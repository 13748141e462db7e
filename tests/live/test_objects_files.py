"""`get_file`: the file that appears, and what other threads of the process see of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer


def test_get_file_changes_nothing_for_the_process(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode is that of every new file. The umask belongs to all threads, so it is not touched for a moment."""
    like_others = tmp_path / "other"
    like_others.touch()

    def touched(mask: int) -> int:
        raise AssertionError("the umask of the whole process was changed")

    monkeypatch.setattr(os, "umask", touched)
    with jsclient.connect(server.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), bucket="files", storage="memory")
        store.put("a", b"x" * 300_000)
        for name in ("copy", "n" * 255, "\u00e9" * 127):
            path = tmp_path / name
            assert store.get_file("a", path).size == 300_000 == path.stat().st_size
            assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(like_others.stat().st_mode)
        before = sorted(tmp_path.iterdir())
        JetStream(nc).stream("OBJ_files").purge(subject="$O.files.C.>")
        with pytest.raises(errors.ObjectChanged):
            store.get_file("a", tmp_path / "copy", timeout=5)
        assert sorted(tmp_path.iterdir()) == before, "a part of a file stays"
        assert (tmp_path / "copy").stat().st_size == 300_000
