"""What needs a newer server says since which: "server 2.11" stands where `help()` tells of the option or the call.

What depends on a release is taken from the library itself: from its tables of fields and headers, from what buckets and
ordered consumers make of their options, and from the files that ask for the release of a server. So a new dependence
without a text fails here.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from jsclient import backup, coordination, groups
from jsclient.jetstream import Consumer, JetStream, JetStreamMsg, Schedule, Stream, StreamConfig, trace
from jsclient.jetstream.api import capabilities, models
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.capabilities import Version
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedState
from jsclient.jetstream.consuming.pull_options import FetchLimitsDict, PullOptions
from jsclient.jetstream.publishing import options as publishing
from jsclient.jetstream.publishing.options import PublishOptions
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.options import TLSOptions
from jsclient.workers.options import PoolOptions
from tools.docs import api
from tools.docs.fields import fields

#: (a class, its field) or (a function, ""), and the release that it needs.
Need = tuple[Any, str, Version]

#: A value for each field that is not an object of several fields; those have texts of their own.
VALUES: dict[str, Any] = {
    "bucket": "b",
    "compression": True,
    "deliver_policy": "all",
    "description": "text",
    "expected_last_msg_id": "1",
    "expected_last_seq": 1,
    "expected_last_subject": "a.>",
    "expected_last_subject_seq": 1,
    "expected_stream": "S",
    "filter_subjects": "a",
    "headers_only": True,
    "history": 2,
    "inactive_threshold": 5.0,
    "incr": 1,
    "limit_marker_ttl": 5.0,
    "allow_atomic": True,
    "allow_msg_ttl": True,
    "max_bytes": 1,
    "max_reset_attempts": 1,
    "max_value_size": 1,
    "metadata": {"a": "b"},
    "name_prefix": "a",
    "opt_start_seq": 1,
    "opt_start_time": dt.datetime.now(dt.timezone.utc),
    "replay_policy": "instant",
    "replicas": 3,
    "rollup": "sub",
    "schedule": Schedule.every(5, target="a"),
    "source": "a",
    "spec": "@hourly",
    "storage": "file",
    "target": "b",
    "time_zone": "Europe/Berlin",
    "ttl": 5,
}
OBJECTS = {"mirror", "placement", "republish", "sources"}


def of_tables() -> Iterable[Need]:
    """The fields of configurations that are refused where the server is too old."""
    for cls, table in (
        (models.StreamConfig, capabilities.STREAM_FIELDS),
        (models.ConsumerConfig, capabilities.CONSUMER_FIELDS),
        (models.Placement, capabilities.PLACEMENT_FIELDS),
        (models.StreamSource, capabilities.SOURCE_FIELDS),
    ):
        for field, version in table.items():
            yield cls, field, version
    for (field, _), version in capabilities.CONSUMER_VALUES.items():
        yield models.ConsumerConfig, field, version


def samples(cls: type) -> dict[str, Any]:
    return {field: VALUES[field] for field in fields(cls) if field not in OBJECTS}


def of_what_is_made() -> Iterable[Need]:
    """The fields of buckets, stores and ordered consumers that become fields of these tables."""
    for cls in (KeyValueConfig, ObjectStoreConfig):
        for field, value in samples(cls).items():
            config: StreamConfig = cls(**{"bucket": "b", field: value}).to_stream()
            for _, version in capabilities.needed(config):
                yield cls, field, version
    for field, value in {**samples(OrderedOptions), "filter_subjects": ["a", "b"]}.items():
        for _, version in capabilities.needed(OrderedState(OrderedOptions(**{field: value})).next_config()):
            yield OrderedOptions, field, version


def release(header: str) -> Version:
    level = publishing.LEVEL_OF_HEADER.get(header, 0)
    major, minor = publishing.LEVEL_VERSIONS.get(level, "0.0").split(".")
    return int(major), int(minor)


def of_headers() -> Iterable[Need]:
    """The options of a publish that become headers, and those of its schedules."""
    for field, value in samples(PublishOptions).items():
        given: Mapping[str, Any] = {"expected_last_subject_seq": 1, field: value}
        version = max(release(header) for header in publishing.build_headers(None, None, given) or ())
        if version > (2, 9):
            yield PublishOptions, field, version
    for field, value in samples(Schedule).items():
        schedule = Schedule(**{"spec": "@hourly", "target": "b", field: value})
        version = max(release(header) for header, _ in schedule.headers())
        if version > release(names.SCHEDULE):
            yield Schedule, field, version


#: What the operations of an API that older servers do not answer are called.
CALLS: dict[str, list[Any]] = {
    "pause_consumer": [Stream.pause_consumer, Consumer.pause],
    "resume_consumer": [Stream.resume_consumer, Consumer.resume],
    "unpin_consumer": [Stream.unpin_consumer, Consumer.unpin],
    "reset_consumer": [Stream.reset_consumer, Consumer.reset],
    "batch get": [Stream.get_last_msgs],
    "no_hdr": [Stream.get_data],
    "step_down(to=)": [Stream.step_down, Consumer.step_down],
    "pedantic": [JetStream.create_stream],
}


def of_operations() -> Iterable[Need]:
    assert set(CALLS) == set(capabilities.OPERATIONS)
    for operation, calls in CALLS.items():
        for call in calls:
            yield call, "", capabilities.OPERATIONS[operation]


def arrow_arguments() -> Any:
    return importlib.import_module("jsclient.arrow").ReadArguments if importlib.util.find_spec("pyarrow") else None


#: Files that ask for the release of the server, and what their question is about.
ASKED: dict[str, list[Need]] = {
    "arrow/access.py": [(arrow_arguments, "subjects", (2, 10))],
    "arrow/options.py": [(arrow_arguments, "subjects", (2, 10))],
    "backup/restoring.py": [(backup.restore_stream, "", (2, 15))],
    "coordination/lease.py": [(coordination.lease_bucket, "", (2, 11))],
    "groups/group.py": [(groups.create_elastic, "", (2, 11)), (groups.create_static, "", (2, 11))],
    "jetstream/batch_get.py": [(Stream.get_batch, "", (2, 11)), (Stream.get_last_msgs, "", (2, 11))],
    "keyvalue/many.py": [(KeyValue.get_many, "", (2, 11))],
    "jetstream/message.py": [(JetStreamMsg.term, "", (2, 10))],
    "jetstream/publishing/fast_batch.py": [(JetStream.fast_batch, "", (2, 14))],
    "jetstream/publishing/options.py": [(JetStream.atomic_batch, "", (2, 12)), (PublishOptions, "schedule", (2, 12))],
    "jetstream/tracing.py": [(trace, "", (2, 11))],
    "workers/later.py": [(PoolOptions, "later", (2, 12))],
}
#: Files that ask, and where no option or call depends on the answer.
NOT_OF_OPTIONS = {
    "_connection/encoding.py": "servers that are configured without headers",
    "_connection/engine.py": "the same",
    "cli/check.py": "a report about the server",
    "exactly/sink_streams.py": "fast batches where they are possible",
    "jetstream/api/consumer_requests.py": "the tables of capabilities.py",
    "jetstream/api/leadership.py": "the tables of capabilities.py",
    "jetstream/consuming/pull_inboxes.py": "asks 2.9 whether a consumer is there, because it says nothing",
    "jetstream/context.py": "the tables of capabilities.py",
    "jetstream/stream.py": "a direct get that 2.9 does not answer is repeated",
    "keyvalue/access.py": "asks the leader where a server before 2.10 does not answer a direct get",
    "keyvalue/watch.py": "reads 2.9 in another way",
    "planning/subjects.py": "reads older servers in another way",
    "spark/preflight_server.py": "reports a server that is too old",
}
ASKS = re.compile(r"at_least\(|NotSupported\(|not_supported\(|\.require\(")

#: Not refused by the library: the server says itself what it does not know.
OF_THE_SERVER: list[Need] = [
    *[(cls, field, (2, 11)) for cls in (PullOptions, FetchLimitsDict) for field in ("group", "min_pending")],
    *[(cls, "min_ack_pending", (2, 11)) for cls in (PullOptions, FetchLimitsDict)],
    *[(cls, "priority", (2, 12)) for cls in (PullOptions, FetchLimitsDict)],
    (PoolOptions, "group", (2, 11)),
    (KeyValue.create, "", (2, 11)),
    (KeyValue.purge, "", (2, 11)),
    (TLSOptions, "handshake_first", (2, 10)),
]

NEEDS = [
    *of_tables(),
    *of_what_is_made(),
    *of_headers(),
    *of_operations(),
    *(need for needs in ASKED.values() for need in needs),
    *OF_THE_SERVER,
]


def name_of(need: Any) -> str:
    return getattr(need, "__qualname__", str(need))


@pytest.mark.parametrize(("thing", "field", "version"), NEEDS, ids=name_of)
def test_since_which_server(thing: Any, field: str, version: Version) -> None:
    if thing is arrow_arguments:
        thing = arrow_arguments()
        if thing is None:
            pytest.skip("pyarrow is not installed")
    text = fields(thing)[field].text if field else inspect.getdoc(thing)
    assert re.search(rf"server {version[0]}\.{version[1]}\b", " ".join((text or "").split())), text


def test_every_file_that_asks_is_known() -> None:
    library = api.ROOT / "jsclient"
    asking = {
        str(path.relative_to(library))
        for path in library.rglob("*.py")
        if path.name != "capabilities.py" and "errors" not in path.parts and ASKS.search(path.read_text("utf-8"))
    }
    assert asking == set(ASKED) | set(NOT_OF_OPTIONS)


def test_they_are_counted() -> None:
    """The tests above prove nothing if they stop finding what they look for."""
    assert len({(name_of(thing), field) for thing, field, _ in NEEDS}) > 55
