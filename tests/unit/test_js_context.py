"""JetStream itself: what it is called, which requests its methods send, and what a race with others means."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from tests import publish_rig
from tests.api_rig import FakeConnection

from jsclient import codecs, errors
from jsclient.jetstream import JetStream

ABSENT = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
IN_USE = {"error": {"code": 400, "err_code": 10058, "description": "stream name already in use"}}
INFO = {"config": {"name": "S", "subjects": ["s"]}, "state": {}, "created": "2026-01-01T00:00:00Z"}


class Connection(FakeConnection, publish_rig.FakeConnection):
    _engine: Any
    options = SimpleNamespace(instrumentation=None, inbox_prefix="_INBOX")

    def __init__(self, *answers: Any) -> None:
        publish_rig.FakeConnection.__init__(self)
        FakeConnection.__init__(self, *answers)

    def refuse_pickle(self, what: object) -> Any:
        raise TypeError(f"{what!r} belongs to its process")


def context(*answers: Any, **options: Any) -> tuple[JetStream[Any], Connection]:
    nc: Any = Connection(*answers)
    return JetStream(nc, **options), nc


def operations(nc: Connection) -> list[str]:
    return [subject.removeprefix("$JS.API.") for subject, _, _ in nc.calls]


def test_it_says_where_it_sends() -> None:
    assert repr(context()[0]) == "<JetStream $JS.API>"
    assert repr(context(domain="hub")[0]) == "<JetStream $JS.hub.API>"
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(context()[0])


def test_values_are_read_with_the_codec_or_as_json() -> None:
    assert context()[0].decodes_with is codecs.JSON
    assert context(codec=codecs.MSGPACK)[0].decodes_with is codecs.MSGPACK


def test_handles_cost_nothing_unless_they_ask() -> None:
    js, nc = context(INFO)
    js.stream("S", fetch_info=False)
    js.consumer("S", "C", fetch_info=False)
    assert operations(nc) == []
    assert js.stream("S").cached_info is not None
    assert operations(nc) == ["STREAM.INFO.S"]


def test_a_stream_that_somebody_else_makes_meanwhile_is_got() -> None:
    js, nc = context(ABSENT, IN_USE, INFO)
    assert js.get_or_create_stream(name="S", subjects=["s"]).name == "S"
    assert operations(nc) == ["STREAM.INFO.S", "STREAM.CREATE.S", "STREAM.INFO.S"]


def test_what_is_not_there_is_created_by_create_or_update() -> None:
    js, nc = context(ABSENT, INFO)
    assert js.create_or_update_stream(name="S", subjects=["s"]).name == "S"
    assert operations(nc) == ["STREAM.UPDATE.S", "STREAM.CREATE.S"]


def test_a_delete_that_is_not_confirmed_is_an_error() -> None:
    js, _ = context({"success": False})
    with pytest.raises(errors.ApiError, match="gave no reason"):
        js.delete_stream("S")


def test_the_stream_of_a_subject() -> None:
    js, nc = context({"total": 1, "offset": 0, "limit": 1024, "streams": ["S"]})
    assert js.stream_name_by_subject("s.a") == "S"
    assert nc.calls[0][1] == {"subject": "s.a"}
    js, _ = context({"total": 0, "offset": 0, "limit": 1024, "streams": None})
    with pytest.raises(errors.NoStreamForSubject):
        js.stream_name_by_subject("s.a")
