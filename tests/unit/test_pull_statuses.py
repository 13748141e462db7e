"""Every status of a pull, sent by a scripted server after the first message: nothing stalls, nothing is hidden.

The first pull gets a message and then the status, every later pull gets the next message. So whoever goes on has
two messages in the end, and whoever does not says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.consuming.fetch import BatchEnd
from jsclient.jetstream.consuming.ordered_messages import MENDED
from jsclient.jetstream.consuming.pull_statuses import STATUSES as ROWS
from jsclient.jetstream.consuming.pull_statuses import Row, classify, row_of
from jsclient.testing import FakeClient, FakeServer, ScriptFailed, wait_until

P = "Nats-Pending-Messages: {left}\r\nNats-Pending-Bytes: 0\r\n"

HEALTHY = {"stream_name": "S", "name": "C", "config": {"ack_policy": "explicit", "max_waiting": 512}}

GOES_ON, QUIET, TOLD, ENDS = "goes on", "quiet", "told", "ends"

# status · its headers · what a continuous consume makes of it · the error · how a fetch ends: an BatchEnd, or the error
STATUSES: list[tuple[str, str, str, type[Exception] | None, Any]] = [
    ("100 Idle Heartbeat", "Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n", GOES_ON, None, GOES_ON),
    ("404 No Messages", "", QUIET, None, BatchEnd.NO_MESSAGES),
    ("408 Request Timeout", P, QUIET, None, GOES_ON),
    ("408 Interest Expired", P, QUIET, None, GOES_ON),
    ("408 Requests Pending", "", QUIET, None, BatchEnd.NO_MESSAGES),
    ("408 Message Size Exceeds MaxBytes", P, QUIET, None, BatchEnd.MAX_BYTES),
    ("409 Message Size Exceeds MaxBytes", P, QUIET, None, BatchEnd.MAX_BYTES),
    ("409 Batch Completed", P, QUIET, None, GOES_ON),
    ("409 Leadership Change", "", TOLD, errors.ConsumerLeadershipChanged, GOES_ON),
    ("409 Leadership Change", "no colon\r\n", TOLD, errors.ConsumerLeadershipChanged, GOES_ON),
    ("no number", "", TOLD, errors.PullStatusError, errors.PullStatusError),
    ("409 Server Shutdown", P, TOLD, errors.PullServerShutdown, GOES_ON),
    ("409 Exceeded MaxRequestBatch of 1", "", TOLD, errors.BadPullRequest, errors.BadPullRequest),
    ("409 Exceeded MaxRequestExpires of 1s", "", TOLD, errors.BadPullRequest, errors.BadPullRequest),
    ("409 Exceeded MaxRequestMaxBytes of 1", "", TOLD, errors.BadPullRequest, errors.BadPullRequest),
    ("409 Exceeded MaxWaiting", "", TOLD, errors.MaxWaitingExceeded, errors.MaxWaitingExceeded),
    ("409 Something New", "", TOLD, errors.PullStatusError, errors.PullStatusError),
    ("412 Required Api Level", "", TOLD, errors.PullStatusError, errors.PullStatusError),
    ("423 Nats-Pin-Id mismatch", "", TOLD, errors.PinIdMismatch, GOES_ON),
    ("423 Nats-Wrong-Pin-Id", P, TOLD, errors.PinIdMismatch, GOES_ON),
    ("429 Too Many Requests", "", TOLD, errors.PullStatusError, errors.PullStatusError),
    ("500 some go error", "", TOLD, errors.PullStatusError, errors.PullStatusError),
    ("503", "", TOLD, errors.PullNoResponders, GOES_ON),
    ("503", "Nats-Subject: $JS.API.CONSUMER.MSG.NEXT.S.C\r\n", TOLD, errors.PullNoResponders, GOES_ON),
    ("400 Bad Request - heartbeat value too large", "", ENDS, errors.BadPullRequest, errors.BadPullRequest),
    ("400 Bad Request - Priority Group missing", "", ENDS, errors.BadPullRequest, errors.BadPullRequest),
    ("400 Bad Request - Priority must be between 0 and 9", "", ENDS, errors.BadPullRequest, errors.BadPullRequest),
    ("409 Consumer Deleted", "", ENDS, errors.ConsumerDeleted, errors.ConsumerDeleted),
    ("409 consumer deleted", "", ENDS, errors.ConsumerDeleted, errors.ConsumerDeleted),
    ("409 Consumer is push based", "", ENDS, errors.NotPullConsumer, errors.NotPullConsumer),
]

every_status = pytest.mark.parametrize(
    ("status", "headers", "consume", "error", "fetch"),
    STATUSES,
    ids=[f"{row[0]} {'+ ' + row[1].split(':')[0] if row[1] else ''}".strip() for row in STATUSES],
)


class PullServer:
    """Answers pulls: the first one with a message and the status, the others with a message each."""

    def __init__(self, status: str, headers: str) -> None:
        self.status = status
        self.headers = headers
        self.pulls: list[dict[str, Any]] = []
        self.replies: list[str] = []
        self.sids: dict[str, str] = {}  # inbox without its wildcard -> sid

    def __call__(self, client: FakeClient) -> None:
        client.handshake(version="2.15.1", jetstream=True, api_lvl=5)
        try:
            while True:
                verb, *rest = client.line(timeout=60).decode().split()
                if verb == "PING":
                    client.send(b"PONG\r\n")
                elif verb == "SUB":
                    self.sids[rest[0].removesuffix("*")] = rest[-1]
                elif verb == "PUB":
                    body = client.expect(b"\r\n")[:-2]
                    if rest[0].startswith("$JS.API."):
                        self._request(client, rest[0], rest[1], body)
        except ScriptFailed:
            return  # the client has closed

    def _request(self, client: FakeClient, subject: str, reply: str, body: bytes) -> None:
        sid = self.sids[reply[: reply.rindex(".") + 1]]
        if ".MSG.NEXT." not in subject:
            answer = json.dumps(HEALTHY).encode()
            client.send(f"MSG {reply} {sid} {len(answer)}\r\n".encode() + answer + b"\r\n")
            return
        self.pulls.append(json.loads(body))
        self.replies.append(reply)
        number = len(self.pulls)
        self._message(client, sid, number)
        if number == 1:
            self.send_status(client, sid, reply, self.status, self.headers.format(left=self.pulls[0]["batch"] - 1))
            if self.status.startswith("100"):
                self._message(client, sid, 2)

    @staticmethod
    def send_status(client: FakeClient, sid: str, reply: str, status: str, headers: str) -> None:
        block = f"NATS/1.0 {status}\r\n{headers}\r\n"
        client.send(f"HMSG {reply} {sid} {len(block)} {len(block)}\r\n{block}\r\n".encode())

    @staticmethod
    def _message(client: FakeClient, sid: str, number: int) -> None:
        ack = f"$JS.ACK.S.C.1.{number}.{number}.1700000000000000000.9"
        client.send(f"MSG s.{number} {sid} {ack} 2\r\nm{number}\r\n".encode())


@contextmanager
def served(status: str, headers: str) -> Iterator[tuple[PullServer, Consumer]]:
    script = PullServer(status, headers)
    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        yield script, JetStream(nc).consumer("S", "C", fetch_info=False)


@every_status
def test_messages(status: str, headers: str, consume: str, error: Any, fetch: Any) -> None:
    told: list[Exception] = []
    with served(status, headers) as (script, consumer), consumer.messages(on_error=told.append) as messages:
        assert messages.next(timeout=5).data == b"m1"
        if consume == ENDS:
            with pytest.raises(error):
                messages.next(timeout=5)
            assert messages.closed
        else:
            assert messages.next(timeout=5).data == b"m2"
            assert len(script.pulls) == (1 if consume == GOES_ON else 2)
            assert all(1 <= pull["batch"] <= 500 for pull in script.pulls)
    assert [type(each) for each in told] == ([error] if consume == TOLD else [])


@every_status
def test_consume(status: str, headers: str, consume: str, error: Any, fetch: Any) -> None:
    told: list[Exception] = []
    seen: list[bytes] = []
    with served(status, headers) as (_, consumer):
        with consumer.consume(lambda message: seen.append(message.data), on_error=told.append) as running:
            if consume == ENDS:
                with pytest.raises(error):
                    running.wait(timeout=5)
                assert seen == [b"m1"]
            else:
                wait_until(lambda: len(seen) >= 2, 5)
                assert not running.closed
                assert seen[:2] == [b"m1", b"m2"]
    assert [type(each) for each in told] == ([error] if consume in (TOLD, ENDS) else [])


@every_status
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "no wait"])
def test_fetch(status: str, headers: str, consume: str, error: Any, fetch: Any, waits: bool) -> None:
    with served(status, headers) as (script, consumer):
        batch = consumer.fetch(2, timeout=5 if waits else 0)
        assert batch[0].data == b"m1"
        if not waits and status.startswith("408") and fetch == GOES_ON:
            fetch = BatchEnd.NO_MESSAGES  # 2.9 and 2.10 end a partly filled one like this
        if fetch == GOES_ON:
            assert [message.data for message in batch] == [b"m1", b"m2"]
            assert (batch.ended, batch.error) == (BatchEnd.COMPLETE, None)
            if len(script.pulls) == 2:
                assert script.pulls[1]["batch"] == 1  # what is missing, and no more
        else:
            assert len(batch) == 1
            assert batch.ended is (fetch if isinstance(fetch, BatchEnd) else BatchEnd.ERROR)
            assert batch.error is None if isinstance(fetch, BatchEnd) else type(batch.error) is fetch


class OrderedServer(PullServer):
    """The same for an ordered consumer: each one that is created goes on behind the last message."""

    consumer = ""
    created = consumer_seq = stream_seq = 0

    def _request(self, client: FakeClient, subject: str, reply: str, body: bytes) -> None:
        sid = self.sids.get(reply[: reply.rindex(".") + 1])
        if sid is None:
            return  # a delete: nobody waits for its answer
        if ".CONSUMER.CREATE." in subject:
            config = json.loads(body)["config"]
            self.consumer, self.consumer_seq = subject.rpartition(".")[2], 0
            self.stream_seq = config.get("opt_start_seq", 1) - 1
            self.created += 1
            answer = json.dumps({**HEALTHY, "name": self.consumer, "config": config}).encode()
            client.send(f"MSG {reply} {sid} {len(answer)}\r\n".encode() + answer + b"\r\n")
            return
        super()._request(client, subject, reply, body)

    def _message(self, client: FakeClient, sid: str, number: int) -> None:  # type: ignore[override]
        self.consumer_seq += 1
        self.stream_seq += 1
        seq = self.stream_seq
        ack = f"$JS.ACK.S.{self.consumer}.1.{seq}.{self.consumer_seq}.1700000000000000000.9"
        client.send(f"MSG s.{seq} {sid} {ack} 2\r\nm{seq}\r\n".encode())


@every_status
def test_an_ordered_consumer(status: str, headers: str, consume: str, error: Any, fetch: Any) -> None:
    """What a new consumer mends is told, and makes one."""
    told: list[Exception] = []
    script = OrderedServer(status, headers)
    mended = error is not None and issubclass(error, MENDED)
    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        ordered = JetStream(nc).ordered_consumer("S")
        with ordered.messages(on_error=told.append) as messages:
            if consume == ENDS and not mended:
                with pytest.raises(error):  # at once: what came before it is read again by the next use
                    for _ in range(2):
                        messages.next(timeout=5)
                assert messages.closed
            else:
                assert [messages.next(timeout=5).data for _ in range(2)] == [b"m1", b"m2"]
    assert script.created == (2 if mended else 1)
    assert [type(each) for each in told] == ([error] if consume == TOLD or mended else [])


def empty(status: str, headers: str) -> Callable[[FakeClient], None]:
    """A server that ends the first pull with the status, without a message, and the later ones with a 404."""
    script = PullServer(status, headers)

    def nothing(client: FakeClient, sid: str, number: int) -> None:
        if number > 1:
            script.send_status(client, sid, script.replies[-1], "404 No Messages", "")

    script._message = nothing  # type: ignore[method-assign]
    return script


@pytest.mark.parametrize("row", STATUSES, ids=[row[0] for row in STATUSES])
def test_what_ends_a_fetch_with_an_error_is_raised_when_nothing_came(row: tuple[Any, ...]) -> None:
    status, headers, _, error, fetch = row
    with FakeServer(empty(status, headers)) as fake, jsclient.connect(fake.url) as nc:
        consumer = JetStream(nc).consumer("S", "C", fetch_info=False)
        if status.endswith("MaxBytes"):
            fetch = error = errors.MaxBytesExceeded
        if isinstance(fetch, BatchEnd) or fetch == GOES_ON:
            assert not consumer.fetch(2, timeout=0.3)
        else:
            with pytest.raises(error) as raised:
                consumer.fetch(2, timeout=5)
            assert type(raised.value) is error


def cut_after_the_pull(client: FakeClient) -> None:
    client.handshake(version="2.15.1", jetstream=True)
    client.expect(b".MSG.NEXT.")


def test_a_link_that_is_cut_is_not_the_same_as_nothing_there() -> None:
    """A finite read takes an empty answer for the end of the stream."""
    script = PullServer("404 No Messages", "")
    with FakeServer(cut_after_the_pull, script) as fake, jsclient.connect(fake.url) as nc:
        batch = JetStream(nc).consumer("S", "C", fetch_info=False).fetch(2, timeout=0)
    assert [message.data for message in batch] == [b"m1"]


@pytest.mark.slow
def test_a_link_that_stays_down_is_an_error_also_for_fetches_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.fetch.NO_WAIT_TIMEOUT", 0.3)
    with FakeServer(cut_after_the_pull, FakeClient.hold) as fake, jsclient.connect(fake.url) as nc:
        consumer = JetStream(nc).consumer("S", "C", fetch_info=False)
        with pytest.raises(errors.ConnectionLost):
            consumer.fetch(2, timeout=0)
        with pytest.raises(errors.ConnectionLost):  # there is none at all
            consumer.fetch_no_wait(2)


class LateStatus(PullServer):
    """The first pull is complete before its last word comes: then the second one is out already."""

    def _request(self, client: FakeClient, subject: str, reply: str, body: bytes) -> None:
        sid = self.sids[reply[: reply.rindex(".") + 1]]
        self.replies.append(reply)
        if len(self.replies) == 1:
            self._message(client, sid, 1)
        else:
            self.send_status(client, sid, self.replies[0], "409 Batch Completed", P.format(left=0))


def test_the_late_status_of_a_fetch_does_not_end_the_pull_of_an_iterator() -> None:
    """Both may use the same inbox, one after the other: their pulls must not have the same number."""
    script = LateStatus("", "")
    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        consumer = JetStream(nc).consumer("S", "C", fetch_info=False)
        assert len(consumer.fetch(1, timeout=5, max_bytes=1000)) == 1
        with consumer.messages() as messages:
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=0)  # pulls
            wait_until(lambda: len(script.replies) == 2, 5)
            for _ in range(3):  # in one of them comes the late status, if it has not come already
                with pytest.raises(errors.NoMessages):
                    messages.next(timeout=0.05)
            assert len(script.replies) == 2, "the pull that is under way is the iterator's own"


FETCH_ENDS = {
    "no messages": "ends: `NO_MESSAGES`",
    "max bytes": "ends: `MAX_BYTES`; without a message it raises. Goes on where the call has no such limit",
    "complete": "continues if messages are missing",
    "timeout": "goes on within its timeout",
}


def as_markdown() -> str:
    """The table in jsclient/jetstream/README.md; print it to put it there."""
    lines = ["| status | what it says | messages, consume | fetch |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        status = f"{row.code or 'any other'} {row.text}".rstrip()
        lines.append(f"| {status} | {row.meaning} | {continuous(row)} | {finite(row)} |")
    return "\n".join(lines)


def continuous(row: Row) -> str:
    if row.kind == "alive":
        return "goes on"
    if row.kind == "terminal":
        return f"raises `{row.error.__name__ if row.error else ''}`"
    if row.error is None:
        return "pulls again"
    when = " once, if the pull had the whole limit" if row.kind == "quiet" else ""
    return f"`on_error` gets `{row.error.__name__}`{when}; pulls again"


def finite(row: Row) -> str:
    if row.kind == "alive":
        return "goes on"
    if row.reason:
        return FETCH_ENDS[row.reason]
    if row.again:
        return "pulls again within its timeout"
    return f"ends: `{row.error.__name__ if row.error else ''}`"


def test_the_documentation_prints_the_table_of_the_code() -> None:
    readme = Path(jsclient.__file__).parent / "jetstream" / "README.md"
    assert as_markdown() in readme.read_text()


@every_status
def test_the_table_says_what_happens(
    status: str, headers: str, consume: str, error: type[Exception] | None, fetch: Any
) -> None:
    code, _, description = status.partition(" ")
    row = row_of(int(code) if code.isdigit() else 0, description)
    assert (row.error if consume in (TOLD, ENDS) else None) == error
    assert {GOES_ON: "alive", QUIET: "quiet", TOLD: "report", ENDS: "terminal"}[consume] == row.kind
    assert (fetch == GOES_ON) == (row.kind == "alive" or row.again or row.reason in ("timeout", "complete"))


def test_the_marks_of_a_status() -> None:
    """`forget_pin`, `all_pulls` and `back_off`, by status."""
    marked = {
        mark: {f"{row[0]}" for row in STATUSES if getattr(classify_text(row[0]), mark)}
        for mark in ("forget_pin", "all_pulls", "back_off")
    }
    pinned = {"423 Nats-Pin-Id mismatch", "423 Nats-Wrong-Pin-Id"}
    gone = {"409 Consumer Deleted", "409 consumer deleted", "409 Consumer is push based"}
    moved = {"409 Leadership Change", "409 Server Shutdown"}
    assert marked["forget_pin"] == pinned
    assert marked["all_pulls"] == pinned | gone | moved
    told = {row[0] for row in STATUSES if row[2] == TOLD}
    assert marked["back_off"] == told - pinned


def classify_text(status: str) -> Any:
    code, _, description = status.partition(" ")
    return classify(int(code) if code.isdigit() else 0, description)


@pytest.mark.parametrize(
    ("messages", "nbytes", "unserved"), [("3", "70", (3, 70)), ("-1", "-1", (0, 0)), ("2", "", (2, 0))]
)
def test_the_unserved_part_of_a_pull_is_never_negative(messages: str, nbytes: str, unserved: tuple[int, int]) -> None:
    headers = {"Nats-Pending-Messages": messages, "Nats-Pending-Bytes": nbytes}
    assert classify(408, "Request Timeout", headers).unserved == unserved
    assert classify(408, "Request Timeout", {"Nats-Pending-Messages": "many"}).unserved is None
