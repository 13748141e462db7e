"""Fuzz `protocol` against slow, obvious reference code: `python tools/fuzz.py --seconds 60 --seed 1`.

Invariants, for any bytes in any chunks:
- the events, and whether and after which event the stream is refused, are those of the reference parser;
- nothing but ProtocolError is raised, by feeding or by looking at what came out;
- memory held stays below the limits; after an error everything is refused.

Prints the seed and the offending bytes and exits 1 on the first finding.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jsclient.protocol import (
    Acks,
    Err,
    Headers,
    Info,
    InvalidArgument,
    Msg,
    Ok,
    Parser,
    Ping,
    Pong,
    ProtocolError,
)

SMALL_LIMITS = (300, 120, 400)  # payload, line, INFO: small, so that the fuzzer finds its way to them
ACK = b"$JS.ACK.S.C.1.12.11.1700000000000000000.5"
LONG_ACK = b"$JS.ACK.hub.ACC.S.C.1.12.11.1700000000000000000.5.x"

CASES: list[bytes] = [
    b'INFO {"server_id":"A","version":"2.15.1","max_payload":1048576,"connect_urls":["a:1"]}\r\n',
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'Stale Connection'\r\n",
    b"-ERR\r\n",
    b"MSG a.b 1 5\r\nhello\r\n",
    b"MSG a.b 1  5\r\nhello\r\n",
    b"msg\ta.b\t1\tr.s\t0\r\n\r\n",
    b"MSG a.b 1 " + ACK + b" 4\r\n\r\n\r\n\r\n",
    b"MSG a\x0bb 7 r 1\r\n\x00\r\n",
    b"MSG \xff\xfe 7 1\r\n\xff\r\n",
    b"HMSG a.b 1 " + LONG_ACK + b" 22 27\r\nNATS/1.0\r\nA: b\r\nC:\r\n\r\nhello\r\n",
    b"HMSG a 12 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
    b"HMSG a 12 r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 12 0 2\r\nhi\r\n",
    b"HMSG a 12 r 4 6\r\nabcdhi\r\n",
    b"MSG " + b"s" * 100 + b" 1 3\r\nabc\r\n",
    b"MSG a 1 300\r\n" + b"x" * 300 + b"\r\n",
    b"MSG a 1 301\r\n" + b"x" * 301 + b"\r\n",
    b"INFO " + b"[" * 390 + b"\r\n",
]
TOKENS = [
    b"0",
    b"1",
    b"00",
    b"+1",
    b"1_1",
    b"-1",
    b" 1",
    b"299",
    b"300",
    b"301",
    b"9" * 30,
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
]
TOKENS += [b"\t", b"MSG", b"hmsg", b"INFO ", b"PING\r\n", b"NATS/1.0", b":", b"\x00", b"\xff", b"\xc2\x85", b"\x0b"]


class Finding(Exception):
    """An invariant does not hold."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Finding(what)


Outcome = tuple[list[Any], bool]  # events, and whether the stream was refused


def reference(data: bytes, limits: tuple[int, int, int] = SMALL_LIMITS) -> Outcome:
    """The whole stream at once, one regex per line, no concern for speed."""
    events: list[Any] = []
    max_payload, max_line, max_info = limits
    while data:
        line, crlf, rest = data.partition(b"\r\n")
        limit = max_info if re.match(rb"(?i)INFO(?:[ \t]|$)", line) else max_line
        if not crlf:
            # An unfinished line is refused when it can no longer become a legal one; its CR may be there already.
            limit = max_info if re.match(rb"(?i)INFO[ \t]", line) else max_line
            return events, len(line) > limit + 1 or re.match(rb"(?i)[MHIP+-]", line) is None
        if len(line) > limit:
            return events, True
        if re.fullmatch(rb"(?i)PING[ \t]*", line):
            events.append(Ping())
        elif re.fullmatch(rb"(?i)PONG[ \t]*", line):
            events.append(Pong())
        elif re.fullmatch(rb"(?i)\+OK[ \t]*", line):
            events.append(Ok())
        elif match := re.fullmatch(rb"(?i)INFO[ \t]+(.*)", line, re.DOTALL):
            events.append(Info(match[1]))
        elif match := re.fullmatch(rb"(?i)-ERR(?:[ \t]+(.*))?", line, re.DOTALL):
            text = (match[1] or b"").strip(b" \t")
            quoted = re.fullmatch(rb"'(.*)'", text, re.DOTALL)
            events.append(Err((quoted[1] if quoted else text).decode("utf-8", "backslashreplace")))
        else:
            frame = _reference_frame(line, max_payload)
            if frame is None:
                return events, True
            subject, sid, reply, header_size, size = frame
            if len(rest) < size + 2:
                return events, False
            if rest[size : size + 2] != b"\r\n":
                return events, True
            if header_size is None:
                events.append(Msg(subject, sid, reply, rest[:size]))
            else:
                events.append(Msg(subject, sid, reply, rest[header_size:size], rest[:header_size]))
            rest = rest[size + 2 :]
        data = rest
    return events, False


