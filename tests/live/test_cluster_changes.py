"""A change of servers as STREAM.INFO shows it: the servers that shall hold a stream, and what the change waits for."""

from __future__ import annotations

import jsclient
from jsclient.jetstream import ClusterInfo, JetStream, MigrationStatus, StreamConfig
from jsclient.testing import Cluster, wait_until

WORDS = {word for name, word in vars(MigrationStatus).items() if name.isupper()}


def test_more_replicas_are_desired_until_all_hold_the_stream() -> None:
    assert len(WORDS) == 7
    with Cluster() as cluster, jsclient.connect(cluster.meta_leader().url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s"]))

        def now() -> ClusterInfo:
            found = stream.info().cluster
            assert found is not None
            assert not found.extra
            return found

        late = next(one for one in cluster.servers if one.name not in (now().leader, cluster.meta_leader().name))
        late.pause()
        try:
            js.update_stream(stream.info().config.replace(num_replicas=3))
            if cluster.servers[0].version >= (2, 15, 0):
                wait_until(lambda: (desired := now().desired) is not None and desired.status is not None)
                desired = now().desired
                assert desired is not None
                assert desired.created is not None
                assert {one.name for one in desired.replicas or ()} == {one.name for one in cluster.servers}
                assert desired.origin is not None
                assert desired.origin.replicas == 1
                assert desired.status is not None
                assert desired.status.type in WORDS
                assert desired.status.description
                wait_until(lambda: any(one.pending and one.name == late.name for one in now().replicas or ()))
            else:
                assert now().desired is None
        finally:
            late.resume()
        wait_until(lambda: now().desired is None and sum(one.current for one in now().replicas or ()) == 2, timeout=60)
        assert not any(one.pending for one in now().replicas or ())
