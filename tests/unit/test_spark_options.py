"""Options of the data source: names, values, conflicts, secrets. No JVM, no server."""

from __future__ import annotations

import contextlib
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from jsclient._connection.servers import ServerPool
from jsclient.arrow.settings import Refused
from jsclient.auth.secret import Secret
from jsclient.errors import ConfigError
from jsclient.spark import buckets, options, values
from jsclient.spark.connecting import connect_options
from jsclient.spark.errors import JetStreamSparkError, from_spark
from jsclient.spark.options import READ, READ_STREAM, SPECS, WRITE, WRITE_STREAM, SparkOptions, parse
from jsclient.spark.renamed import REMOVED
from jsclient.spark.secret import ServerUrl

SERVERS = {"servers": "nats://n1:4222, nats://n2"}
SOURCE = {**SERVERS, "stream": "ORDERS"}
SINK = {**SERVERS, "subject": "orders.new"}


def refused(given: dict[str, str], way: str) -> JetStreamSparkError:
    with pytest.raises(JetStreamSparkError) as caught:
        parse(given, way)
    return caught.value


def test_defaults_are_those_of_the_table() -> None:
    o = parse(SOURCE, READ)
    assert [u.reveal() for u in o.servers] == ["nats://n1:4222", "nats://n2"]
    assert (o.min_partitions, o.records_per_partition) == (1, 100_000)
    assert o.reconnect_timeout == 60.0
    assert o.fail_on_data_loss
    assert o.ack_mode == "none"
    assert o.read_method == "auto"


def test_names_are_case_insensitive_and_load_names_the_stream() -> None:
    o = parse({"SERVERS": "n1", "path": "ORDERS", "MAXOFFSETSPERTRIGGER": "7", "checkpointlocation": "/x"}, READ_STREAM)
    assert (o.stream, o.max_offsets_per_trigger) == ("ORDERS", 7)


