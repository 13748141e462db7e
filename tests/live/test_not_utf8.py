"""Subjects and headers that are not UTF-8: the wire carries any bytes, JSON does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.live.test_cli import cli

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream
from jsclient.jetstream.api.capabilities import server_at_least
from jsclient.keyvalue import BASE64_KEYS, create_key_value
from jsclient.objectstore import create_object_store
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, Reject, WorkerPool

ODD = "odd.\udc80"  # the byte 0x80, as Python's surrogateescape shows it


def test_a_subject_without_a_stream_is_told(js: JetStream) -> None:
    with pytest.raises(errors.NoStreamForSubject):
        js.publish(ODD, b"x", timeout=5)


def test_an_async_publish_without_a_stream_costs_no_link(js: JetStream) -> None:
    future = js.publish_async(ODD, b"x")
    with pytest.raises(errors.NoStreamForSubject):
        future.result(20)
    assert js.nc.stats().reconnects == 0


def test_what_is_stored_comes_back(js: JetStream) -> None:
    stream = js.create_stream(name="ODD", subjects=["odd.>"], allow_direct=True)
    assert js.publish(ODD, b"x").seq == js.publish_async(ODD, b"y").result(5).seq - 1
    assert stream.get_last_msg(ODD).data == b"y"
    assert stream.get_msg(1, direct=True).subject == ODD
    messages = js.ordered_consumer("ODD").messages()
    assert [next(messages).subject for _ in range(2)] == [ODD, ODD]
    with pytest.raises(errors.WrongLastSequence):
        js.publish(ODD, b"z", expected_last_subject_seq=77, timeout=5)


REQUESTS: dict[str, Callable[[JetStream], Any]] = {
    "purge": lambda js: js.stream("ODD").purge(subject=ODD),
    "consumer": lambda js: js.create_consumer("ODD", ConsumerConfig(durable_name="C", filter_subject=ODD)),
    "stream": lambda js: js.create_stream(name="MORE", subjects=["more.\udc80"]),
    "description": lambda js: js.create_stream(name="MORE", subjects=["more"], description="\udc80"),
    "names": lambda js: list(js.stream_names(subject=ODD)),
    "last ones": lambda js: list(js.stream("ODD").get_last_msgs([ODD])),
    "ordered": lambda js: next(js.ordered_consumer("ODD", filter_subjects=[ODD]).messages()),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_json_cannot_hold_is_refused_before_it_is_asked(js: JetStream, name: str) -> None:
    js.create_stream(name="ODD", subjects=["odd.>"], allow_direct=True)
    with pytest.raises(errors.ConfigError, match="UTF-8"):
        REQUESTS[name](js)


def test_a_stored_key_that_no_codec_has_made_is_told(js: JetStream) -> None:
    bucket = create_key_value(js, bucket="B").encoded(keys=BASE64_KEYS)
    js.publish("$KV.B.\udc80", b"hostile")
    bucket.put("good", b"1")
    with pytest.raises(errors.DecodeFailed), bucket.watch() as watcher:
        list(watcher.initial())


def test_the_command_line_shows_it(server: NatsServer, js: JetStream) -> None:
    js.create_stream(name="ODD", subjects=["odd.>"], allow_direct=True)
    js.publish(ODD, b"x")
    shown = cli(server, "stream", "view", "ODD")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert r"odd.\udc80" in shown.stdout
    assert json.loads(cli(server, "stream", "view", "ODD", "--json").stdout)["subject"] == ODD


def test_dead_letters_are_exported_and_replayed(js: JetStream) -> None:
    js.create_stream(name="ODD", subjects=["odd.>"])
    js.create_stream(name="DEAD", subjects=["dead.>"])
    consumer = js.create_consumer("ODD", ConsumerConfig(durable_name="C"))

    def refuse(message: jsclient.jetstream.JetStreamMsg) -> None:
        raise Reject("never")

    with WorkerPool(consumer, refuse, dead_letter="dead.odd", threads=1):
        js.publish(ODD, b"\xff")
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 1)
    letters = DeadLetters(js)
    letter = json.loads(b"".join(letters.export()))
    assert (letter["original_subject"], letter["data"]) == (ODD, "/w==")
    assert letters.replay_all().replayed == 1
    assert js.stream("ODD").get_msg(2).data == b"\xff"


def test_text_that_utf8_cannot_hold_is_refused(js: JetStream) -> None:
    js.create_stream(name="ODD", subjects=["odd.>"])
    store = create_object_store(js, bucket="B")
    bucket = create_key_value(js, bucket="B")
    js.publish("odd.a", b"x")
    message = js.create_consumer("ODD", ConsumerConfig(durable_name="C")).next(5)
    for call in (
        lambda: js.nc.publish("odd.a", "\udc80"),
        lambda: js.nc.request("odd.a", "\udc80"),
        lambda: js.publish("odd.a", "\udc80"),
        lambda: js.publish_async("odd.a", "\udc80"),
        lambda: bucket.put("k", "\udc80"),
        lambda: store.put("o", "\udc80"),
    ):
        with pytest.raises(errors.ConfigError, match="UTF-8"):
            call()
    if server_at_least(js.nc, (2, 10, 4)):
        with pytest.raises(errors.ConfigError, match="UTF-8"):
            message.term("\udc80")
    message.ack()
