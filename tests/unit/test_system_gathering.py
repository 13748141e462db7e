"""What the answers of single servers say about all of them."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient.system.gathering import servers_known_to


@pytest.mark.parametrize(
    ("statsz", "servers"),
    [
        ({}, 1),
        ({"active_servers": 3}, 3),
        # It has just started: its routes are up (2.10 has several to each), and it has heard of nobody yet.
        ({"active_servers": 1, "routes": [{"rid": 1, "name": "a"}, {"rid": 2, "name": "b"}, {"name": "a"}]}, 3),
        ({"active_servers": 5, "routes": [{"name": "a"}]}, 5),  # a supercluster
        ({"active_servers": 2, "routes": [{"rid": 7}]}, 2),
    ],
)
def test_as_many_servers_as_one_of_them_knows_of(statsz: dict[str, Any], servers: int) -> None:
    assert servers_known_to(statsz) == servers
