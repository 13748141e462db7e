"""Bad input: each a typed error with a text that helps, and not a byte of it reaches the server."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.instruments import Instrumentation
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.services import call as call_service
from jsclient.testing import NatsServer, Proxy, free_port, wait_until

# What may stand where. Legal: it round-trips. Illegal: refused before a byte is sent.
BREAKS_THE_LINE = ["a\rb", "a\nb", "a\r\nPUB x 1", "a b", "a\tb", " a", "a ", "\r\n", "a\x0bb", "a\x0cb"]
EMPTY_TOKENS = ["", ".", "a..b", ".a", "a.", "a.b."]
WILDCARDS = ["*", ">", "a.*", "a.>", "a.*.b"]
TOO_LONG = ["x" * 1_048_576, "x" * 4_097]
LEGAL_SUBJECTS = ["a", "a.b", "täst.ñ", "a*b", "a>b", "UPPER.lower.123", "$weird.-_=+", "ключ", "😀.x", "x" * 4_000]

BAD_PUBLISH = [*BREAKS_THE_LINE, *EMPTY_TOKENS, *WILDCARDS, *TOO_LONG, "a\x00b"]
BAD_FILTER = [*BREAKS_THE_LINE, *EMPTY_TOKENS, *TOO_LONG, "a\x00b", "a.>.b", ">.a"]
BAD_QUEUE = [*BREAKS_THE_LINE, *TOO_LONG, "a\x00b"]
BAD_HEADER_NAMES = ["", "a b", "a:b", "a\rb", "a\nb", "a\tb", "a\x00b", "ä", " a", "a ", "\x7f"]
BAD_HEADER_VALUES = ["a\rb", "a\nb", "a\r\nEvil: 1", "a\x00b", "\n"]
LEGAL_HEADER_VALUES = ["", "x", "a b", "a:b", "täxt 😀", "a\tb", "x" * 10_000]


@pytest.fixture
def spied(server: NatsServer) -> Any:
    """A connection with its bytes counted, and a subscription to everything."""
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as other, jsclient.connect(proxy.url) as nc:
        spy = other.subscribe(">", pending_messages=100_000)
        other.flush()
        nc.flush()
        yield nc, proxy, spy


def nothing_was_sent(spied: Any, call: Callable[[], Any], kind: type[Exception] = errors.ConfigError) -> str:
    nc, proxy, spy = spied
    nc.flush()
    before = proxy.up.bytes
    with pytest.raises(kind) as caught:
        call()
    nc.flush()
    wait_until(lambda: proxy.up.bytes >= before + 6)
    assert proxy.up.bytes == before + 6, "only the PING of flush"
    assert spy.pending == 0
    assert len(str(caught.value)) < 1000
    return str(caught.value)


@pytest.mark.parametrize("subject", BAD_PUBLISH, ids=lambda s: repr(s[:20]))
def test_subjects_that_must_not_be_published(spied: Any, subject: str) -> None:
    nc = spied[0]
    nothing_was_sent(spied, lambda: nc.publish(subject, b"x"), errors.InvalidSubject)
    if subject:  # no reply is a reply of ""
        nothing_was_sent(spied, lambda: nc.publish("ok", b"x", reply=subject), errors.InvalidSubject)
    nothing_was_sent(spied, lambda: nc.request(subject), errors.InvalidSubject)
    nothing_was_sent(spied, lambda: nc.request_many(subject), errors.InvalidSubject)


@pytest.mark.parametrize("subject", BAD_FILTER, ids=lambda s: repr(s[:20]))
def test_subjects_that_must_not_be_subscribed(spied: Any, subject: str) -> None:
    nc = spied[0]
    nothing_was_sent(spied, lambda: nc.subscribe(subject), errors.InvalidSubject)
    if subject:
        nothing_was_sent(spied, lambda: engine_of(nc).open_inbox(subject), errors.InvalidSubject)
    assert nc.stats().subscriptions == 0


@pytest.mark.parametrize("group", BAD_QUEUE, ids=lambda s: repr(s[:20]))
def test_bad_queue_groups(spied: Any, group: str) -> None:
    nothing_was_sent(spied, lambda: spied[0].subscribe("a", queue=group), errors.InvalidSubject)


@pytest.mark.parametrize("name", BAD_HEADER_NAMES, ids=repr)
def test_bad_header_names(spied: Any, name: str) -> None:
    nothing_was_sent(spied, lambda: spied[0].publish("a", b"", headers={name: "x"}), errors.InvalidHeader)
    nothing_was_sent(spied, lambda: spied[0].request("a", b"", headers={name: "x"}), errors.InvalidHeader)


@pytest.mark.parametrize("value", BAD_HEADER_VALUES, ids=repr)
def test_bad_header_values(spied: Any, value: str) -> None:
    nothing_was_sent(spied, lambda: spied[0].publish("a", b"", headers={"K": value}), errors.InvalidHeader)
    nothing_was_sent(spied, lambda: spied[0].publish("a", b"", headers={"K": ["ok", value]}), errors.InvalidHeader)


RAW_BLOCK = b"NATS/1.0\r\nX: y\r\n\r\nPUB evil 0\r\n\r\n"
BAD_HEADERS = [
    RAW_BLOCK,
    bytearray(RAW_BLOCK),
    memoryview(RAW_BLOCK),
    RAW_BLOCK.decode(),
    5,
    ["a"],
    [("a",)],
    {"a": 5},
    {"a": [b"x"]},
    {b"a": "x"},
    {"a": None},
]


@pytest.mark.parametrize("instrumentation", [None, Instrumentation()], ids=["plain", "instrumented"])
@pytest.mark.parametrize("headers", BAD_HEADERS, ids=lambda h: f"{type(h).__name__}-{str(h)[:6]}")
def test_headers_that_are_no_mapping(server: NatsServer, headers: Any, instrumentation: Any) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as other:
        with jsclient.connect(proxy.url, instrumentation=instrumentation) as nc:
            spy = other.subscribe(">", pending_messages=100_000)
            other.flush()
            js = JetStream(nc)
            message = jsclient.Msg(b"a", b"1", b"b", b"")
            message.connection = nc
            for call in (
                lambda: nc.publish("a", b"", headers=headers),
                lambda: nc.publish("a", "text", headers=headers),
                lambda: nc.publish("a", b"", reply="b", headers=headers),
                lambda: nc.request("a", b"", headers=headers, timeout=1),
                lambda: nc.request_many("a", b"", headers=headers, timeout=1),
                lambda: js.publish("a", b"", headers=headers, timeout=1),
                lambda: js.publish_async("a", b"", headers=headers),
                lambda: js.publish("a", b"", headers=headers, msg_id="1"),
                lambda: call_service(nc, "a", b"", headers=headers, decode=str, timeout=1),
                lambda: message.respond(b"", headers=headers),
            ):
                nothing_was_sent((nc, proxy, spy), call, errors.InvalidHeader)


@pytest.mark.parametrize("reply", ["in.*", "in.>", "x" * 5000])
def test_an_answer_to_a_reply_subject_that_is_none_is_refused(spied: Any, reply: str) -> None:
    """It came over the wire, from anybody."""
    message = jsclient.Msg(b"ask", b"1", reply.encode(), b"")
    message.connection = spied[0]
    nothing_was_sent(spied, lambda: message.respond(b"x"), errors.InvalidSubject)


def test_pairs_are_headers_too(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("pairs", callback=lambda m: m.respond(m.headers["a"]))
        assert sub.subject == "pairs"
        assert nc.request("pairs", headers=iter([("a", "1")])).data == b"1"  # type: ignore[arg-type]


@pytest.mark.parametrize("subject", LEGAL_SUBJECTS, ids=lambda s: repr(s[:20]))
def test_legal_subjects_round_trip(server: NatsServer, subject: str) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe(subject)
        nc.publish(subject, b"x", reply=subject if len(subject) < 2000 else "")
        message = sub.next(timeout=5)
        assert message.subject == subject
        assert message.reply in (subject, "")
        assert "arser" not in server.log_text()


@pytest.mark.parametrize("value", LEGAL_HEADER_VALUES, ids=lambda s: repr(s[:20]))
def test_legal_header_values_round_trip(server: NatsServer, value: str) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("hv")
        nc.publish("hv", b"", headers={"!#$%&'*+-.^_`|~9": value, "Key": [value, "2"]})
        headers = sub.next(timeout=5).headers
        assert headers is not None
        assert headers["!#$%&'*+-.^_`|~9"] == value
        assert headers.get_all("Key") == [value, "2"]


@pytest.mark.parametrize("group", ["q", "a.b", "täst", "*", "q>"])
def test_legal_queue_groups(server: NatsServer, group: str) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("lq", queue=group)
        nc.publish("lq", b"x")
        assert sub.next(timeout=5).data == b"x"
        assert nc.stats().reconnects == 0


@pytest.mark.parametrize("prefix", ["_INBOX", "a.b.c", "täst", "$private"])
def test_legal_inbox_prefixes(server: NatsServer, prefix: str) -> None:
    with jsclient.connect(server.url, inbox_prefix=prefix) as nc:
        nc.subscribe("lp", lambda message: message.respond(message.reply))
        assert nc.request("lp").data.decode().startswith(prefix + ".")


def test_payload_above_max_payload(spied: Any) -> None:
    nc = spied[0]
    text = nothing_was_sent(spied, lambda: nc.publish("a", b"x" * (nc.max_payload + 1)), errors.PayloadTooLarge)
    assert "1048577" in text
    assert "1048576" in text
    assert "object store" in text
    nothing_was_sent(spied, lambda: nc.request("a", b"x" * (nc.max_payload + 1)), errors.PayloadTooLarge)
    nothing_was_sent(spied, lambda: nc.publish("a", b"x" * nc.max_payload, headers={"a": "b"}), errors.PayloadTooLarge)


def test_nobody_there() -> None:
    port = free_port()
    with pytest.raises(errors.ConnectFailed, match=f"127.0.0.1:{port}.*refused"):
        jsclient.connect(f"nats://127.0.0.1:{port}")


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(errors.ConnectFailed, match="no-such-host"):
        jsclient.connect("nats://no-such-host.invalid")


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".example", "\udc80x"])
def test_a_name_that_cannot_exist(host: str) -> None:
    with pytest.raises(errors.ConnectFailed, match="cannot reach"):
        jsclient.connect(f"nats://{host}:4222")


def test_unknown_stream_and_jetstream_disabled(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        with pytest.raises(errors.JetStreamError, match="stream not found"):
            JetStream(nc).stream("MISSING").info()
        with pytest.raises(errors.NotStored):
            JetStream(nc).publish("nobody.stores.this", b"")
    with NatsServer(jetstream=False) as plain, jsclient.connect(plain.url) as nc:
        with pytest.raises(errors.JetStreamUnavailable, match=r"(?i)jetstream"):
            JetStream(nc).account_info()


def test_a_reason_that_is_no_text_is_refused_and_the_message_stays_open(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="REASONS", subjects=["reasons"]))
        js.publish("reasons", b"x")
        message = stream.create_consumer(durable_name="c").next(timeout=5)
        for reason in (5, b"a"):
            with pytest.raises(errors.ConfigError, match="must be a str"):
                message.term(reason)  # type: ignore[arg-type]
        message.double_ack()
        js.delete_stream("REASONS")


def test_a_timeout_may_be_any_number(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        for timeout in (Decimal(1), Fraction(1, 2)):
            nc.flush(timeout)  # type: ignore[arg-type]
