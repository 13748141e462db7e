"""A scripted server that sends exact bytes, for cases that a real server does not produce. Standard library only.

def script(client):
    client.send(info_line(max_payload=100))
    client.expect(b"CONNECT ")
    client.send(b"PONG\r\n")
    client.close()

with FakeServer(script) as fake:
    connect(fake.url)
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from jsclient.threads import Thread

#: Seconds for which a script waits for expected bytes before it counts as failed.
EXPECT_TIMEOUT = 10.0
#: Waits on sockets are sliced, so close() ends every script quickly.
SLICE = 0.1


class ScriptFailed(AssertionError):
    """The client did not do what the script expected. The text has the bytes that it sent instead."""


class _Stopped(Exception):
    """The fake server is being closed while a script waits."""


Script = Callable[["FakeClient"], Any]


def info_line(**fields: Any) -> bytes:
    """An INFO line with the fields that every server sends. `fields` replaces or adds some (None removes one)."""
    info: dict[str, Any] = {
        "server_id": "FAKE",
        "server_name": "fake",
        "version": "2.14.0",
        "proto": 1,
        "go": "go1",
        "host": "127.0.0.1",
        "port": 4222,
        "headers": True,
        "max_payload": 1048576,
        "client_id": 1,
    }
    info.update(fields)
    kept = {name: value for name, value in info.items() if value is not None}
    return b"INFO " + json.dumps(kept).encode() + b"\r\n"


class FakeClient:
    """One accepted connection, as a script sees it. Used by the script's thread only.

    Attributes:
        number: The number of the connection; the first one is 0.
        socket: Its end of the connection.
        received: All bytes that the client has sent so far.
        taken: Number of these bytes that `expect` has returned.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, server: FakeServer, sock: socket.socket, number: int) -> None:
        self.number = number
        self.socket = sock
        self.received: bytearray = bytearray()
        self._server = server
        self.taken: int = 0
        sock.settimeout(SLICE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send exactly these bytes. Ends the script quietly if the client is gone."""
        view = memoryview(data)
        while view:
            self._check()
            try:
                view = view[self.socket.send(view) :]
            except TimeoutError:
                continue
            except OSError:
                raise _Stopped from None

    def fill(self) -> bool:
        """Read once. False if the client has closed."""
        self._check()
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return True
        except OSError:
            return False
        self.received += data
        return bool(data)

    def _check(self) -> None:
        if self._server.stopping.is_set():
            raise _Stopped

    def expect(self, data: bytes, timeout: float = EXPECT_TIMEOUT) -> bytes:
        """All bytes from the last expectation up to and including `data`. Raises ScriptFailed if it does not come."""
        slices = max(1, int(timeout / SLICE))
        while True:
            at = self.received.find(data, self.taken)
            if at >= 0:
                start, self.taken = self.taken, at + len(data)
                return bytes(self.received[start : self.taken])
            before = len(self.received)
            alive = self.fill()
            slices -= len(self.received) == before
            if not alive or slices <= 0:
                tail = bytes(self.received[self.taken :])[-500:]
                why = "it did not come in time" if alive else "the client closed"
                raise ScriptFailed(f"expected {data!r} from client {self.number}, but {why}; it sent {tail!r}")

    def line(self, timeout: float = EXPECT_TIMEOUT) -> bytes:
        """The next line with its line end."""
        return self.expect(b"\r\n", timeout)

    def handshake(self, **info: Any) -> dict[str, Any]:
        """INFO, then CONNECT and PING of the client, then PONG; returns the decoded CONNECT."""
        self.send(info_line(**info))
        self.expect(b"CONNECT ")
        options: dict[str, Any] = json.loads(self.line())
        self.expect(b"PING\r\n")
        self.send(b"PONG\r\n")
        return options

    def hold(self) -> None:
        """Keep reading until the client closes or the fake server ends."""
        while self.fill():
            pass

    def close(self) -> None:
        """Close with a FIN (the kernel makes it a RST if unread bytes are left)."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def reset(self) -> None:
        """Close with a RST."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class FakeServer:
    """Plays `scripts[n]` to the n-th connection, and the last one to all further connections. Each has its own thread.

    A connection is closed when its script ends. If a script failed, `close()` and the end of `with` raise ScriptFailed
    (unless the block raises itself). `errors` has the failures earlier. `FakeServer(FakeClient.hold)` never answers.

    `port` is the port to listen on; 0 (default) chooses one.

    Attributes:
        scripts: The scripts as given.
        errors: The failures of scripts so far.
        clients: The connections so far, in order.
        port: The port that it listens on.
        url: Its address.
    """

    def __init__(self, *scripts: Script, port: int = 0) -> None:
        if not scripts:
            raise ValueError("a fake server needs at least one script")
        self.scripts = scripts
        self.errors: list[BaseException] = []
        self.clients: list[FakeClient] = []
        self.stopping: threading.Event = threading.Event()
        """For layers."""
        self._threads: list[Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._listener.settimeout(SLICE)
        self.port: int = self._listener.getsockname()[1]
        self.url: str = f"nats://127.0.0.1:{self.port}"
        self._acceptor = Thread(f"jsclient-testing-fake-{self.port}", self._accept)

    def start(self) -> FakeServer:
        """Begin to listen."""
        self._acceptor.start()
        return self

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            client = FakeClient(self, sock, len(self.clients))
            self.clients.append(client)
            name = f"jsclient-testing-fake-{self.port}-{client.number}"
            thread = Thread(name, self._serve, client)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: FakeClient) -> None:
        try:
            self.scripts[min(client.number, len(self.scripts) - 1)](client)
        except _Stopped:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            client.close()

    def close(self) -> None:
        """End all scripts and connections, join the threads, and raise the failure of a script if there is one."""
        self.stopping.set()
        # shutdown() wakes a thread in accept or recv; close() does not, and would free a number still in use.
        for sock in [self._listener, *(client.socket for client in self.clients)]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)
        if self._acceptor.began:
            self._acceptor.join(5)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()
        if self.errors:
            error, self.errors = self.errors[0], []
            raise error

    def __enter__(self) -> FakeServer:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(BaseException):
            self.close()
