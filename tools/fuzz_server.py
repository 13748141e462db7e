"""The server of `fuzz_client.py`: it answers nearly as a real one does, and sometimes anything."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from jsclient.testing.fake import FakeClient, info_line

STAMP = "2024-05-06T07:08:09.123456789Z"
STRANGE: list[Any] = [
    None,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**40,
    1e308,
    -0.5,
    True,
    "",
    "x",
    "x" * 5000,
    "\x00\r\n",
    "é\ud800",
]
STRANGE += [
    [],
    {},
    [[]],
    [None],
    {"": None},
    "9999-99-99T99:99:99Z",
    "0001-01-01T00:00:00Z",
    STAMP,
    ["a"] * 100,
    ">",
    "a.*",
]

STREAM = {
    "config": {
        "name": "S",
        "subjects": ["s.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "storage": "file",
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": 5,
        "num_replicas": 1,
        "duplicate_window": 120000000000,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "discard": "new",
        "deny_delete": True,
    },
    "created": STAMP,
    "state": {
        "messages": 5,
        "bytes": 100,
        "first_seq": 1,
        "first_ts": STAMP,
        "last_seq": 5,
        "last_ts": STAMP,
        "consumer_count": 1,
        "num_subjects": 2,
        "subjects": {"s.a": 3, "s.b": 2},
    },
    "cluster": {"name": "c", "leader": "n1", "replicas": [{"name": "n2", "current": True, "active": 5, "lag": 0}]},
    "ts": STAMP,
}
CONSUMER = {
    "stream_name": "S",
    "name": "C",
    "created": STAMP,
    "config": {
        "name": "C",
        "durable_name": "C",
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": 30000000000,
        "max_deliver": -1,
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "replay_policy": "instant",
    },
    "delivered": {"consumer_seq": 0, "stream_seq": 0},
    "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    "num_ack_pending": 0,
    "num_redelivered": 0,
    "num_waiting": 0,
    "num_pending": 5,
    "ts": STAMP,
}
MESSAGE = {"message": {"subject": "s.a", "seq": 3, "data": "aGVsbG8=", "hdrs": "TkFUUy8xLjANCg0K", "time": STAMP}}
ERROR = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
ACCOUNT = {
    "memory": 0,
    "storage": 0,
    "streams": 1,
    "consumers": 0,
    "limits": {"max_memory": -1},
    "api": {"total": 1, "errors": 0},
}
OBJECT = {
    "name": "o",
    "bucket": "b",
    "nuid": "N",
    "size": 5,
    "chunks": 1,
    "digest": "SHA-256=LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
    "mtime": STAMP,
    "options": {"max_chunk_size": 131072},
}

SYSTEM = {
    "server_id": "N",
    "server_name": "n1",
    "now": STAMP,
    "start": STAMP,
    "cpu": 1.5,
    "mem": 1000,
    "connections": [{"cid": 5, "ip": "127.0.0.1", "port": 1, "start": STAMP, "rtt": "1ms", "account": "A"}],
    "num_connections": 1,
    "status": "ok",
    "status_code": 200,
    "streams": 1,
    "meta_cluster": {"name": "c", "leader": "n1", "cluster_size": 1},
}

#: what the subject of a request contains -> what a server answers
ANSWERS: list[tuple[str, Any]] = [
    ("STREAM.NAMES", {"total": 2, "offset": 0, "limit": 1024, "streams": ["S", "KV_b"]}),
    ("STREAM.LIST", {"total": 1, "offset": 0, "limit": 256, "streams": [STREAM]}),
    ("STREAM.MSG.GET", MESSAGE),
    ("STREAM.PURGE", {"success": True, "purged": 3}),
    ("STREAM.MSG.DELETE", {"success": True}),
    ("STREAM.DELETE", {"success": True}),
    ("STREAM.SNAPSHOT", {"config": STREAM["config"], "state": STREAM["state"]}),
    ("STREAM.", STREAM),
    ("CONSUMER.NAMES", {"total": 1, "offset": 0, "limit": 1024, "consumers": ["C"]}),
    ("CONSUMER.LIST", {"total": 1, "offset": 0, "limit": 256, "consumers": [CONSUMER]}),
    ("CONSUMER.DELETE", {"success": True}),
    ("CONSUMER.PAUSE", {"paused": True, "pause_until": STAMP, "pause_remaining": 5}),
    ("CONSUMER.", CONSUMER),
    ("$JS.API.INFO", ACCOUNT),
    ("$SRV.", {"name": "s", "id": "I", "version": "1.0.0", "type": "io.nats.micro.v1.info_response", "endpoints": []}),
    ("$SYS.REQ", {"server": {"name": "n1", "id": "N", "ver": "2.15.1", "jetstream": True}, "data": SYSTEM}),
    ("", {"stream": "S", "seq": 6}),
]
STATUSES = [
    b"100 Idle Heartbeat",
    b"100 FlowControl Request",
    b"404 No Messages",
    b"408 Request Timeout",
    b"409 Message Size Exceeds MaxBytes",
    b"409 Consumer Deleted",
    b"409 Leadership Change",
    b"409 Exceeded MaxWaiting",
    b"409 Server Shutdown",
    b"400 Bad Request",
    b"423 Nats-Wrong-Pin-Id",
    b"503",
    b"503 No Responders",
    b"204 EOB",
    b"999",
    b"abc",
    b"-1",
    b"",
    b"99999999999999999999 x",
]
HEADERS = [
    b"Nats-Stream: S",
    b"Nats-Subject: s.a",
    b"Nats-Sequence: 3",
    b"Nats-Time-Stamp: " + STAMP.encode(),
    b"Nats-Pending-Messages: 5",
    b"Nats-Pending-Bytes: 10",
    b"Nats-Last-Sequence: 2",
    b"Nats-Num-Pending: 4",
    b"Nats-Last-Consumer: 7",
    b"KV-Operation: DEL",
    b"Nats-Consumer-Stalled: x",
    b"Nats-Pin-Id: p",
    b"Nats-UpTo-Sequence: 5",
    b"Nats-Msg-Id: 1",
    b"Nats-Service-Error-Code: 500",
    b"Nats-Rollup: sub",
    b"Nats-Marker-Reason: MaxAge",
    b"a:",
    b": b",
    b"no colon",
    b"X: " + b"y" * 3000,
    b"\xff: \xff",
    b"",
]
NUMBERS = [b"1", b"2", b"3", b"0", b"-1", b"x", b"", b"99999999999999999999999", b"1700000000000000000"]


def changed(rng: random.Random, value: Any, often: float) -> Any:
    """The same, with some places of it replaced, removed or doubled."""
    if rng.random() < often * 0.3:
        return rng.choice(STRANGE)
    if isinstance(value, dict):
        found = {key: changed(rng, item, often) for key, item in value.items() if rng.random() > often * 0.2}
        if rng.random() < often:
            found[rng.choice(("x", "error", "total", "seq", "stream", "type", "duplicate", "offset"))] = rng.choice(
                STRANGE
            )
        return found
    if isinstance(value, list) and value:
        return [
            changed(rng, item, often) for item in value for _ in range(rng.choice((0, 1, 1, 1, 1, 2)) if often else 1)
        ]
    return value


class Server:
    """The script of one connection."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: How often something is not as it should be: a server that is always wrong is not asked a second time.
        self.often = rng.choice((0.0, 0.02, 0.1, 0.3))
        self.subscriptions: dict[bytes, bytes] = {}
        self.sequence = 0

    def __call__(self, client: FakeClient) -> None:
        info: dict[str, Any] = {"version": self.rng.choice(("2.9.10", "2.10.27", "2.15.1")), "api_lvl": 2}
        if self.rng.random() < self.often:
            info[
                self.rng.choice(
                    ("max_payload", "headers", "connect_urls", "version", "proto", "nonce", "tls_required", "ldm")
                )
            ] = self.rng.choice(STRANGE)
        client.send(info_line(**info))
        buffer = bytearray()
        while True:
            try:
                data = client.socket.recv(65536)
            except TimeoutError:
                client.send(b"")  # ends the script when the server is closed
                if self.rng.random() < self.often:
                    client.send(self.noise())
                continue
            except OSError:
                return
            if not data:
                return
            buffer += data
            for verb, words, payload in frames_of(buffer):
                if self.rng.random() < self.often * 0.05:
                    client.reset()
                    return
                answer = self.answer(verb, words, payload)
                if answer:
                    client.send(answer)

    def answer(self, verb: bytes, words: list[bytes], payload: bytes) -> bytes:
        if verb == b"PING":
            return b"" if self.rng.random() < self.often * 0.1 else b"PONG\r\n"
        if verb == b"SUB":
            self.subscriptions[words[-1]] = words[0]
        elif verb == b"UNSUB":
            self.subscriptions.pop(words[0], None)
        elif verb in (b"PUB", b"HPUB"):
            sizes = 1 if verb == b"PUB" else 2
            if len(words) > 1 + sizes:
                return self.reply(words[0].decode(errors="replace"), words[1], payload)
        return self.noise() if self.rng.random() < self.often * 0.1 else b""

    def sid_of(self, subject: bytes) -> bytes | None:
        for sid, pattern in self.subscriptions.items():
            if pattern == subject or (pattern[-1:] in (b"*", b">") and subject.startswith(pattern[:-1])):
                return sid
        return None

    def reply(self, subject: str, inbox: bytes, payload: bytes) -> bytes:
        sid = self.sid_of(inbox)
        if sid is None or self.rng.random() < self.often * 0.3:
            return b""
        frames = b"".join(self.reply_frames(subject, sid, inbox))
        if self.rng.random() < self.often * 0.3:
            frames *= 2
        if self.rng.random() < self.often * 0.05:
            at = self.rng.randrange(len(frames) + 1)
            frames = frames[:at] + self.rng.randbytes(3) + frames[at:]
        return frames

    def reply_frames(self, subject: str, sid: bytes, inbox: bytes) -> Iterator[bytes]:
        rng = self.rng
        if "MSG.NEXT" in subject:
            for _ in range(rng.randrange(4)):
                yield self.message(sid, rng.choice((b"s.a", b"s.b")))
            if rng.random() < 0.5 + self.often:
                yield self.status(sid, inbox)
        elif "DIRECT.GET" in subject:
            count = rng.randrange(1, 4) if rng.random() < 0.3 else 1
            for _ in range(count):
                lines = [
                    b"Nats-Stream: S",
                    b"Nats-Subject: $KV.b.k",
                    b"Nats-Sequence: 3",
                    b"Nats-Time-Stamp: " + STAMP.encode(),
                ]
                yield self.frame(sid, inbox, b"", b"hello", self.headers(b"", lines))
        elif subject.startswith("$JS.ACK"):
            yield self.frame(sid, inbox, b"", b"+ACK" if rng.random() < 0.1 else b"")
        elif rng.random() < self.often:
            yield self.status(sid, inbox)
        else:
            known = next(answer for part, answer in ANSWERS if part in subject)
            answer = ERROR if rng.random() < 0.1 + self.often * 0.3 else known
            if "$O." in subject or ".M." in subject:
                answer = rng.choice((answer, OBJECT))
            body = json.dumps(changed(rng, answer, self.often), ensure_ascii=True).encode()
            if rng.random() < self.often * 0.3:
                body = rng.choice(
                    (
                        b"",
                        b"{",
                        b"null",
                        b"[]",
                        b"\xff",
                        body[: len(body) // 2],
                        b"[" * 50_000,
                        b'"' + b"x" * 200_000 + b'"',
                    )
                )
            yield self.frame(sid, inbox, b"", body)

    def message(self, sid: bytes, subject: bytes) -> bytes:
        """One delivery of a consumer."""
        self.sequence += 1
        tokens = [
            b"$JS",
            b"ACK",
            b"S",
            b"C",
            b"1",
            b"%d" % self.sequence,
            b"%d" % self.sequence,
            b"1700000000000000000",
            b"0",
        ]
        if self.rng.random() < self.often:
            tokens[self.rng.randrange(len(tokens))] = self.rng.choice(NUMBERS)
        if self.rng.random() < self.often * 0.3:
            tokens = tokens[: self.rng.randrange(1, 9)]
        headers = self.headers(b"", []) if self.rng.random() < 0.3 else b""
        body = json.dumps(changed(self.rng, OBJECT, self.often)).encode() if self.rng.random() < 0.3 else b"hello"
        return self.frame(sid, subject, b".".join(tokens), body, headers)

    def status(self, sid: bytes, inbox: bytes) -> bytes:
        return self.frame(
            sid,
            inbox,
            self.rng.choice((b"", b"", b"reply.to")),
            b"",
            self.headers(b" " + self.rng.choice(STATUSES), []),
        )

    def headers(self, status: bytes, lines: list[bytes]) -> bytes:
        if self.rng.random() < self.often + 0.2:
            lines = [*lines, *self.rng.choices(HEADERS, k=self.rng.randrange(3))]
        if lines and self.rng.random() < self.often:
            lines.pop(self.rng.randrange(len(lines)))
        version = (
            b"NATS/1.0" if self.rng.random() > self.often * 0.1 else self.rng.choice((b"NATS/2.0", b"", b"HTTP/1.1"))
        )
        return version + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"

    def frame(self, sid: bytes, subject: bytes, reply: bytes, body: bytes, headers: bytes = b"") -> bytes:
        if self.rng.random() < self.often * 0.1:
            sid = self.rng.choice((b"999", sid))
        start = b" ".join(part for part in (subject, sid, reply) if part)
        if headers:
            return b"HMSG %s %d %d\r\n%s%s\r\n" % (start, len(headers), len(headers) + len(body), headers, body)
        return b"MSG %s %d\r\n%s\r\n" % (start, len(body), body)

    def noise(self) -> bytes:
        """Something that nobody asked for."""
        rng = self.rng
        kind = rng.randrange(8)
        if kind == 0:
            info = {
                "server_id": "F",
                "version": "2.15.1",
                "max_payload": rng.choice(STRANGE),
                "connect_urls": rng.choice(STRANGE),
            }
            return b"INFO " + json.dumps(changed(rng, info, 0.3)).encode() + b"\r\n"
        if kind == 1:
            return b"-ERR '%s'\r\n" % rng.choice(
                (
                    b"Stale Connection",
                    b'Permissions Violation for Publish to "s.a"',
                    b"x",
                    b"Authorization Violation",
                    b"",
                )
            )
        if kind == 2:
            return b"+OK\r\n"
        if kind == 3 and rng.random() < 0.2:
            return rng.randbytes(rng.randrange(1, 30))
        if kind == 4:
            return b"PING\r\n" * rng.randrange(1, 50)
        if self.subscriptions:
            sid = rng.choice(list(self.subscriptions))
            inbox = self.subscriptions[sid].replace(b"*", b"x").replace(b">", b"x")
            return self.message(sid, inbox) if kind < 7 else self.status(sid, inbox)
        return b""


def frames_of(buffer: bytearray) -> Iterator[tuple[bytes, list[bytes], bytes]]:
    """(verb, words, payload) of what has arrived whole; it is taken off the buffer."""
    while True:
        at = buffer.find(b"\r\n")
        if at < 0:
            return
        verb, *words = bytes(buffer[:at]).split() or [b""]
        end = at + 2
        payload = b""
        if verb in (b"PUB", b"HPUB"):
            size = int(words[-1])
            if len(buffer) < end + size + 2:
                return
            payload = bytes(buffer[end : end + size])
            end += size + 2
        del buffer[:end]
        yield verb, words, payload
