"""What a server is known to support: asked once, and refused before the server would ignore it silently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.api_rig import FakeConnection

from jsclient import errors
from jsclient.jetstream.api.capabilities import Capabilities
from jsclient.jetstream.api.models import ConsumerConfig, StreamConfig
from jsclient.jetstream.api.requests import Api
from jsclient.protocol import ServerInfo


def level_answer(level: int) -> dict[str, Any]:
    return {"memory": 0, "api": {"level": level}}


def capable(*answers: Any, version: str = "2.15.1", **options: Any) -> tuple[Capabilities, FakeConnection]:
    connection = FakeConnection(*answers, version=version)
    return Capabilities(Api(connection, **options)), connection  # type: ignore[arg-type]


def test_the_level_is_asked_once_for_each_server() -> None:
    capabilities, connection = capable(level_answer(1), level_answer(5))
    assert [capabilities.level() for _ in range(3)] == [1, 1, 1]
    assert len(connection.calls) == 1
    connection.server_info = ServerInfo(server_id="B", client_id=9, version="2.15.1", jetstream=True)
    assert capabilities.level() == 5
    assert len(connection.calls) == 2


@pytest.mark.parametrize(
    ("level", "version", "wanted", "known"),
    [
        (5, "2.15.1", (2, 15), True),
        (4, "2.14.0", (2, 15), False),
        (2, "2.12.3", (2, 14), False),
        (1, "2.11.0", (2, 11), True),
        (0, "2.10.27", (2, 11), False),
        (0, "2.10.27", (2, 10), True),
        (0, "2.9.10", (2, 10), False),
        (None, "2.15.1", (2, 11), None),
    ],
)
def test_levels_and_versions(level: int | None, version: str, wanted: tuple[int, int], known: bool | None) -> None:
    answer: Any = errors.PermissionViolation("no") if level is None else level_answer(level)
    capabilities, _ = capable(answer, version=version)
    assert capabilities.at_least(wanted) is known


def test_behind_a_domain_the_connected_server_says_nothing() -> None:
    capabilities, _ = capable(level_answer(0), version="2.10.27", domain="hub")
    assert capabilities.at_least((2, 10)) is None
    capabilities, _ = capable(level_answer(3), version="2.9.10", domain="hub")
    assert capabilities.at_least((2, 10)) is True


def test_refusals_name_field_and_release() -> None:
    capabilities, connection = capable(level_answer(2), version="2.12.1")
    with pytest.raises(errors.NotSupported, match=r"StreamConfig\.allow_batched needs nats-server 2\.14.*2\.12\.1"):
        capabilities.check_config(StreamConfig(name="S", allow_batched=True))
    capabilities.check_config(StreamConfig(name="S", allow_atomic=True, compression="s2"))
    capabilities.check_config(ConsumerConfig(filter_subjects=["a", "b"], priority_groups=["g"]))
    assert len(connection.calls) == 1


def test_ordinary_configurations_cost_no_question() -> None:
    capabilities, connection = capable()
    capabilities.check_config(StreamConfig(name="S", subjects=["s"], max_age=5))
    capabilities.check_config(ConsumerConfig(durable_name="C"))
    assert connection.calls == []


def test_the_echo_is_compared() -> None:
    capabilities, _ = capable()
    sent = StreamConfig(name="S", compression="s2", metadata={"a": "b"})
    capabilities.check_echo(sent, sent, "stream 'S' was created")
    with pytest.raises(errors.NotSupported, match=r"metadata \(needs nats-server 2\.10\).*was created") as caught:
        capabilities.check_echo(sent, sent.replace(metadata=None), "stream 'S' was created")
    assert "compression" not in str(caught.value)


class Levels:
    """An Api that gives these INFO answers one after the other."""

    prefix = "$JS.API."

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.nc = SimpleNamespace(server_info=SimpleNamespace(server_id="S", client_id=1, api_lvl=0, version="2.11.0"))

    def request(self, *args: Any, **options: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(api=SimpleNamespace(level=answer))


@pytest.mark.parametrize("error", [errors.JetStreamUnavailable("503"), errors.RequestTimeout("late")])
def test_a_level_that_could_not_be_asked_is_asked_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that starts, or has no leader: what it supports must not be refused for as long as the link lives."""
    capabilities = Capabilities(Levels(error, 1, 5))  # type: ignore[arg-type]
    assert capabilities.publish_level() == 0
    assert capabilities.publish_level() == 0  # and not asked for every message
    monkeypatch.setattr("jsclient.jetstream.api.capabilities.ASK_AGAIN", 0.0)
    assert [capabilities.publish_level() for _ in range(3)] == [1, 1, 1]


def test_who_may_not_ask_for_the_level_asks_once() -> None:
    capabilities = Capabilities(Levels(errors.PermissionViolation("no")))  # type: ignore[arg-type]
    assert [capabilities.level() for _ in range(3)] == [None] * 3
