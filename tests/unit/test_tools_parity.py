"""jsclient has what nats-server has, or there is a reason; and the facts of Go sources are read right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jsclient import errors
from jsclient.jetstream.advisories import ApiAudit, ServiceLatency, parse_advisory
from tools import go_names, parity

GO = """package x

const (
\tFirst = "Nats-First"
\tsecond Kind = 7
)

type Config struct {
\tEmbedded
\tName, Other string `json:"name,omitempty"` // a remark
\tHidden string `json:"-"`
}

type Doer interface {
\tDo(it int) error
}

func (c *Config) Run() {}
func New() {}
func private() {}
"""


def test_nothing_of_the_newest_server_is_missing_without_a_reason() -> None:
    facts = json.loads(parity.FACTS.read_text(encoding="utf-8"))
    assert parity.unexplained(facts) == []
    assert len(facts["codes"]) == 227
    assert all(issubclass(errors.ApiError.registry[code], errors.ApiError) for code in facts["codes"])
    assert min(len(facts[kind]) for kind in ("events", "headers", "subjects", "fields")) > 20


def test_what_a_newer_server_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "reasons", lambda: {"field Varz.later": "x", "code 1": "x"})
    facts = {
        "codes": [10003, 19999],
        "events": ["io.nats.jetstream.advisory.v1.nak"],
        "headers": ["Nats-Later"],
        "fields": {"Varz": ["later", "mem"]},
        "subjects": ["$JS.API.STREAM.CREATE"],
    }
    assert parity.unexplained(facts) == ["code 19999", "header Nats-Later", "not missing any more: code 1"]


def test_go_sources(tmp_path: Path) -> None:
    (tmp_path / "x.go").write_text(GO)
    assert go_names.exported(tmp_path) == {"First", "Config", "Doer", "Doer.Do", "Config.Run", "New"}
    assert go_names.structures(tmp_path)["Config"] == {
        "Embedded": "<embedded>",
        "Name": "name",
        "Other": "name",
        "Hidden": "",
    }
    assert list(go_names.constants(tmp_path)) == [("First", "", "Nats-First"), ("second", "Kind", "7")]


def test_events_with_fields_of_their_own() -> None:
    audit = {"type": "io.nats.jetstream.advisory.v1.api_audit", "subject": "$JS.API.STREAM.NAMES", "response": "{}"}
    event = parse_advisory(json.dumps(audit).encode())
    assert isinstance(event, ApiAudit)
    assert (event.api_subject, event.response) == ("$JS.API.STREAM.NAMES", "{}")
    latency = {"type": "io.nats.server.metric.v1.service_latency", "status": 200, "service": 1_500_000_000}
    measured = parse_advisory(json.dumps(latency).encode())
    assert isinstance(measured, ServiceLatency)
    assert measured.service == 1.5
