"""The short ways through a chunk give what the long ones do, or step aside."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from jsclient.arrow import chunks
from jsclient.message import Msg

PLAIN = [b"$JS.ACK.S.C.1.%d.%d.1732100000000000%03d.%d" % (i + 10, i, i, 50 - i) for i in range(1, 50)]
DOMAIN = [b"$JS.ACK.d.h%s.x" % reply[len(b"$JS.ACK") :] for reply in PLAIN]


@pytest.mark.spark
def test_ack_subjects_that_begin_alike() -> None:
    found = chunks.first_deliveries(list(PLAIN))
    assert found == chunks.any_deliveries(list(PLAIN))
    assert found is not None
    assert (found[0][0], found[1][0], found[2][0], found[3][0]) == (11, 1, 1_732_100_000_000_000_001, 49)


@pytest.mark.spark
@pytest.mark.parametrize(
    "replies",
    [
        DOMAIN,
        [*PLAIN, None],
        [*PLAIN, b"_INBOX.x.1"],
        [*PLAIN, DOMAIN[0]],
        [*PLAIN, PLAIN[0].replace(b".1.", b".2.", 1)],  # delivered twice
        [*PLAIN, PLAIN[0] + b"."],
        [*PLAIN, PLAIN[0].replace(b".11.", b"..", 1)],
        [*PLAIN, PLAIN[0].replace(b".C.", b".D.")],
        [b""],
    ],
)
def test_others_are_left_to_the_full_grammar(replies: list[bytes | None]) -> None:
    assert chunks.first_deliveries(replies) is None


@pytest.mark.spark
@pytest.mark.parametrize("places", [(), (0,), (49,), (0, 1, 20, 51)])
def test_statuses_are_taken_out_of_a_chunk(places: tuple[int, ...]) -> None:
    messages = [Msg(b"s.a", b"1", reply, b"x") for reply in PLAIN]
    for place in places:
        messages.insert(place, Msg(b"_INBOX.x.1", b"1", None, b"", b"NATS/1.0 409 Batch Completed\r\n\r\n"))
    data, found, statuses = chunks.split_statuses(messages)
    assert [m.raw_reply for m in data] == PLAIN
    assert len(statuses) == len(places)
    assert found == chunks.any_deliveries(list(PLAIN))
    chunk = chunks.chunk_of(data, chunks.any_deliveries(list(PLAIN)))
    assert chunk.size == sum(map(len, PLAIN)) + len(PLAIN) * len(b"s.ax")
    assert chunk.nbytes() == len(PLAIN)
    assert chunk.keep([n % 2 == 0 for n in range(len(PLAIN))]).nbytes() == len(PLAIN) // 2 + 1


@pytest.mark.spark
def test_a_chunk_may_be_nothing_but_statuses() -> None:
    status = Msg(b"_INBOX.x.1", b"1", None, b"", b"NATS/1.0 408 Request Timeout\r\n\r\n")
    assert chunks.split_statuses([status]) == ([], None, [status])
    assert chunks.split_statuses([]) == ([], None, [])


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("blocks", "alike"),
    [
        ([block(b"Nats-Msg-Id:%d" % i) for i in range(20)], True),
        ([block(b"A: %d" % i, b"B:", b"C: x:y ") for i in range(20)], True),
        ([block("A:\u00e4".encode())] * 3, True),
        ([block(b"A:1"), block(b"A:1", b"B:2")], False),
        ([block(b"A:1", b"B:2"), block(b"B:1", b"A:2")], False),
        ([block(b"A:1", b"A:2")] * 2, False),
        ([block(b"A:1"), None], False),
        ([None, block(b"A:1")], False),
        ([block(), block()], False),
        ([block(b"A:1"), block()], False),
        ([block(b"A:\xff")] * 2, True),
        ([block(b"no colon")] * 2, False),
    ],
)
def test_header_maps(blocks: list[bytes | None], alike: bool) -> None:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    from jsclient.arrow import columns as arrow
    from jsclient.spark.schema import schema_of

    kind = schema_of(StructType().add("headers", MapType(StringType(), ArrayType(StringType())))).field(0).type
    assert (arrow._same_names(blocks, kind) is not None) == alike
    built = arrow._header_maps(blocks, kind)
    built.validate(full=True)
    assert built.type == kind
    plain = [None if each is None else arrow.header_items(each) for each in blocks]
    assert built.to_pylist() == pa.array(plain, kind).to_pylist()
