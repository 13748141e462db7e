"""Complete means proven: listings through an import that passes one response, over cut links, beside updates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectStoreConfig
from jsclient.testing import NatsServer

PREFIX = "JS.acc.API"

ACCOUNTS = """
jetstream {{ }}
accounts {{
  acc {{
    jetstream: enabled
    users: [ {{ user: owner, password: x }} ]
    exports: [ {{ service: "$JS.API.>", response_type: {kind} }} ]
  }}
  guest {{
    users: [ {{ user: guest, password: x }} ]
    imports: [ {{ service: {{ account: acc, subject: "$JS.API.>" }}, to: "JS.acc.API.>" }} ]
  }}
}}
no_auth_user: guest
"""


class Import:
    """Two connections to one server: to the account with JetStream, and to one that imports its API."""

    def __init__(self, kind: str) -> None:
        self.server = NatsServer(ACCOUNTS.format(kind=kind))

    def __enter__(self) -> Import:
        self.server.start()
        self.home = JetStream(jsclient.connect(self.server.url, user="owner", password="x"))
        self.away = JetStream(jsclient.connect(self.server.url, user="guest", password="x"), api_prefix=PREFIX)
        return self

    def __exit__(self, *exc: object) -> None:
        self.away.nc.close()
        self.home.nc.close()
        self.server.stop()


@pytest.fixture
def singleton() -> Iterator[Import]:
    """`response_type: singleton` is the server's default: only the first answer to a request gets through."""
    with Import("singleton") as found:
        yield found


@pytest.mark.slow
def test_a_repair_that_does_not_see_all_objects_removes_none_of_them(singleton: Import) -> None:
    store = objectstore.create_object_store(singleton.home, ObjectStoreConfig(bucket="o"))
    for number in range(5):
        store.put(f"o{number}", b"x" * 10)
    seen = objectstore.object_store(singleton.away, "o")
    try:
        assert seen.status(repair=True).repaired == 0
    except errors.JetStreamError:
        pass  # it could not see them all, and says so
    for number in range(5):
        assert store.get_bytes(f"o{number}") == b"x" * 10


@pytest.mark.slow
def test_a_repair_that_cannot_ask_the_leader_removes_nothing(singleton: Import) -> None:
    """Also where one object's meta information cannot be read: it may be the one that the chunks belong to."""
    js = singleton.home
    store = objectstore.create_object_store(js, ObjectStoreConfig(bucket="o"))
    js.publish("$O.o.C.orphan", b"x")
    js.publish("$O.o.M.YQ==", b"no JSON")
    with pytest.raises(errors.BadObjectMeta):
        store.status(repair=True)
    assert store._stream.info(subjects_filter="$O.o.C.>").state.subjects == {"$O.o.C.orphan": 1}
