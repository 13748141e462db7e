"""The drain of a connection waits for the acks of what was published."""

from __future__ import annotations

import pytest
from tests.publish_rig import Rig

from jsclient import errors
from jsclient.durations import Deadline


def test_it_ends_with_the_last_ack_or_says_how_many_are_missing() -> None:
    rig = Rig()
    futures = [rig.publish(), rig.publish()]
    (drainable,) = rig.nc.drainables.all()
    first, second = rig.take()
    with pytest.raises(errors.DrainTimeout, match="^2 published messages"):
        drainable.finish_drain(Deadline(0.01))
    rig.ack(first)
    rig.ack(second)
    drainable.finish_drain(Deadline(0))
    assert drainable.publishes
    assert all(future.done() for future in futures)
