"""What people type who know the NATS CLI: its words, its units, its options for what is done here anyhow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.test_cli import cli

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer

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
    assert done(run, "stream info S")["state"]["consumer_count"] == 0
    assert done(run, "stream l -n") == {"name": "S"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"name": "other", "subjects": ["f"], "max_msgs": 3, "max_age": 60 * 10**9}))
    made = done(run, f"stream new F --config {file} --max-msgs 4")["config"]
    assert (made["name"], made["max_msgs"], made["max_age"]) == ("F", 4, 60 * 10**9)
    assert done(run, f"stream add G --config {file} --subjects g")["config"]["max_msgs"] == 3
    assert done(run, "stream add M --mirror F")["config"]["mirror"]["name"] == "F"
    assert [one["name"] for one in done(run, "stream add N --source F --source G")["config"]["sources"]] == ["F", "G"]
    assert done(run, "stream edit M --description mirror")["config"]["description"] == "mirror"
    assert run("stream del G -f")[0] == 0
    for wrong in ("stream add X", "stream add X --subjects x --max-bytes ten", f"stream add X --config {__file__}"):
        assert run(wrong)[0] == 2, wrong


def test_a_file_gives_and_ends_what_has_no_option(run: Run, server: NatsServer, tmp_path: Path) -> None:
    if server.version < (2, 10, 0):
        pytest.skip("transforms of subjects begin with nats-server 2.10")
    file = tmp_path / "config.json"
    parts = {
        "subject_transform": {"src": "s.*", "dest": "t.{{Wildcard(1)}}"},
        "republish": {"src": "t.>", "dest": "r.>", "headers_only": True},
        "consumer_limits": {"inactive_threshold": 60 * 10**9, "max_ack_pending": 9},
        "placement": {"tags": []},
    }
    file.write_text(json.dumps({"subjects": ["s.>"], "first_seq": 5, **parts}))
    made = done(run, f"stream add S --config {file} --discard new --discard-per-subject --max-msgs-per-subject 1")
    assert {name: made["config"].get(name) for name in parts if name != "placement"} == {
        name: value for name, value in parts.items() if name != "placement"
    }
    assert (made["config"]["first_seq"], made["config"]["discard_new_per_subject"]) == (5, True)
    del made["config"]["subject_transform"], made["config"]["republish"]
    file.write_text(json.dumps(made))
    made = done(run, f"stream edit S --config {file} -f --no-discard-per-subject")["config"]
    assert made.get("subject_transform") is made.get("republish") is made.get("discard_new_per_subject") is None
    kept = done(run, "stream edit S --metadata a=b --metadata c=d")["config"]["metadata"]
    assert (kept["a"], kept["c"]) == ("b", "d")
    if server.version >= (2, 12, 0):
        mirror = done(run, "stream add M --mirror S")
        del mirror["config"]["mirror"]
        file.write_text(json.dumps(mirror))
        assert done(run, f"stream edit M --config {file} --subjects m")["config"].get("mirror") is None


def test_consumers(run: Run, server: NatsServer, tmp_path: Path) -> None:
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
    first = done(run, "consumer add S E --max-pull-batch 5 --max-pull-expire 9s --replay original --memory")
    file = tmp_path / "E.json"
    file.write_text(json.dumps(first))
    words = f"consumer add S F --config {file} --max-deliver 3 --headers-only --deliver new --filter s.c"
    copied = done(run, words)["config"]
    assert (copied["durable_name"], copied["max_deliver"], copied["headers_only"]) == ("F", 3, True)
    assert (copied["max_batch"], copied["max_expires"]) == (5, 9 * 10**9)
    assert (copied["replay_policy"], copied["deliver_policy"], copied["filter_subject"]) == ("original", "new", "s.c")
    assert "durable_name" not in done(run, f"consumer add S G --config {file} --ephemeral")["config"]
    status, text = run("consumer edit S F --max-deliver 4 --dry-run")
    assert (status, text) == (0, "max_deliver: 3 -> 4\n")
    push = {"deliver_subject": "in", "deliver_group": "q", "flow_control": True, "idle_heartbeat": 10**9}
    file.write_text(json.dumps(push))
    pushed = done(run, f"consumer add S P --config {file} --target out --ack none")["config"]
    assert (pushed["deliver_subject"], pushed["deliver_group"], pushed["idle_heartbeat"]) == ("out", "q", 10**9)
    assert done(run, "consumer edit S P --target other --description d")["config"]["deliver_subject"] == "other"


def test_consumers_of_newer_servers(run: Run, tmp_path: Path, server: NatsServer) -> None:
    done(run, "stream add S --subjects s.>")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"config": {"durable_name": "other", "ack_policy": "all", "max_deliver": 7}}))
    made = done(run, f"consumer add S C --config {file} --wait 9s")["config"]
    assert (made["durable_name"], made["ack_policy"], made["max_deliver"], made["ack_wait"]) == (
        "C",
        "all",
        7,
        9 * 10**9,
    )
    assert run(f"consumer add S D --config {__file__}")[0] == 2
    if server.version < (2, 11, 0):
        pytest.skip("groups and pauses begin with nats-server 2.11")
    made = done(run, "consumer add S G --pinned-groups g --pinned-ttl 3s --pause 1h")["config"]
    assert (made["priority_groups"], made["priority_policy"]) == (["g"], "pinned_client")
    assert made["priority_timeout"] == 3 * 10**9
    assert "pause_until" in made
    assert run("consumer add S H --pinned-groups g --overflow-groups g")[0] == 2


def test_buckets_and_objects(run: Run, tmp_path: Path, server: NatsServer) -> None:
    assert done(run, "kv new b --history 5 --ttl 1h --max-bucket-size 1MB --max-value-size 1k --storage f")
    assert done(run, "kv ls -n") == {"name": "b"}
    done(run, "kv put b k one")
    done(run, "kv put b k two")
    assert run("kv put b k one") == (0, "3\n")
    assert run("kv get b k --raw") == (0, "one")
    assert done(run, "kv status b")["values"] == 3
    shown = done(run, "kv watch b --once")
    assert (shown["key"], shown["revision"], shown["operation"], shown["value"]) == ("k", 3, "PUT", "one")
    assert run("kv rm b k -f")[0] == 0
    assert run("kv ls b")[1] == ""
    if server.version >= (2, 11, 0):
        done(run, "kv add expiring --marker-ttl 1h")
        done(run, "kv create expiring k v --ttl 1h")
        assert run("kv purge expiring k --ttl 1h -f")[0] == 0
        assert run("kv del expiring -f")[0] == 0
    done(run, "obj create o --max-bucket-size 1MB")
    (tmp_path / "f").write_bytes(b"x")
    done(run, f"object put o {tmp_path / 'f'} --name f")
    assert done(run, "object ls o -n") == {"name": "f"}
    assert done(run, "object show o f")["size"] == 1
    made = done(run, f"object put o {tmp_path / 'f'} --name f -f -H Kind:a -H Kind:b --description d --chunk-size 1k")
    assert (made["headers"], made["description"]) == ({"Kind": ["a", "b"]}, "d")
    assert done(run, "object info o f")["headers"] == {"Kind": ["a", "b"]}
    assert run(f"object put o {tmp_path / 'f'} -H wrong")[0] == 2
    assert done(run, "object seal o -f") == {"bucket": "o", "sealed": True}
    assert run(f"object put o {tmp_path / 'f'}")[0] == 1


def test_contexts(run: Run) -> None:
    assert run("ctx save c --url nats://127.0.0.1:1")[0] == 0
    assert run("context set c")[0] == 0
    assert done(run, "context list") == {"name": "c", "selected": True}
    assert done(run, "context show")["url"] == "nats://127.0.0.1:1"
    assert run("context remove c -f")[0] == 0
