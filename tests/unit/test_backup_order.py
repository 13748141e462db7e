"""The order in which backups of an account are restored, and where their sources continue."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient.backup.account import _origins_first
from jsclient.backup.files import Backup
from jsclient.backup.sources import continued, positions


def backup(name: str, manifest: Any = None, **config: Any) -> Backup:
    return Backup(Path(name), {"name": name, **config}, {}, manifest)


@pytest.mark.parametrize("names", [["A", "B", "C", "D"], ["D", "C", "B", "A"], ["C", "A", "D", "B"]])
def test_origins_come_before_their_mirrors_and_sources(names: list[str]) -> None:
    made = {
        "A": backup("A", sources=[{"name": "B"}, {"name": "C"}]),
        "B": backup("B", mirror={"name": "D"}),
        "C": backup("C", mirror=None, sources=[{"name": "D"}, {"name": "elsewhere"}]),
        "D": backup("D"),
    }
    order = [each.stream for each in _origins_first({name: made[name] for name in names})]
    assert sorted(order) == ["A", "B", "C", "D"]
    assert order[0] == "D"
    assert order[-1] == "A"


def test_streams_that_are_sources_of_each_other_are_all_restored() -> None:
    made = {"A": backup("A", sources=[{"name": "B"}]), "B": backup("B", sources=[{"name": "A"}])}
    assert sorted(each.stream for each in _origins_first(made)) == ["A", "B"]


def test_a_source_continues_after_the_last_message_of_the_backup() -> None:
    class Known:
        sources = {"O": 41}

    made = backup("S", Known(), sources=[])
    (source,) = continued(made, [{"name": "O", "opt_start_time": "then", "filter_subject": "x"}])
    assert source == {"name": "O", "filter_subject": "x", "opt_start_seq": 42}


def test_a_source_that_lags_has_no_certain_position() -> None:
    """Servers before 2.15 do not say how far they have copied."""

    def copying(name: str, **more: Any) -> Any:
        return SimpleNamespace(**{"name": name, "seq": 0, "lag": 0, "error": None, **more})

    origins = [copying("done"), copying("behind", lag=1), copying("broken", error="x"), copying("known", seq=7, lag=3)]
    config = SimpleNamespace(name="S", sources=[SimpleNamespace(name=one.name, external=None) for one in origins])
    info: Any = SimpleNamespace(config=config, sources=origins, state=SimpleNamespace(last_seq=41))
    js: Any = SimpleNamespace(stream=lambda name, fetch_info: SimpleNamespace(info=lambda timeout: info))
    assert positions(js, info, None) == {"done": 41, "known": 7}