def _reference_frame(line: bytes, max_payload: int) -> tuple[bytes, bytes, bytes | None, int | None, int] | None:
    fields = [field for field in re.split(rb"[ \t]", line) if field]
    if not fields:
        return None
    sizes = 2 if fields[0].upper() == b"HMSG" else 1
    if fields[0].upper() not in (b"MSG", b"HMSG") or len(fields) not in (3 + sizes, 4 + sizes) or line[:1] in b" \t":
        return None
    numbers = fields[-sizes:]
    if not all(re.fullmatch(rb"[0-9]{1,10}", number) and int(number) <= max_payload for number in numbers):
        return None
    if int(numbers[0]) > int(numbers[-1]):
        return None
    reply = fields[3] if len(fields) == 4 + sizes else None
    return fields[1], fields[2], reply, int(numbers[0]) if sizes == 2 else None, int(numbers[-1])


def mutate(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        span = rng.randrange(1, 12)
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at : at + span]
        elif kind == 2:
            out[at:at] = out[at : at + span]
        elif kind == 3:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            out[at : at + span] = rng.choice(TOKENS)
        elif kind == 5:
            out[at:at] = rng.randbytes(span)
        else:
            out[at:at] = rng.choice(CASES)
    return bytes(out)


def chunks(rng: random.Random, data: bytes) -> list[bytes]:
    style = rng.randrange(3)
    if style == 0:
        return [data]
    if style == 1:
        return [data[i : i + 1] for i in range(len(data))]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def feed_all(feed: Callable[[bytes], list[Any]], pieces: list[bytes]) -> Outcome:
    events: list[Any] = []
    refused = False
    for piece in pieces:
        try:
            events += feed(piece)
            expect(not refused, "accepted input after an error")
        except ProtocolError as error:
            expect(not (refused and error.events), "events given twice")
            events += error.events
            refused = True
    return events, refused


def look_at(event: Any) -> None:
    """Everything a user may ask an event: only ProtocolError is allowed."""
    try:
        if isinstance(event, Info):
            event.decode()
        if isinstance(event, Msg):
            expect(event.subject.encode("utf-8", "surrogateescape") == event.raw_subject, "subject loses bytes")
            _ = event.reply, event.status
            headers = event.headers
            if headers is not None:
                look_at_headers(headers)
            Acks([event.raw_reply]).sequences()
    except ProtocolError:
        pass


def look_at_headers(headers: Headers) -> None:
    try:
        expect(Headers.decode(Headers(headers.items()).encode()) == headers, "headers lose bytes")
    except InvalidArgument:
        pass  # other clients send names and values that we refuse to send


def check_parser(rng: random.Random, data: bytes) -> None:
    expected = reference(data)
    for pieces in ([data], chunks(rng, data)):
        parser = Parser(Msg, *SMALL_LIMITS)
        found = feed_all(parser.feed, pieces)
        expect(found == expected, f"{found} instead of {expected} in chunks {pieces}")
        expect(parser.held <= max(SMALL_LIMITS) + 2, "holds too much")
    for event in expected[0]:
        look_at(event)


def one_round(rng: random.Random) -> bytes:
    return mutate(rng, b"".join(rng.choice(CASES) for _ in range(rng.randrange(1, 5))))


def run(seconds: float, seed: int, rounds: int | None = None) -> int:
    """Exit status; `rounds` bounds the work for the test suite."""
    end = time.monotonic() + seconds
    done = 0
    while time.monotonic() < end and (rounds is None or done < rounds):
        rng = random.Random(f"{seed}/{done}")
        data = one_round(rng)
        try:
            check_parser(rng, data)
        except Exception as error:
            print(f"FINDING at seed {seed} round {done}: {type(error).__name__}: {error}\ninput: {data!r}")
            return 1
        done += 1
    print(f"{done} rounds without a finding (seed {seed})")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return run(arguments.seconds, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
