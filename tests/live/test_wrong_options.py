"""A wrong value of any option is a ConfigError that names it, and nothing goes to the server.

The options come from the TypedDicts and option classes of the library: a new one fails here until it is said what takes
it. What is wrong comes from their annotations: a value of another type, a number below zero, a word that is none.
"""

from __future__ import annotations

import datetime as dt
import gc
import importlib.util
import typing
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from tests.annotations import accepts, hints_of

import jsclient
from jsclient import ConnectOptions, arrow, backup, errors, groups, keyvalue, objectstore, services
from jsclient.groups import GroupPool, PartitionedGroup
from jsclient.jetstream import PullOptions, StreamSource
from jsclient.objectstore import ObjectStoreConfig
from jsclient.options import ReconnectPolicy, TLSOptions
from jsclient.services import ServiceConfig, add_service
from jsclient.system import SystemClient
from jsclient.testing import NatsServer
from jsclient.workers import DeadLetters, PoolOptions, WorkerPool
from tools.docs import api


class Wrong:
    """What no option takes."""

    def __repr__(self) -> str:
        return "Wrong"


class Rig:
    """Everything that takes options, with handles that were made without a question."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self.nc = nc
        self.js = nc.jetstream()
        self.stream = self.js.stream("S", fetch_info=False)
        self.consumer = self.stream.consumer("C", fetch_info=False)
        self.ordered = self.js.ordered_consumer("S")
        self.pushed = self.stream.ordered_push_consumer()
        self.service = add_service(nc, ServiceConfig(name="s", version="1.0.0"))
        self.group = PartitionedGroup(self.js, "S", "g", elastic=True)
        self.letters = DeadLetters(self.js)
        self.system = SystemClient(nc)
        self.bucket = keyvalue.key_value(self.js, "b", fetch_info=False)
        self.store = objectstore.ObjectStore(self.js, "b")


def read_table(rig: Rig, **given: Any) -> Any:
    return arrow.read_table(rig.js, "S", **given)


def nothing(*_: Any) -> None:
    pass


Feed = Callable[..., Any]
FEEDS: dict[str, list[Feed]] = {
    "ConnectOptionsDict": [lambda rig, **given: ConnectOptions(**given)],
    "CallbacksDict": [lambda rig, **given: rig.nc.set_callbacks(**given)],
    "JetStreamDict": [lambda rig, **given: rig.nc.jetstream(**given)],
    "PublishWindowDict": [lambda rig, **given: rig.nc.jetstream(**given)],
    "PublishOptions": [
        lambda rig, **given: rig.js.publish("a", b"", **given),
        lambda rig, **given: rig.js.publish_async("a", b"", **given),
        lambda rig, **given: rig.js.atomic_batch().add("a", b"", **given),
        lambda rig, **given: rig.js.fast_batch().add("a", b"", **given),
    ],
    "PublishDict": [lambda rig, **given: rig.js.publish_msg(jsclient.jetstream.PubMsg("a"), **given)],
    "PublishAsyncDict": [lambda rig, **given: rig.js.publish_msg_async(jsclient.jetstream.PubMsg("a"), **given)],
    "AtomicBatchDict": [lambda rig, **given: rig.js.atomic_batch(**given)],
    "FastBatchDict": [lambda rig, **given: rig.js.fast_batch(**given)],
    "FetchLimitsDict": [lambda rig, **given: rig.consumer.fetch(1, **given)],
    "FetchBatchesDict": [lambda rig, **given: next(iter(rig.consumer.batches(1, **given)))],
    "FetchBytesDict": [lambda rig, **given: rig.consumer.fetch_bytes(1, **given)],
    "FetchDict": [lambda rig, **given: rig.consumer.next(**given)],
    "PullOptionsDict": [
        lambda rig, **given: rig.consumer.messages(**given),
        lambda rig, **given: rig.consumer.consume(nothing, **given),
        lambda rig, **given: rig.ordered.messages(**given),
        lambda rig, **given: rig.ordered.consume(nothing, **given),
    ],
    "PushOptionsDict": [
        lambda rig, **given: rig.pushed.messages(**given),
        lambda rig, **given: rig.pushed.consume(nothing, **given),
    ],
    "OrderedOptionsDict": [
        lambda rig, **given: rig.js.ordered_consumer("S", **given),
        lambda rig, **given: rig.stream.ordered_push_consumer(**given),
    ],
    "StreamConfigDict": [
        lambda rig, **given: rig.js.create_stream(**{"name": "X", **given}),
        lambda rig, **given: rig.js.update_stream(**{"name": "X", **given}),
    ],
    "ConsumerConfigDict": [
        lambda rig, **given: rig.js.create_consumer("S", **given),
        lambda rig, **given: rig.stream.create_or_update_consumer(**given),
    ],
    "KeyValueConfigDict": [lambda rig, **given: keyvalue.create_key_value(rig.js, **{"bucket": "b", **given})],
    "ObjectStoreConfigDict": [
        lambda rig, **given: objectstore.create_object_store(rig.js, **{"bucket": "b", **given}),
        lambda rig, **given: ObjectStoreConfig(**{"bucket": "b", **given}).to_stream().check(),
    ],
    "EndpointDict": [lambda rig, **given: rig.service.add_endpoint("e", nothing, **given)],
    "ServersDict": [lambda rig, **given: rig.system.ask("VARZ", **given)],
    "ConnectionsDict": [lambda rig, **given: rig.system.connections(**given)],
    "JetStreamUseDict": [lambda rig, **given: rig.system.jetstream(**given)],
    "AskDict": [lambda rig, **given: rig.system.ask("VARZ", **given)],
    "FiltersDict": [lambda rig, **given: rig.letters.replay_all(**given)],
    "LettersDict": [
        lambda rig, **given: rig.letters.list(**given),
        lambda rig, **given: rig.letters.purge(**given),
        lambda rig, **given: list(rig.letters.export(**given)),
    ],
    "HandlingDict": [
        lambda rig, **given: WorkerPool(rig.consumer, nothing, **given),
        lambda rig, **given: GroupPool(rig.group, nothing, **given),
    ],
    "PoolOptionsDict": [lambda rig, **given: WorkerPool(rig.consumer, nothing, **given)],
    "GroupPoolDict": [lambda rig, **given: GroupPool(rig.group, nothing, **given)],
    "ReadArguments": [read_table],
    # Classes of options that are given as a whole.
    "TLSOptions": [lambda rig, **given: TLSOptions(**given)],
    "ReconnectPolicy": [lambda rig, **given: ReconnectPolicy(**given)],
    "ServiceConfig": [lambda rig, **given: ServiceConfig(**{"name": "s", "version": "1.0.0", **given})],
}
if importlib.util.find_spec("pyarrow") is None:
    del FEEDS["ReadArguments"]  # what reads into tables is not there either
CLASSES = {"TLSOptions": TLSOptions, "ReconnectPolicy": ReconnectPolicy, "ServiceConfig": ServiceConfig}

ANY_NUMBER = {
    "incr": "a counter may be taken from",
    "state": "for the system account, which judges it",
    "offset": "for the system account, which judges it",
    "cid": "for the system account, which judges it",
    "threshold": "for the system account, which judges it",
    "max_consumers": "-1: no limit",
    "max_msgs": "-1: no limit",
    "max_msgs_per_subject": "-1: no limit",
    "max_msg_size": "-1: no limit",
    "max_deliver": "-1: no limit",
    "max_ack_pending": "-1: no limit",
}
NO_LIMIT = {
    ("StreamConfigDict", "max_bytes"),
    ("KeyValueConfigDict", "max_bytes"),
    ("KeyValueConfigDict", "max_value_size"),
    ("ObjectStoreConfigDict", "max_bytes"),
    ("ConnectionsDict", "limit"),
    ("JetStreamUseDict", "limit"),
    ("AskDict", "limit"),
}
"""-1 means no limit, or is judged by the account that is asked."""

CALLED = {"durable_name": "consumer name", "key_password": "password"}
"""What an error calls an option that is a kind of name."""

NEEDS: dict[str, dict[str, Any]] = {
    "expected_last_subject": {"expected_last_subject_seq": 1},
    "priority": {"group": "g"},
    "min_pending": {"group": "g"},
    "min_ack_pending": {"group": "g"},
    "opt_start_seq": {"deliver_policy": "by_start_sequence"},
    "opt_start_time": {"deliver_policy": "by_start_time"},
}
"""Options without which another one is refused already."""


def tables() -> dict[str, Any]:
    return {**api.typed_dicts(), **CLASSES}


def wrong_values(table: str, name: str, hint: Any) -> Iterator[Any]:
    takes = accepts(hint)
    if not takes(Wrong()):
        yield Wrong()
    if takes(-1) and not takes("") and name not in ANY_NUMBER and (table, name) not in NO_LIMIT:
        yield -1
        if takes(1.5):
            yield float("nan")
    for part in [hint, *typing.get_args(hint)]:
        if typing.get_origin(part) is typing.Literal and name != "sort" and isinstance(typing.get_args(part)[0], str):
            yield "no such word"


CASES = [
    (table, number, option, value)
    for table, kind in tables().items()
    for number in range(len(FEEDS.get(table, ())))
    for option, hint in hints_of(kind).items()
    for value in wrong_values(table, option, hint)
]


@pytest.fixture(scope="module")
def no_finalizers(rig: Rig) -> Iterator[None]:
    """What an earlier test has left unsubscribes when it is collected: before these, or after them."""
    gc.collect()
    gc.disable()
    rig.nc.flush()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def rig(server: NatsServer) -> Iterator[Rig]:
    with jsclient.connect(server.url, ping_interval=3600) as nc:
        rig = Rig(nc)
        nc.flush()
        yield rig


def test_every_table_is_fed() -> None:
    assert set(tables()) == set(FEEDS)
    assert len(CASES) > 500
    assert len({(table, option) for table, _, option, _ in CASES}) > 300


def described_options() -> Iterator[tuple[str, Any]]:
    yield from tables().items()
    for one in (ConnectOptions, keyvalue.KeyValueConfig, ObjectStoreConfig):
        yield one.__name__, one


@pytest.mark.parametrize(("name", "kind"), list(described_options()))
def test_the_error_is_told_where_the_options_are(name: str, kind: Any) -> None:
    assert "raises ConfigError" in (kind.__doc__ or ""), name


def test_every_option_is_fed_something_wrong() -> None:
    """But those that take anything at all."""
    fed = {(table, option) for table, _, option, _ in CASES}
    left = {
        (table, option)
        for table, kind in tables().items()
        for option, hint in hints_of(kind).items()
        if (table, option) not in fed and hint is not Any and option != "codec"  # a protocol: it says it by itself
    }
    assert left == set()


@pytest.mark.parametrize("table", sorted(FEEDS))
@pytest.mark.usefixtures("no_finalizers")
def test_a_wrong_value_is_a_config_error_and_nothing_is_sent(rig: Rig, table: str) -> None:
    faults = []
    for _, number, option, value in (case for case in CASES if case[0] == table):
        before = rig.nc.stats().bytes_out
        what = f"{table}[{number}] {option}={value!r}"
        try:
            FEEDS[table][number](rig, **{**NEEDS.get(option, {}), option: value})
        except errors.ConfigError as error:
            called = CALLED.get(option, option.removeprefix("publish_async_"))
            if called not in str(error) and option not in str(error).replace(" ", "_"):
                faults.append(f"{what}: does not name it: {error}")
        except Exception as error:
            faults.append(f"{what}: {type(error).__name__}: {error}")
        else:
            faults.append(f"{what}: was taken")
        rig.nc.flush() if rig.nc.stats().bytes_out != before else None
        if rig.nc.stats().bytes_out != before:
            faults.append(f"{what}: something was sent")
    assert not faults, "\n".join(faults)


def test_attrs_classes_of_options_have_no_other_fields() -> None:
    """What their TypedDict does not name is fed as a class of its own, or is no option of a user."""
    known = {"servers", "first_messages", "most_messages"}
    for table, kind in (("ConnectOptionsDict", ConnectOptions), ("ObjectStoreConfigDict", ObjectStoreConfig)):
        assert {field.name for field in attrs.fields(kind)} - known == set(hints_of(tables()[table]))
    assert accepts(hints_of(ConnectOptions)["servers"])(("a",))


class Index:
    """An integer of another class than int, as numpy has them."""

    def __index__(self) -> int:
        return 1


LARGE: dict[str, Feed] = {
    "revision of delete": lambda rig: rig.bucket.delete("a", revision=2**64),
    "revision of a key in purge": lambda rig: rig.bucket.purge("a", revision=2**64),
    "max_messages of subscribe": lambda rig: rig.nc.subscribe("a", max_messages=2**64),
    "pending_messages of subscribe": lambda rig: rig.nc.subscribe("a", pending_messages=2**64),
    "pending_bytes of subscribe": lambda rig: rig.nc.subscribe("a", pending_bytes=2**64),
    "max_messages of request_many": lambda rig: rig.nc.request_many("a", max_messages=2**64),
    "seq of get_msg": lambda rig: rig.stream.get_msg(2**64),
    "seq of get_data": lambda rig: rig.stream.get_data(2**64),
    "seq of get_batch": lambda rig: rig.stream.get_batch(1, seq=2**64),
    "batch of get_batch": lambda rig: rig.stream.get_batch(2**64),
    "seq of delete_msg": lambda rig: rig.stream.delete_msg(2**64),
    "seq of purge": lambda rig: rig.stream.purge(seq=2**64),
    "keep of purge": lambda rig: rig.stream.purge(keep=2**64),
    "max_bytes of fetch": lambda rig: rig.consumer.fetch(1, max_bytes=2**64),
    "max_bytes of fetch_bytes": lambda rig: rig.consumer.fetch_bytes(2**64),
    "max_messages of ordered.fetch": lambda rig: rig.ordered.fetch(2**64),
    "max_messages of ordered.fetch_no_wait": lambda rig: rig.ordered.fetch_no_wait(2**64),
    "revision of get_revision": lambda rig: rig.bucket.get_revision("a", 2**64),
    "revision of update": lambda rig: rig.bucket.update("a", b"", 2**64),
    "resume_from_revision of watch": lambda rig: rig.bucket.watch(resume_from_revision=2**64),
    "start of objects.get": lambda rig: rig.store.get("a", start=2**64),
    "length of objects.get": lambda rig: rig.store.get("a", length=2**64),
}

ARGUMENTS: dict[str, Feed] = {
    "seq of get_msg": lambda rig: rig.stream.get_msg("1"),
    "keep of purge": lambda rig: rig.stream.purge(keep="1"),
    "seq of purge": lambda rig: rig.stream.purge(seq=1.5),
    "batch of get_batch": lambda rig: rig.stream.get_batch("5"),
    "seq of get_batch": lambda rig: rig.stream.get_batch(5, seq="1"),
    "seq of delete_msg": lambda rig: rig.stream.delete_msg("1"),
    "seq of secure_delete_msg": lambda rig: rig.stream.secure_delete_msg(True),
    "headers of ObjectMeta": lambda rig: objectstore.ObjectMeta(name="m", headers={"a": 1}),  # type: ignore[dict-item]
    "headers of ObjectMeta, a list": lambda rig: objectstore.ObjectMeta(name="m", headers={"a": [1]}),  # type: ignore[list-item]
    "metadata of ObjectMeta": lambda rig: objectstore.ObjectMeta(name="m", metadata={"a": 1}),  # type: ignore[dict-item]
    "meta of update_meta": lambda rig: objectstore.ObjectStore(rig.js, "b").update_meta("a", "b"),  # type: ignore[arg-type]
    "timeout of request": lambda rig: rig.nc.request("a", b"", timeout="5"),
    "timeout of flush": lambda rig: rig.nc.flush(True),
    "target of add_link": lambda rig: objectstore.ObjectStore(rig.js, "b").add_link("x", None),  # type: ignore[arg-type]
    "name of add_link": lambda rig: objectstore.ObjectStore(rig.js, "b").add_link("x", nameless("")),
    "name of add_link, None": lambda rig: objectstore.ObjectStore(rig.js, "b").add_link("x", nameless(None)),
    "object store of add_bucket_link": lambda rig: objectstore.ObjectStore(rig.js, "b").add_bucket_link("x", None),  # type: ignore[arg-type]
    "workers of consume": lambda rig: rig.consumer.consume(nothing, workers="2"),
    "workers of consume, a bool": lambda rig: rig.consumer.consume(nothing, workers=True),
    "max_messages of ordered.fetch": lambda rig: rig.ordered.fetch("5"),
    "max_messages of ordered.fetch_no_wait": lambda rig: rig.ordered.fetch_no_wait(1.5),
    "max_bytes of fetch_bytes": lambda rig: rig.consumer.fetch_bytes("5"),
    "max_messages of subscribe": lambda rig: rig.nc.subscribe("a", max_messages="5"),
    "max_messages of request_many": lambda rig: rig.nc.request_many("a", max_messages="5"),
    "pending_messages of subscribe": lambda rig: rig.nc.subscribe("a", pending_messages=None),
    "pending_bytes of subscribe": lambda rig: rig.nc.subscribe("a", pending_bytes="5"),
    "servers of set_servers": lambda rig: rig.nc.set_servers(None),
    "shared of a str": lambda rig: jsclient.shared("nats://127.0.0.1"),  # type: ignore[arg-type]
    "max_age, too short": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_age=1e-10),
    "max_age, too long": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_age=1e10),
    "max_age, infinite": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_age=float("inf")),
    "max_age, no number": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_age=float("nan")),
    "ack_wait, too long": lambda rig: rig.js.create_consumer("S", ack_wait=dt.timedelta(days=365 * 300)),
    "duration of every": lambda rig: jsclient.jetstream.Schedule.every(float("inf"), "a"),
    "duration of every, a str": lambda rig: jsclient.jetstream.Schedule.every("1", "a"),  # type: ignore[arg-type]
    "mirror of key_value": lambda rig: keyvalue.key_value(rig.js, "b", fetch_info=False, mirror="o"),  # type: ignore[arg-type]
    "replicas of restore_stream": lambda rig: backup.restore_stream(rig.js, "/nonexistent", replicas="3"),  # type: ignore[arg-type]
    "subjects of restore_stream": lambda rig: backup.restore_stream(rig.js, "/nonexistent", subjects="a"),  # type: ignore[arg-type]
    "stall of backup_stream": lambda rig: backup.backup_stream(rig.js, "S", "/nonexistent", stall="1"),  # type: ignore[arg-type]
    "max_msgs above 2**64": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_msgs=2**70),
    "max_msgs that JSON cannot encode": lambda rig: rig.js.create_stream(name="X", subjects=["x"], max_msgs=Index()),
    "extra of a config": lambda rig: rig.js.create_stream(name="X", subjects=["x"], extra={1: 2}),
    "extra of a source": lambda rig: rig.js.create_stream(name="X", sources=[StreamSource(name="S", extra="a")]),  # type: ignore[arg-type]
    "name of a source": lambda rig: rig.js.create_stream(name="X", sources=[StreamSource(name=Wrong())]),  # type: ignore[arg-type]
    "reply of PubMsg": lambda rig: rig.js.publish_msg(jsclient.jetstream.PubMsg("a", reply=Wrong())),  # type: ignore[arg-type]
    "config of put_stream": lambda rig: rig.js.put_stream("CREATE", Wrong()),
    "filters of create_elastic": lambda rig: groups.create_elastic(rig.js, "S", "e", partitions=2, filters=[Wrong()]),  # type: ignore[list-item]
    "group of GroupPool": lambda rig: GroupPool(Wrong(), nothing),  # type: ignore[arg-type]
    "spec of cron": lambda rig: jsclient.jetstream.Schedule.cron(Wrong(), "a"),  # type: ignore[arg-type]
    "stream of Counters": lambda rig: jsclient.jetstream.Counters(Wrong()),  # type: ignore[arg-type]
    "js of KeyValue": lambda rig: keyvalue.KeyValue(Wrong(), "b"),  # type: ignore[arg-type]
    "js of ObjectStore": lambda rig: objectstore.ObjectStore(Wrong(), "b"),  # type: ignore[arg-type]
    "pedantic of create_stream": lambda rig: rig.js.create_stream(name="X", subjects=["x"], pedantic=0),
    "pedantic of update_stream": lambda rig: rig.js.update_stream(name="X", subjects=["x"], pedantic="yes"),
    "drop_unknown of update_stream": lambda rig: rig.js.update_stream(name="X", subjects=["x"], drop_unknown=None),
    "drop_unknown of create_or_update_stream": lambda rig: rig.js.create_or_update_stream(
        name="X", subjects=["x"], drop_unknown="yes"
    ),
    "js of backup_stream": lambda rig: backup.backup_stream(rig.nc, "S", "/nonexistent"),
    "stream of backup_stream": lambda rig: backup.backup_stream(rig.js, "a b", "/proc/no_such_folder"),
    "js of restore_stream": lambda rig: backup.restore_stream(rig.nc, "/nonexistent"),
    "placement of restore_stream": lambda rig: backup.restore_stream(rig.js, "/nonexistent", placement={1: "a"}),  # type: ignore[dict-item]
    "max_msgs of create_elastic": lambda rig: groups.create_elastic(rig.js, "S", "e", partitions=2, max_msgs="5"),  # type: ignore[arg-type]
    "max_bytes of create_elastic": lambda rig: groups.create_elastic(rig.js, "S", "e", partitions=2, max_bytes=None),  # type: ignore[arg-type]
    "current of balanced": lambda rig: groups.balanced({"m": 1}, ["m"], 2),  # type: ignore[dict-item]
    "name of control_subject": lambda rig: services.control_subject("PING", None),  # type: ignore[arg-type]
    "id of control_subject": lambda rig: services.control_subject("PING", "s", None),  # type: ignore[arg-type]
    "codec of a service call": lambda rig: services.call(rig.nc, "a", decode=int, codec=object()),  # type: ignore[arg-type]
    "batch of PoolOptions": lambda rig: PoolOptions(batch=()),  # type: ignore[arg-type]
    "batch of PoolOptions, of a str": lambda rig: PoolOptions(batch=("5", 1)),  # type: ignore[arg-type]
    "first_messages of PullOptions": lambda rig: PullOptions(first_messages="5"),  # type: ignore[arg-type]
    "most_messages of PullOptions": lambda rig: PullOptions(most_messages=True),
    **{f"{name}, of more than 64 bits": call for name, call in LARGE.items()},
}
"""Wrong arguments of calls; the first word is the argument that the error names."""


def nameless(name: Any) -> objectstore.ObjectInfo:
    return objectstore.ObjectInfo(name=name, bucket="b", nuid="n")


def test_times_beyond_what_the_system_counts(server: NatsServer) -> None:
    """`poll` ends at 24 days, the clocks and locks at some years."""
    for long in (1e8, 1e12, float("inf"), 3e6):
        with jsclient.connect(
            server.url,
            connect_timeout=long,
            write_timeout=long,
            drain_timeout=long,
            request_timeout=long,
            ping_interval=long,
            pending_block=long,
        ) as nc:
            nc.subscribe("echo", lambda message: message.respond(b"1"))
            nc.flush()
            nc.flush(long)
            assert nc.request("echo", timeout=long).data == b"1"
            nc.publish("echo", b"x" * 900_000)
            nc.drain(long)


@pytest.mark.parametrize("what", ARGUMENTS)
def test_a_wrong_argument_is_one_too(rig: Rig, what: str) -> None:
    before = rig.nc.stats().bytes_out
    with pytest.raises(errors.ConfigError, match=what.split()[0].rstrip(",")):
        ARGUMENTS[what](rig)
    assert rig.nc.stats().bytes_out == before
