"""What one request, one exception or one stranger's answer may not do: silence a service, or its discovery."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient import Connection, codecs, errors, services
from jsclient.jetstream import JetStream
from jsclient.jetstream.advisories import StreamAction
from jsclient.services import Request, ServiceConfig, check_response
from jsclient.testing import NatsServer, wait_until

BIG = 2 << 20  # twice max_payload


@pytest.fixture(autouse=True)
def _unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of pytest that holds a lone surrogate cannot be sent from one of its processes to another."""
    monkeypatch.setattr(logging.getLogger("jsclient.services"), "disabled", True)


@pytest.fixture
def client(server: NatsServer) -> Iterator[Connection]:
    with jsclient.connect(server.url, request_timeout=5) as nc:
        yield nc


def raising(error: Callable[[], BaseException]) -> Callable[[Request], None]:
    def handle(request: Request) -> None:
        if request.data == b"fine":
            request.respond(b"fine")
            return
        raise error()

    return handle


class Silent(Exception):
    """Its own code fails wherever it is printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Ending(Exception):
    def __repr__(self) -> str:
        raise SystemExit(3)

    __str__ = __repr__


class NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def told(request: Request) -> None:
    request.error("400", "y" * BIG)


def large(request: Request) -> None:
    request.respond(b"z" * BIG)


FAILURES: dict[str, tuple[Callable[[Request], Any], str]] = {
    "long text": (raising(lambda: ValueError("x" * BIG)), "500"),
    "long text of many lines": (raising(lambda: ValueError("x\n" * BIG)), "500"),
    "no repr": (raising(Silent), "500"),
    "repr that exits": (raising(Ending), "500"),
    "not UTF-8": (raising(lambda: ValueError("\ud800")), "500"),
    "NUL": (raising(lambda: ValueError("a\0b")), "500"),
    "exit": (raising(lambda: SystemExit(1)), "500"),
    "interrupt": (raising(KeyboardInterrupt), "500"),
    "no memory": (raising(MemoryError), "500"),
    "long description": (raising(lambda: errors.ServiceError("418", "y" * BIG)), "418"),
    "long data": (raising(lambda: errors.ServiceError("418", "tea", b"z" * BIG)), "418"),
    "long code": (raising(lambda: errors.ServiceError("4" * BIG, "tea")), "4" * 37 + "..."),
    "broken description": (raising(lambda: errors.ServiceError("418", "\ud800")), "418"),
    "blank description": (raising(lambda: errors.ServiceError("418", " \n ")), "418"),
    "description without a text": (raising(lambda: errors.ServiceError("418", NoText())), "418"),  # type: ignore[arg-type]
    "data of another type": (raising(lambda: errors.ServiceError("418", "tea", {"a": 1})), "418"),  # type: ignore[arg-type]
    "description of another type": (raising(lambda: errors.ServiceError("418", 7)), "418"),  # type: ignore[arg-type]
    "no code": (raising(lambda: errors.ServiceError("", "")), "500"),
    "too large an error": (told, "500"),
    "too large an answer": (large, "500"),
}


@pytest.mark.parametrize("on_error", [False, True])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_handler_is_answered_and_counted_and_the_next_request_too(
    nc: Connection, client: Connection, name: str, on_error: bool
) -> None:
    handler, code = FAILURES[name]
    seen: list[BaseException] = []

    def hear(endpoint: services.Endpoint, error: BaseException) -> None:
        seen.append(error)
        raise SystemExit(4)

    config = ServiceConfig(name="s", version="1.0.0", on_error=hear if on_error else None)
    with services.add_service(nc, config) as service:
        endpoint = service.add_endpoint("e", handler)
        for _ in range(2):
            with pytest.raises(errors.ServiceError) as caught:
                check_response(client.request("e"))
            assert caught.value.code == code
            assert len(caught.value.description) <= 1000
        if handler not in (told, large):
            assert check_response(client.request("e", b"fine")).data == b"fine"
        wait_until(lambda: endpoint.stats().num_errors == 2)
        wait_until(lambda: bool(seen) is on_error)
        (stats,) = services.stats(client, "s", service.id)
        assert (stats.endpoints[0].name, stats.endpoints[0].num_errors) == ("e", 2)
        assert 0 < len(stats.endpoints[0].last_error) <= 1000
        (info,) = services.info(client, "s", service.id)
        assert len(info.endpoints) == 1


def failing(endpoint: services.Endpoint) -> Any:
    raise Silent


@pytest.mark.parametrize(
    ("stats_handler", "reported"),
    [(failing, True), (lambda e: object(), True), (lambda e: "\ud800", True), (lambda e: "x" * BIG, False)],
    ids=["raises", "no JSON", "not UTF-8", "too large"],
)
def test_stats_are_answered_whatever_the_stats_handler_does(
    nc: Connection, client: Connection, stats_handler: Callable[[Any], Any], reported: bool
) -> None:
    heard: list[BaseException] = []
    config = ServiceConfig(
        name="s", version="1.0.0", stats_handler=stats_handler, on_error=lambda endpoint, error: heard.append(error)
    )
    with services.add_service(nc, config) as service:
        service.add_endpoint("e", lambda request: request.respond(b"1"))
        client.request("e")
        wait_until(lambda: next(services.stats(client, "s")).endpoints[0].num_requests == 1)  # counted after its answer
        (stats,) = services.stats(client, "s")
        assert stats.endpoints[0].data == {}
        assert bool(heard) is reported


def errors_of(nc: Connection, name: str) -> list[int]:
    (stats,) = services.stats(nc, name)
    return [endpoint.num_errors for endpoint in stats.endpoints]


def test_many_long_errors_fit_into_stats(nc: Connection, client: Connection) -> None:
    with services.add_service(nc, ServiceConfig(name="s", version="1.0.0")) as service:
        for number in range(12):
            service.add_endpoint(f"e{number}", raising(lambda: ValueError("\u2026" * 5000)))
            client.request(f"e{number}")
        wait_until(lambda: errors_of(client, "s") == [1] * 12)  # each is counted after its answer


def test_small_messages(tmp_path_factory: pytest.TempPathFactory) -> None:
    with NatsServer("max_payload: 2048") as server, jsclient.connect(server.url) as nc:
        with services.add_service(nc, ServiceConfig(name="s", version="1.0.0")) as service:
            for number in range(6):
                service.add_endpoint(f"e{number}", raising(lambda: ValueError("\u2026" * 5000)))
                with pytest.raises(errors.ServiceError, match="ValueError"):
                    check_response(nc.request(f"e{number}"))
            wait_until(lambda: errors_of(nc, "s") == [1] * 6)
            with pytest.raises(errors.ConfigError, match="shorten its description or metadata"):
                service.add_endpoint("large", print, metadata={"a": "x" * 3000})
            assert len(next(services.info(nc, "s")).endpoints) == 6
        for texts in ({"description": "x" * 3000}, {"metadata": {"a": "x" * 3000}}, {"description": "\ud800"}):
            with pytest.raises(errors.ConfigError):
                services.add_service(nc, ServiceConfig(name="t", version="1.0.0", **texts))
        assert list(services.ping(nc, "t")) == []


GARBAGE = [b"", b"garbage", b"[]", b"null", b"7", b'{"name": 3}', b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("ask", [services.ping, services.info, services.stats])
def test_a_stranger_that_answers_ends_no_discovery(nc: Connection, client: Connection, ask: Any) -> None:
    answers = iter(GARBAGE * 10)

    def stranger(message: Any) -> None:
        for _ in range(2):
            message.respond(next(answers))

    nc.subscribe("$SRV.>", callback=stranger)
    nc.flush()
    assert list(ask(client)) == []
    config = ServiceConfig(name="s", version="1.0.0")
    with services.add_service(nc, config) as one, services.add_service(nc, config) as two:
        assert {found.id for found in ask(client)} == {one.id, two.id}
        assert {found.id for found in ask(client, "s")} == {one.id, two.id}
        assert [found.id for found in ask(client, "s", one.id)] == [one.id]


def test_a_stranger_ends_no_iteration_over_advisories(nc: Connection) -> None:
    js = JetStream(nc)
    heard: list[Any] = []
    with js.advisories(StreamAction) as events, js.advisories(StreamAction, callback=heard.append):
        nc.flush()
        nc.publish("$JS.EVENT.ADVISORY.STREAM.CREATED.S", b"garbage")
        js.create_stream(name="S", subjects=["s"])
        assert events.next(5).stream == "S"
        wait_until(lambda: len(heard) == 1)
    js.delete_stream("S")


# --- what a handler returns ---------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int


def late(request: Request) -> concurrent.futures.Future[None]:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    threading.Timer(0.05, lambda: request.respond(b"late")).start()
    return future


def both(request: Request) -> str:
    request.respond(b"first")
    return "second"


def refusing(request: Request) -> str:
    request.error("404", "none")
    return "something"


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (lambda request: b"bytes", b"bytes"),
        (lambda request: "text", b"text"),
        (lambda request: b"", b""),
        (lambda request: 3, b"3"),
        (lambda request: False, b"false"),
        (lambda request: {"a": [1]}, b'{"a":[1]}'),
        (lambda request: Point(1), b'{"x":1}'),
        (late, b"late"),
        (both, b"first"),
    ],
)
def test_what_a_handler_returns_is_its_answer(
    nc: Connection, client: Connection, handler: Callable[[Request], Any], answer: bytes
) -> None:
    with services.add_service(nc, ServiceConfig(name="s", version="1.0.0")) as service:
        service.add_endpoint("e", handler)
        inbox = client.subscribe("answers")
        client.publish("e", b"", reply="answers")
        assert inbox.next(5).data == answer
        with pytest.raises(errors.TimedOut):
            inbox.next(0.1)


def test_it_is_written_by_the_codec_of_the_service(nc: Connection, client: Connection) -> None:
    config = ServiceConfig(name="s", version="1.0.0", codec=codecs.MSGPACK)
    with services.add_service(nc, config) as service:
        service.add_endpoint("e", lambda request: {"a": 1})
        assert msgspec.msgpack.decode(client.request("e").data) == {"a": 1}


def test_a_value_that_cannot_be_an_answer_fails_loudly(nc: Connection, client: Connection) -> None:
    heard: list[BaseException] = []
    config = ServiceConfig(name="s", version="1.0.0", on_error=lambda endpoint, error: heard.append(error))
    with services.add_service(nc, config) as service:
        service.add_endpoint("e", lambda request: object())
        service.add_endpoint("refusing", refusing)
        with pytest.raises(errors.ServiceError, match="cannot encode object"):
            check_response(client.request("e"))
        wait_until(lambda: [type(error) for error in heard] == [errors.EncodeFailed])
        client.publish("e", b"", reply="")  # nobody waits: then it does not matter
        with pytest.raises(errors.ServiceError, match="404: none"):
            check_response(client.request("refusing"))
        assert len(heard) == 1
