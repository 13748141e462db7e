from __future__ import annotations

import random
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import InvalidArgument, LimitExceeded, ProtocolError, WebSocketError
from protocol.websocket import INFLATE_PIECE, MAX_PONGS, MAX_RESPONSE, Deflate, Handshake, WebSocket, mask

# The key and the answer of RFC 6455 1.3.
KEY = b"the sample nonce"
OK = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
)
NO_TAKEOVER = (
    b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
)


def handshake(compress: bool = False) -> Handshake:
    return Handshake("h:80", compress=compress, random=lambda size: KEY[:size])


def server_frame(opcode: int, payload: bytes = b"", first: int = 0x80) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((first | opcode, size))
    elif size < 65536:
        head = bytes((first | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


def read_client_frames(data: bytes) -> list[tuple[int, bytes]]:
    frames = []
    while data:
        first, second = data[0], data[1]
        assert second & 0x80, "client frames are masked"
        size, body = second & 0x7F, 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, body = int.from_bytes(data[2 : 2 + wide], "big"), 2 + wide
            assert size >= (126 if wide == 2 else 65536), "the shortest length is used"
        key = data[body : body + 4]
        payload = bytes(byte ^ key[i % 4] for i, byte in enumerate(data[body + 4 : body + 4 + size]))
        frames.append((first, payload))
        data = data[body + 4 + size :]
    return frames


def receive(chunks: list[bytes], websocket: WebSocket | None = None) -> bytes:
    websocket = websocket or WebSocket()
    received = []
    for chunk in chunks:
        received += websocket.feed(chunk)
        while websocket.pending:
            received += websocket.feed(b"")
    return b"".join(received)


# --- handshake


def test_request() -> None:
    request = Handshake("example.org", "/a?b=c", [("Authorization", "Basic x")], random=lambda n: KEY).request
    assert request == (
        b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Basic x\r\n\r\n"
    )
    assert NO_TAKEOVER in handshake(compress=True).request


def test_every_request_has_its_own_key() -> None:
    assert Handshake("h").request != Handshake("h").request


def test_answer_at_every_split_point() -> None:
    answer = OK + b"\r\n" + server_frame(2, b"INFO {}\r\n")
    head = len(OK) + 2
    for at in range(len(answer) + 1):
        shake = handshake()
        websocket = shake.feed(answer[:at])
        assert (websocket is None) == (at < head)
        if websocket is None:
            websocket = shake.feed(answer[at:])
            assert websocket is not None
            assert receive([b""], websocket) == b"INFO {}\r\n"
        else:
            assert receive([b"", answer[at:]], websocket) == b"INFO {}\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101\r\nupgrade: WebSocket\r\nCONNECTION: keep-alive, upgrade\r\n"
        b"sec-websocket-accept:s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        OK + b"Server: nginx\r\nX: \xff\r\n\r\n",
    ],
)
def test_other_good_answers(answer: bytes) -> None:
    assert handshake().feed(answer) is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"INFO {}\r\n",
        b"\x15\x03\x01",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 1010\r\n\r\n",
        b"HTTP/2 101\r\n\r\n",
        OK.replace(b"s3p", b"s3q") + b"\r\n",
        OK.replace(b"Upgrade: websocket\r\n", b"") + b"\r\n",
        OK.replace(b"Connection: Upgrade\r\n", b"") + b"\r\n",
        OK.replace(b"Connection: Upgrade", b"Connection: close") + b"\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Sec-WebSocket-Protocol: x\r\n\r\n",
        OK + NO_TAKEOVER + b"\r\n",
        OK + b"Sec-WebSocket-Accept: twice\r\n\r\n",
    ],
)
def test_bad_answers(answer: bytes) -> None:
    with pytest.raises(WebSocketError):
        handshake().feed(answer)


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (b"permessage-deflate", True),
        (b"permessage-deflate; server_no_context_takeover", True),
        (b"permessage-deflate;server_max_window_bits=10", True),
        (b"permessage-deflate; client_max_window_bits=10", False),
        (b"permessage-deflate, x-other", False),
        (b"x-webkit-deflate-frame", False),
        (b"", False),
    ],
)
def test_extensions(value: bytes, good: bool) -> None:
    answer = OK + b"Sec-WebSocket-Extensions: " + value + b"\r\n\r\n"
    if good:
        assert handshake(compress=True).feed(answer) is not None
    else:
        with pytest.raises(WebSocketError):
            handshake(compress=True).feed(answer)


def test_endless_answer() -> None:
    shake = handshake()
    with pytest.raises(LimitExceeded):
        for _ in range(MAX_RESPONSE):
            assert shake.feed(b"HTTP/1.1 101 " if not shake._received else b"x" * 100) is None


