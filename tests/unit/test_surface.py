"""What `dir()` shows of the objects that take messages is what a program uses: layers hold objects of their own."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from jsclient.groups import GroupPool
from jsclient.jetstream import ConsumeContext, Consumer, Messages, PushConsumer
from jsclient.workers import WorkerPool

NAMES: dict[Any, str] = {
    Messages: """buffered close closed delivered drain missed_heartbeats next paused_until resets stop""",
    ConsumeContext: """close closed drain error messages stop wait""",
    Consumer: """batches cached_info consume delete fetch fetch_bytes fetch_each fetch_no_wait info messages next pause
        reset resume step_down typed unpin""",
    WorkerPool: """closed consumer error options run_until_signal snapshot stop stopping wait""",
    GroupPool: """closed consumer error group member options partitions run_until_signal snapshot state stop stopping
        wait""",
    PushConsumer: """cached_info config consume info messages typed""",
}


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_dir_shows_what_a_program_uses(kind: Any) -> None:
    shown = [name for name in dir(kind) if not name.startswith("_")]
    assert shown == NAMES[kind].split()
    for name in shown:
        text = inspect.getdoc(getattr(kind, name)) or ""
        assert text, name
        assert "For layers" not in text, name