def test_a_server_names_no_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be asked for in the DNS, and stand in errors."""
    monkeypatch.setenv("JSCLIENT_TEST_SECRET", "marker")
    chosen = options.parse({"servers": "env:JSCLIENT_TEST_SECRET", "stream": "S"}, READ)
    assert connect_options(chosen).servers == ("env:JSCLIENT_TEST_SECRET",)
    with pytest.raises(ConfigError):
        ServerPool(connect_options(chosen).servers)


@pytest.mark.parametrize(
    ("given", "way", "token", "part"),
    [
        ({}, READ, "MISSING_OPTION", "servers"),
        (SERVERS, READ, "MISSING_OPTION", "load("),
        ({**SOURCE, "path": "OTHER"}, READ, "CONFLICTING_OPTIONS", "'OTHER'"),
        ({**SOURCE, "maxOffsetPerTrigger": "1"}, READ_STREAM, "UNKNOWN_OPTION", "'maxOffsetsPerTrigger'"),
        ({**SOURCE, "maxOffsetsPerTrigger": "1"}, READ, "UNKNOWN_OPTION", "readStream"),
        ({**SOURCE, "zzz": "1"}, READ, "UNKNOWN_OPTION", "known are"),
        ({**SOURCE, "minPartitions": "0"}, READ, "BAD_OPTION", "between 1"),
        ({**SOURCE, "minPartitions": "x"}, READ, "BAD_OPTION", "whole number"),
        ({**SOURCE, "maxPartitions": "3"}, READ, "UNKNOWN_OPTION", "write 'recordsPerPartition'"),
        ({**SOURCE, "startingOffsets": "latest"}, READ, "BAD_OPTION", "earliest"),
        ({**SOURCE, "startingOffsets": '{"seq": -1}'}, READ, "BAD_OPTION", "startingOffsets"),
        ({**SOURCE, "startingTimestamp": "yesterday"}, READ, "BAD_OPTION", "ISO-8601"),
        ({**SOURCE, "maxBytesPerTrigger": "8x"}, READ_STREAM, "BAD_OPTION", "8m"),
        ({**SOURCE, "failOnDataLoss": "yes"}, READ, "BAD_OPTION", "true or false"),
        ({**SOURCE, "subjects": "a.>,a.b"}, READ, "BAD_OPTION", "overlap"),
        ({**SOURCE, "subjects": "a..b"}, READ, "BAD_OPTION", "subjects"),
        ({**SERVERS, "stream": "A.B"}, READ, "BAD_OPTION", "not a name"),
        ({**SERVERS, "stream": "A,,B"}, READ, "BAD_OPTION", "empty name"),
        ({**SERVERS, "stream": "A*,B>"}, READ, "BAD_OPTION", "not a name"),
        ({**SERVERS, "stream": "A,B", "startingOffsets": '{"seq": 3}'}, READ, "BAD_OPTION", "of one stream"),
        ({**SERVERS, "stream": "A,B", "startingOffsets": '{"C": "earliest"}'}, READ, "BAD_OPTION", "names 'C'"),
        ({**SERVERS, "stream": "A,B", "startingOffsets": '{"A": "latest"}'}, READ, "BAD_OPTION", "must be earliest"),
        ({**SERVERS, "stream": "A*", "startingOffsets": '{"A": 3}'}, READ_STREAM, "BAD_OPTION", "by the name"),
        ({**SOURCE, "domain": "hub", "apiPrefix": "X"}, READ, "CONFLICTING_OPTIONS", "exclude"),
        ({**SOURCE, "nkeySecret": "n", "credentialsFile": "f"}, READ, "CONFLICTING_OPTIONS", "log in"),
        ({**SOURCE, "token": "t", "user": "u", "password": "p"}, READ, "CONFLICTING_OPTIONS", "log in"),
        ({**SOURCE, "token": "t", "credentialsProvider": "m:f"}, READ, "CONFLICTING_OPTIONS", "log in"),
        ({**SOURCE, "password": "p"}, READ, "CONFLICTING_OPTIONS", "user"),
        ({**SOURCE, "ackMode": "purge", "readMethod": "consumer"}, READ_STREAM, "CONFLICTING_OPTIONS", "direct"),
        ({**SINK, "messageId": "content"}, WRITE, "UNKNOWN_OPTION", "column msg_id"),
        ({**SINK, "publishMode": "Atomic"}, WRITE, "BAD_OPTION", "write deliverySemantics=exactly-once"),
        ({**SINK, "atomicMarkerSubject": "m"}, WRITE, "UNKNOWN_OPTION", "write deliverySemantics=exactly-once"),
        ({**SINK, "deliverySemantics": "at-least-once", "journal": "J"}, WRITE, "CONFLICTING", "'journal' needs"),
        ({**SINK, "whenUnsure": "fail"}, WRITE_STREAM, "UNKNOWN_OPTION", "deliverySemantics=exactly-once to fail"),
        ({**SINK, "auditBucket": "A"}, WRITE, "UNKNOWN_OPTION", "logger jsclient.spark.audit"),
        ({**SOURCE, "progressBucket": "P"}, READ_STREAM, "UNKNOWN_OPTION", "lastProgress"),
        ({**SINK, "nats.pingInterval": "3s"}, WRITE, "UNKNOWN_OPTION", "let 'credentialsProvider' return"),
        ({**SINK, "ledgerBucket": "L"}, WRITE, "UNKNOWN_OPTION", "write 'journal'"),
        ({**SINK, "stream": "X"}, WRITE_STREAM, "UNKNOWN_OPTION", "read"),
    ],
)
def test_refusals_name_the_option(given: dict[str, str], way: str, token: str, part: str) -> None:
    error = refused(given, way)
    assert error.token.startswith(f"JETSTREAM_{token}")
    assert part in str(error)
    assert str(error).startswith(f"[{error.token}]")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("taskTimeout", "1500ms", "task_timeout", 1.5),
        ("taskTimeout", "15m", "task_timeout", 900.0),
        ("startingOffsets", '{"seq": 9}', "starting_offsets", 9),
        ("startingTimestamp", "1700000000123", "starting_timestamp", 1_700_000_000_123_000_000),
        ("startingTimestamp", "2023-11-14T22:13:20Z", "starting_timestamp", 1_700_000_000_000_000_000),
        ("startingTimestamp", "2023-11-14T23:13:20.000001+01:00", "starting_timestamp", 1_700_000_000_000_001_000),
        ("startingTimestamp", "2023-11-14T22:13:20", "starting_timestamp", 1_700_000_000_000_000_000),
    ],
)
def test_values(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse({**SOURCE, name: text}, READ), field) == value


@drawn(st.text() | st.from_regex(r"\A[0-9\u00b2\u0663]{1,30}(ms|s|k|g|d)?\Z"))
def test_a_text_is_read_or_refused_with_what_it_must_be(text: str) -> None:
    """By every option: what Python itself says about a text ("invalid literal for int()") helps nobody."""
    for spec in SPECS.values():
        with contextlib.suppress(values.Refused):
            spec.parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingTimestamp", "\u00b2"),  # a digit, and no decimal
        ("startingTimestamp", "9" * 20),
        ("startingTimestamp", "9999-12-31"),
        ("maxBytesPerTrigger", "9" * 400),
        ("reconnectTimeout", "9" * 400),
    ],
)
def test_a_figure_that_nothing_can_hold_is_refused(name: str, text: str) -> None:
    with pytest.raises(values.Refused, match="must be"):
        SPECS[name.lower()].parse(text)


def test_every_option_is_known_under_its_own_name() -> None:
    assert SPECS["maxoffsetspertrigger"].name == "maxOffsetsPerTrigger"
    assert all(set(spec.ways) <= set("RSWT") for spec in SPECS.values())


def test_secrets_pickle_but_never_show() -> None:
    o = parse(
        {
            "servers": "nats://joe:hunter2@n1,tls://tok3n@n2",
            "subject": "x",
            "user": "joe",
            "password": "s3cret",
        },
        WRITE,
    )
    shown = f"{o} {o!r} {o.servers[0]} {o.servers!r}"
    for secret in ("hunter2", "tok3n", "s3cret"):
        assert secret not in shown
        assert secret not in o.hide(f"could not reach {secret}@n1")
    assert "n1" in shown
    again = pickle.loads(pickle.dumps(o))
    assert again == o
    assert again.servers[0].reveal() == "nats://joe:hunter2@n1"
    assert isinstance(again.servers[0], ServerUrl)
    assert f"{Secret('x')} {Secret('x')!r}" == "*** ***"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("a", "a", True), ("a", "b", False), ("a.*", "a.b", True), ("a.>", "a", False), ("a.>", "a.b.c", True),
     ("*.b", "a.*", True), ("a.b", "a.b.c", False), (">", "x.y", True)],
)  # fmt: skip
def test_overlap(one: str, other: str, expected: bool) -> None:
    assert options.overlap(one, other) is expected
    assert options.overlap(other, one) is expected


def test_errors_survive_pickling_and_spark() -> None:
    error = JetStreamSparkError("JETSTREAM_DATA_LOSS", "stream 'S': sequences 1 to 5")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.token, str(again)) == (JetStreamSparkError, error.token, str(error))
    assert str(error) == "[JETSTREAM_DATA_LOSS] stream 'S': sequences 1 to 5. Nothing of this batch counts as read."
    beneath = pickle.loads(pickle.dumps(Refused("JETSTREAM_DATA_LOSS", "5 are lost")))
    assert (type(beneath), beneath.token, beneath.message, str(beneath)) == (
        *(Refused, "JETSTREAM_DATA_LOSS"),
        *("5 are lost", "5 are lost"),
    )
    wrapped = RuntimeError(f"PythonException: Traceback\n  raise X\njsclient...JetStreamSparkError: {error}\n\n at y")
    found = from_spark(wrapped)
    assert found is not None
    assert (found.token, found.message) == (error.token, error.message)
    assert from_spark(RuntimeError("[NOT_OURS] x")) is None


def listed_in_the_readme() -> list[set[str]]:
    """The options in the first cells of each table of options."""
    readme = (Path(options.__file__).parent / "README.md").read_text(encoding="utf-8")
    tables = [part.partition("\n\n")[0] for part in readme.split("| option | default |")[1:]]
    cells = [[line.split("|")[1] for line in table.splitlines()[2:]] for table in tables]
    return [{name for cell in found for name in re.findall(r"`([A-Za-z.*]+)`", cell)} for found in cells]


def test_the_readme_lists_every_option_and_no_other() -> None:
    first, rest = listed_in_the_readme()
    assert len(first) == 10
    assert first | rest == {spec.name for spec in options.SPECS.values()} | {"bucket", "keys", "mode", "onConflict"}
    assert not first & rest
    assert len(first | rest) <= 45


@pytest.mark.parametrize("name", sorted(name for name in REMOVED if "=" not in name and "*" not in name))
def test_a_removed_option_says_what_to_write(name: str) -> None:
    for way in (READ, READ_STREAM, WRITE, WRITE_STREAM):
        error = refused({**SERVERS, name: "1"}, way)
        assert (error.token, REMOVED[name] in error.message) == ("JETSTREAM_UNKNOWN_OPTION", True)
    assert name not in SPECS
    with pytest.raises(JetStreamSparkError) as caught:
        buckets.parse({**SERVERS, "bucket": "b", name: "1"}, READ, "KV_", {"keys", "mode"}, set())
    assert REMOVED[name] in caught.value.message


def test_positions_of_single_streams() -> None:
    text = '{"ORDERS": {"seq": 5}, "PAY": "earliest", "*": "latest"}'
    o = options.parse({**SERVERS, "stream": "ORDERS, PAY,X*", "startingOffsets": text}, READ_STREAM)
    assert (o.stream_names, o.stream_patterns) == (("ORDERS", "PAY"), ("X*",))
    assert [o.of(name).starting_offsets for name in ("ORDERS", "PAY", "X1")] == [5, "earliest", "latest"]
    assert o.of("X1").stream == "X1"
    o = options.parse({**SERVERS, "stream": "A,B", "endingOffsets": '{"A": {"seq": 9}}'}, READ)
    assert [o.of(name).ending_offsets for name in "AB"] == [9, "latest"]
    assert [o.of(name).starting_offsets for name in "AB"] == [None, None]
    one = options.parse({**SERVERS, "stream": "seq", "startingOffsets": '{"seq": {"seq": 4}}'}, READ)
    assert one.of("seq").starting_offsets == 4
    assert pickle.loads(pickle.dumps(o)) == o


def test_a_secret_within_another_one_leaves_nothing_of_the_longer_one() -> None:
    options = SparkOptions(password=Secret("abc"), token=Secret("abcdef"))
    assert options.hide("refused: abcdef, abc") == "refused: ***, ***"


def test_a_stream_that_is_named_twice_is_read_once() -> None:
    options = SparkOptions(stream="B, A,B,x*, A")
    assert (options.stream_names, options.stream_patterns) == (("B", "A"), ("x*",))


@pytest.mark.parametrize(
    ("given", "batch", "streaming"),
    [
        ({}, False, True),
        ({"delivery_semantics": "exactly-once"}, True, True),
        ({"delivery_semantics": "window"}, False, False),
        ({"delivery_semantics": "at-least-once"}, False, False),
    ],
)
def test_which_writes_keep_a_journal(given: dict[str, Any], batch: bool, streaming: bool) -> None:
    options = SparkOptions(**given)
    assert (options.keeps_journal(False), options.keeps_journal(True)) == (batch, streaming)