@pytest.mark.parametrize("host", ["", "a b", "a\r\nX: 1", "é", "a\n"])
def test_bad_hosts(host: str) -> None:
    with pytest.raises(InvalidArgument):
        Handshake(host)


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a\r\nX: 1", "/é", "/\n"])
def test_bad_paths(path: str) -> None:
    with pytest.raises(InvalidArgument):
        Handshake("h", path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "v"),
        ("a b", "v"),
        ("a:", "v"),
        ("a\n", "v"),
        ("K", "a\r\nInjected: 1"),
        ("K", "a\n"),
        ("K", "\x00"),
        ("K", "日"),
        ("Host", "x"),
        ("sec-websocket-key", "x"),
        ("UPGRADE", "x"),
        ("K", 7),
    ],
)
def test_bad_request_headers(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as info:
        Handshake("h", headers=[(name, value)])
    assert "Injected" not in str(info.value)


# --- frames


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 126, 65535, 65536, 70_001])
def test_our_frames(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert read_client_frames(WebSocket().frame(data)) == [(0x82, data)]


def test_every_frame_has_its_own_mask() -> None:
    assert WebSocket().frame(b"x" * 100) != WebSocket().frame(b"x" * 100)


@given(st.binary(max_size=40), st.binary(min_size=4, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mask(data: bytes, key: bytes) -> None:
    assert mask(data, key) == bytes(byte ^ key[i % 4] for i, byte in enumerate(data))
    assert mask(mask(data, key), key) == data


FRAMES = (
    server_frame(2, b"INFO {}\r\n")
    + server_frame(9, b"are you there")
    + server_frame(2, b"MSG a 1 200\r\n", first=0)
    + server_frame(0, b"", first=0)
    + server_frame(10)
    + server_frame(0, b"x" * 200)
    + server_frame(2)
    + server_frame(9)
    + server_frame(2, b"\r\nPING\r\n")
)
CONTENT = b"INFO {}\r\nMSG a 1 200\r\n" + b"x" * 200 + b"\r\nPING\r\n"


def test_every_split_point() -> None:
    for at in range(len(FRAMES) + 1):
        websocket = WebSocket()
        assert receive([FRAMES[:at], FRAMES[at:]], websocket) == CONTENT
        assert read_client_frames(websocket.outgoing()) == [(0x8A, b"are you there"), (0x8A, b"")]
        assert websocket.outgoing() == b""


def test_byte_by_byte() -> None:
    assert receive([FRAMES[i : i + 1] for i in range(len(FRAMES))]) == CONTENT


def test_payload_is_handed_on_as_it_comes() -> None:
    websocket = WebSocket()
    frame = server_frame(2, b"x" * 70_000)
    assert websocket.feed(frame[:20]) == [b"x" * 10]
    assert websocket.feed(frame[20:30]) == [b"x" * 10]


@pytest.mark.parametrize(
    ("payload", "code", "reason", "answer"),
    [
        (b"", 1005, "", b""),
        (b"\x03\xe8", 1000, "", b"\x03\xe8"),
        (b"\x03\xf0going away \xff", 1008, "going away \ufffd", b"\x03\xf0"),
    ],
)
def test_close_by_the_server(payload: bytes, code: int, reason: str, answer: bytes) -> None:
    websocket = WebSocket()
    assert receive([server_frame(2, b"a") + server_frame(8, payload) + b"whatever"], websocket) == b"a"
    assert websocket.closed
    assert (websocket.close_code, websocket.close_reason) == (code, reason)
    assert read_client_frames(websocket.outgoing()) == [(0x88, answer)]
    assert websocket.feed(b"more") == []


def test_close_by_us() -> None:
    assert read_client_frames(WebSocket().close()) == [(0x88, b"\x03\xe8")]
    ((_, payload),) = read_client_frames(WebSocket().close(1001, "x" * 200))
    assert payload == b"\x03\xe9" + b"x" * 123


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\x81abcdx", 1002),
        (server_frame(2, b"x", first=0xA0), 1002),
        (server_frame(2, b"x", first=0x90), 1002),
        (server_frame(2, b"x", first=0xC0), 1002),
        (server_frame(0, b"x"), 1002),
        (server_frame(2, b"x", first=0) + server_frame(2, b"x"), 1002),
        (server_frame(1, b"text"), 1003),
        (server_frame(3), 1003),
        (server_frame(11), 1002),
        (server_frame(9, b"x", first=0), 1002),
        (server_frame(9, b"x" * 126), 1002),
        (server_frame(8, b"x"), 1002),
    ],
)
def test_bad_frames(frame: bytes, code: int) -> None:
    for chunks in ([frame], [frame[i : i + 1] for i in range(len(frame))]):
        websocket = WebSocket()
        with pytest.raises(WebSocketError) as info:
            receive(chunks, websocket)
        assert info.value.code == code
        with pytest.raises(WebSocketError):
            websocket.feed(server_frame(2, b"x"))


def test_bytes_before_an_error_are_on_the_error() -> None:
    websocket = WebSocket()
    with pytest.raises(WebSocketError) as info:
        websocket.feed(server_frame(2, b"good") + server_frame(1, b"bad"))
    assert info.value.events == [b"good"]


def test_frame_limit() -> None:
    for size in (1001, 2**40, 2**64 - 1):
        with pytest.raises(LimitExceeded):
            WebSocket(max_frame=1000).feed(b"\x82\x7f" + size.to_bytes(8, "big"))
    assert WebSocket(max_frame=1000).feed(b"\x82\x7f" + (1000).to_bytes(8, "big")) == []


# --- compression


def inflate(data: bytes) -> bytes:
    return zlib.decompress(data + b"\x00\x00\xff\xff\x03\x00", -15)


def test_our_compressed_frames() -> None:
    websocket = WebSocket(Deflate())
    ((first, payload),) = read_client_frames(websocket.frame(b"abc" * 100))
    assert (first, inflate(payload)) == (0xC2, b"abc" * 100)
    assert len(payload) < 50
    assert read_client_frames(websocket.frame(b"x" * 64)) == [(0x82, b"x" * 64)]


@pytest.mark.parametrize("keep_context", [False, True])
def test_compressed_messages_at_every_split_point(keep_context: bool) -> None:
    deflater = zlib.compressobj(wbits=-15)
    stream = expected = b""
    for text in (b"hello hello hello", b"", b"hello hello again"):
        if not keep_context:
            deflater = zlib.compressobj(wbits=-15)
        body = (deflater.compress(text) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
        stream += server_frame(2, body[:3], first=0x40) + server_frame(9) + server_frame(0, body[3:])
        stream += server_frame(2, b"plain")
        expected += text + b"plain"
    for at in range(len(stream) + 1):
        websocket = WebSocket(Deflate(keep_context))
        assert receive([stream[:at], stream[at:]], websocket) == expected


def test_a_final_deflate_block() -> None:
    deflater = zlib.compressobj(wbits=-15)
    body = deflater.compress(b"ended") + deflater.flush() + b"\x00"  # RFC 7692 7.2.3.4
    assert receive([server_frame(2, body, first=0xC0)] * 2, WebSocket(Deflate(True))) == b"endedended"


def test_broken_compressed_data() -> None:
    with pytest.raises(WebSocketError) as info:
        receive([server_frame(2, b"\xff" * 20, first=0xC0)], WebSocket(Deflate()))
    assert info.value.code == 1007


def test_decompression_bomb() -> None:
    bomb = server_frame(2, Deflate().compress(bytes(20_000_000)), first=0xC0)
    assert len(bomb) < 65536
    websocket = WebSocket(Deflate(), max_inflated=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            receive([bomb], websocket)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("frames", [1, 400])
def test_what_is_inflated_comes_in_pieces(frames: int) -> None:
    """100 MiB in one frame, or in hundreds of small ones in one chunk: never more than a piece at once."""
    total = 100 * 1024 * 1024
    bomb = server_frame(2, Deflate().compress(bytes(total // frames)), first=0xC0) * frames + server_frame(2, b"after")
    websocket = WebSocket(Deflate())
    came, pieces = 0, [websocket.feed(bomb)]
    while pieces:
        piece = b"".join(pieces.pop())
        assert len(piece) <= INFLATE_PIECE + 5
        came += len(piece)
        if websocket.pending:
            pieces.append(websocket.feed(b""))
    assert came == total + 5
    assert piece.endswith(b"after")
    assert websocket.feed(server_frame(2, b"more")) == [b"more"]


@given(st.lists(st.integers(0, 3 * 256 * 1024), max_size=4), st.integers(1, 70_000), st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_add_up_to_what_was_compressed(sizes: list[int], step: int, keep_context: bool) -> None:
    stream = expected = b""
    deflater = zlib.compressobj(wbits=-15)
    for number, size in enumerate(sizes):
        text = random.Random(number).randbytes(size // 2) + bytes(size - size // 2)
        if not keep_context:
            deflater = zlib.compressobj(wbits=-15)
        stream += server_frame(2, (deflater.compress(text) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4], first=0xC0)
        expected += text
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert receive(chunks, WebSocket(Deflate(keep_context))) == expected


def test_of_many_pings_the_last_are_answered() -> None:
    websocket = WebSocket()
    for number in range(1000):
        assert websocket.feed(server_frame(9, b"%d" % number) * 10) == []
    assert [payload for _, payload in read_client_frames(websocket.outgoing())][-MAX_PONGS:] == (
        [b"%d" % (999 - number // 10) for number in range(MAX_PONGS)][::-1]
    )
    assert websocket.outgoing() == b""


def test_the_inflated_limit_is_for_all_fragments_together() -> None:
    body = Deflate().compress(bytes(3000))
    fragments = [server_frame(2, body[:8], first=0x40), server_frame(0, body[8:])]
    assert len(receive(fragments, WebSocket(Deflate(), max_inflated=3000))) == 3000
    with pytest.raises(LimitExceeded):
        receive(fragments, WebSocket(Deflate(), max_inflated=2999))


@given(st.lists(st.binary(max_size=30), max_size=6))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_garbage_is_a_protocol_error_and_nothing_else(chunks: list[bytes]) -> None:
    for deflate in (None, Deflate()):
        websocket = WebSocket(deflate, max_frame=10_000, max_inflated=10_000)
        try:
            receive(chunks, websocket)
        except ProtocolError:
            pass
        websocket.outgoing()
    try:
        handshake().feed(b"HTTP/1.1 101" + b"".join(chunks))
    except ProtocolError:
        pass
