"""Services without a server: names, subjects and the JSON of ADR-32."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jsclient import errors
from jsclient.message import Msg
from jsclient.protocol import Headers
from jsclient.services import (
    EndpointInfo,
    EndpointStats,
    ServiceConfig,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    check_response,
    control_subject,
)
from jsclient.services.request import Request, one_line, shortened


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (("PING",), "$SRV.PING"),
        (("INFO", "adder"), "$SRV.INFO.adder"),
        (("STATS", "adder", "x1"), "$SRV.STATS.adder.x1"),
    ],
)
def test_control_subjects(arguments: tuple[str, ...], subject: str) -> None:
    assert control_subject(*arguments) == subject


@pytest.mark.parametrize("arguments", [("SCHEMA",), ("ping",), ("PING", "", "x1")])
def test_other_control_subjects_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(errors.InvalidName):
        control_subject(*arguments)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a>", "ü", "a\n"])
def test_bad_service_names(name: str) -> None:
    with pytest.raises(errors.InvalidName):
        ServiceConfig(name=name, version="1.0.0")


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0 ", "1.0.0-"])
def test_bad_versions(version: str) -> None:
    with pytest.raises(errors.ConfigError):
        ServiceConfig(name="a", version=version)


@pytest.mark.parametrize("version", ["0.0.1", "1.2.3-beta.1", "1.0.0+build.5", "1.0.0-a-b+c"])
def test_good_versions(version: str) -> None:
    assert ServiceConfig(name="a", version=version).version == version


def test_answers_have_the_fields_of_the_adr() -> None:
    identity: dict[str, Any] = {"name": "a", "id": "x", "version": "1.0.0", "metadata": {}}
    assert json.loads(msgspec.json.encode(ServicePing(**identity))) == {
        **identity,
        "type": "io.nats.micro.v1.ping_response",
    }
    endpoint = EndpointInfo(name="e", subject="s", queue_group="q", metadata={"m": "1"})
    assert json.loads(msgspec.json.encode(ServiceInfo(**identity, endpoints=[endpoint]))) == {
        **identity,
        "type": "io.nats.micro.v1.info_response",
        "description": "",
        "endpoints": [{"name": "e", "subject": "s", "queue_group": "q", "metadata": {"m": "1"}}],
    }
    stats = EndpointStats(name="e", subject="s", queue_group="q", data={})
    assert json.loads(msgspec.json.encode(ServiceStats(**identity, started="t", endpoints=[stats]))) == {
        **identity,
        "type": "io.nats.micro.v1.stats_response",
        "started": "t",
        "endpoints": [
            {
                "name": "e",
                "subject": "s",
                "queue_group": "q",
                "num_requests": 0,
                "num_errors": 0,
                "last_error": "",
                "processing_time": 0,
                "average_processing_time": 0,
                "data": {},
            }
        ],
    }


def test_error_responses_are_seen() -> None:
    block = Headers({"Nats-Service-Error": "not a number", "Nats-Service-Error-Code": "400"}).encode()
    with pytest.raises(errors.ServiceError) as caught:
        check_response(Msg(b"s", b"1", None, b"body", block))
    assert (caught.value.code, caught.value.description, caught.value.data) == ("400", "not a number", b"body")
    good = Msg(b"s", b"1", None, b"5", None)
    assert check_response(good) is good


def test_an_answer_with_broken_headers_may_be_an_error() -> None:
    with pytest.raises(errors.ServiceError, match="cannot be read"):
        check_response(Msg(b"s", b"1", None, b"body", b"no version\r\n\r\n"))


def test_texts_of_errors_fit_into_a_header() -> None:
    assert one_line("a\r\nb\0 c\n") == "a b c"


@pytest.mark.parametrize(("text", "shown"), [("x" * 10, "x" * 10), ("x" * 11, "xxxxxxx..."), ("a\nb", "a b"), ("", "")])
def test_a_long_text_is_cut_to_its_limit(text: str, shown: str) -> None:
    assert shortened(text, 10) == shown
    assert len(shown) <= 10


def test_a_request_without_a_reply_subject_cannot_be_answered() -> None:
    published: list[bytes] = []
    connection: Any = SimpleNamespace(publish=lambda *arguments, **options: published.append(b"x"))
    request = Request(Msg(b"s", b"1", None, b""), connection)
    assert request.reply == ""
    with pytest.raises(errors.ConfigError, match="no reply subject"):
        request.respond(b"x")
    assert not published
    assert not request.answered
