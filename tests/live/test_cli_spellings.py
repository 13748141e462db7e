"""What people type who know the NATS CLI: its words, its units, its options for what is done here anyhow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer
from tests.live.test_cli import cli

Run = Callable[[str], tuple[int, str]]


@pytest.fixture
def run(server: NatsServer, tmp_path: Path) -> Iterator[Run]:
    def call(words: str) -> tuple[int, str]:
        finished = cli(server, *words.split(), XDG_CONFIG_HOME=str(tmp_path))
        return finished.returncode, finished.stdout

    yield call
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for name in list(js.stream_names()):
            js.delete_stream(name)


def done(run: Run, words: str) -> Any:
    """What a command says with --json; it must work."""
    status, text = run(f"{words} -j")
    assert status == 0, words
    found = [json.loads(one) for one in text.splitlines()]
    return found[0] if len(found) == 1 else found


def test_streams(run: Run, tmp_path: Path, server: NatsServer) -> None:
    made = done(
        run,
        "str create S --subjects s.> --subjects t.*,u --storage m --retention work --max-bytes 10MB --max-msg-size 64k"
        " --max-msgs-per-subject 9 --max-age 1h30m --dupe-window 30s --discard new --allow-direct --defaults",
    )["config"]
    assert made["subjects"] == ["s.>", "t.*", "u"]
    assert (made["storage"], made["retention"]) == ("memory", "workqueue")
    assert (made["max_bytes"], made["max_msg_size"], made["max_msgs_per_subject"]) == (10 << 20, 64 << 10, 9)
    assert (made["max_age"], made["duplicate_window"]) == (5400 * 10**9, 30 * 10**9)
    assert made["allow_direct"]
    assert done(run, "s update S -f --max-msgs 7 --no-allow-direct")["config"]["max_msgs"] == 7
    assert not done(run, "st i S")["config"].get("allow_direct")
    assert done(run, "stream state S")["messages"] == 0
    assert done(run, "stream info S")["state"]["consumer_count"] == 0
    assert done(run, "stream l -n") == {"name": "S"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"name": "other", "subjects": ["f"], "max_msgs": 3, "max_age": 60 * 10**9}))
    made = done(run, f"stream new F --config {file} --max-msgs 4")["config"]
    assert (made["name"], made["max_msgs"], made["max_age"]) == ("F", 4, 60 * 10**9)
    assert done(run, "stream cp F G --subjects g")["config"]["max_msgs"] == 4
    assert done(run, "stream add M --mirror F")["config"]["mirror"]["name"] == "F"
    assert [one["name"] for one in done(run, "stream add N --source F --source G")["config"]["sources"]] == ["F", "G"]
    assert run("stream del G -f")[0] == 0
    for wrong in ("stream add X", "stream add X --subjects x --max-bytes ten", f"stream add X --config {__file__}"):
        assert run(wrong)[0] == 2, wrong


def test_consumers(run: Run, server: NatsServer) -> None:
    done(run, "stream add S --subjects s.>")
    filters = "--filter s.a --filter s.b" if server.version >= (2, 10, 0) else "--filter s.a"
    made = done(run, f"con create S C --pull --defaults {filters} --wait 1m --deliver subject --ack all")
    assert made["config"]["ack_wait"] == 60 * 10**9
    assert made["config"]["deliver_policy"] == "last_per_subject"
    if server.version >= (2, 10, 0):
        assert made["config"]["filter_subjects"] == ["s.a", "s.b"]
    assert (made["num_pending"], made["num_ack_pending"], made["ack_floor"]["stream_seq"]) == (0, 0, 0)
    assert done(run, "c add S D --deliver 1h")["config"]["deliver_policy"] == "by_start_time"
    assert done(run, "consumer list S -n") == [{"name": "C"}, {"name": "D"}]
    assert done(run, "consumer update S C --wait 2m -f")["config"]["ack_wait"] == 120 * 10**9
    if server.version >= (2, 11, 0):
        assert done(run, "consumer pause S D 1h30m -f")["done"] == "paused"
        assert done(run, "consumer resume S D -f")["done"] == "resumed"
    assert run("consumer delete S D -f")[0] == 0


def test_buckets_and_objects(run: Run, tmp_path: Path) -> None:
    assert done(run, "kv new b --history 5 --ttl 1h --max-bucket-size 1MB --max-value-size 1k --storage f")
    assert done(run, "kv ls -n") == {"name": "b"}
    done(run, "kv put b k one")
    done(run, "kv put b k two")
    assert run("kv revert b k 1 -f") == (0, "3\n")
    assert run("kv get b k --raw") == (0, "one\n")
    assert done(run, "kv status b")["values"] == 3
    assert run("kv rm b k -f")[0] == 0
    done(run, "obj create o --max-bucket-size 1MB")
    (tmp_path / "f").write_bytes(b"x")
    done(run, f"object put o {tmp_path / 'f'} --name f")
    assert done(run, "object ls o -n") == {"name": "f"}
    assert done(run, "object show o f")["size"] == 1
    assert done(run, "object seal o -f") == {"bucket": "o", "sealed": True}
    assert run(f"object put o {tmp_path / 'f'}")[0] == 1


def test_contexts(run: Run) -> None:
    assert run("ctx save c --url nats://127.0.0.1:1")[0] == 0
    assert run("context set c")[0] == 0
    assert done(run, "context list") == {"name": "c", "selected": True}
    assert done(run, "context show")["url"] == "nats://127.0.0.1:1"
    assert run("context remove c -f")[0] == 0
