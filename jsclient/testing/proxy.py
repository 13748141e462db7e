"""A TCP proxy between a client and a server that breaks things on command. Standard library only.

with NatsServer() as server, Proxy(server.port) as proxy:
    nc = connect(proxy.url)
    proxy.stall("down")              # the client hears nothing any more
    proxy.resume()
    proxy.cut_after(1000, "up")      # in the middle of whatever the client sends then
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from jsclient.threads import Thread

Direction = Literal["up", "down", "both"]  #: "up" is from client to server, "down" from server to client
Tap = Callable[[int, Direction, bytes], None]  #: gets the connection's number (1, 2, ...), "up" or "down", bytes

#: Waits on sockets are sliced, so a cut takes effect quickly even without traffic.
SLICE = 0.05
CHUNK = 65536


class Flow:
    """The faults and counters of one direction, for all connections of a proxy. Guarded by the proxy's condition.

    Attributes:
        bytes: Number of bytes forwarded so far.
        stalled: True while nothing passes.
        delay: Seconds that every chunk is under way.
        rate: Maximum of bytes per second; 0 means unlimited.
        chunk: Maximum of bytes per send.
        cut_at: Value of `bytes` at which the connection is cut.
        cut_reset: True if that cut is an RST.
        flips: Value of `bytes` -> mask that this byte is XORed with.
        mutate: Changes every chunk; None leaves them unchanged.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.stalled = False
        self.delay: float = 0.0
        self.rate: float = 0.0
        self.chunk = CHUNK
        self.cut_at: int | None = None
        self.cut_reset = False
        self.flips: dict[int, int] = {}
        self.mutate: Callable[[bytes], bytes] | None = None


class _Link:
    """One client connection and its server connection."""

    def __init__(self, client: socket.socket, server: socket.socket, number: int) -> None:
        self.client = client
        self.server = server
        self.number = number
        self.reset = False
        self.dead = False
        self.ending = False
        self.pumps = 2
        self.gone = threading.Event()
        for sock in (client, server):
            sock.settimeout(SLICE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self, reset: bool) -> None:
        """Wake both pumps; the last one closes. shutdown comes before close, which alone does not wake a recv."""
        if self.ending:
            return
        self.reset = reset
        self.ending = True
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in (self.client, self.server):
            if self.reset:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.gone.set()


class Proxy:
    """Forwards `port` (0 chooses one) to `target_port`. Every fault acts on live and on later connections.

    Methods may be called from any thread. `up` and `down` are the two `Flow`s with their byte counters.

    `target_host` is the host of the target (127.0.0.1).

    Attributes:
        target: Host and port behind it.
        up: The flow to the server.
        down: The flow to the client.
        accepted: Number of connections accepted so far.
        cuts: Number of connections cut on command so far.
        tap: A function that gets every piece before it is forwarded; it runs on the proxy's threads.
        port: The port that it listens on.
        url: Its address.

    Options of several methods:
        direction: "up" (from the client to the server), "down", or "both".
        reset: True cuts by RST, which loses data under way. Default False: by FIN.
    """

    def __init__(self, target_port: int, *, target_host: str = "127.0.0.1", port: int = 0) -> None:
        self.target: tuple[str, int] = (target_host, target_port)
        self.up: Flow = Flow()
        self.down: Flow = Flow()
        self.accepted: int = 0
        self.cuts: int = 0
        self.tap: Tap | None = None
        self._changed = threading.Condition()
        self._links: set[_Link] = set()
        self._threads: list[Thread] = []
        self._closed = False
        self._refusing = False
        self._listener = self._listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.url: str = f"nats://127.0.0.1:{self.port}"
        self._acceptor: Thread | None = None

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        listener.settimeout(SLICE)
        return listener

    # --- faults -----------------------------------------------------------------------------------------

    def _flows(self, direction: Direction) -> list[Flow]:
        flows = {"up": [self.up], "down": [self.down], "both": [self.up, self.down]}
        return flows[direction]

    def cut(self, *, reset: bool = False) -> int:
        """Cut every live connection now (FIN, or RST). Returns their number when they are closed."""
        with self._changed:
            links = list(self._links)
        for link in links:
            link.end(reset)
        with self._changed:
            self.cuts += len(links)
            self._changed.notify_all()
        for link in links:
            link.gone.wait(5)
        return len(links)

    def cut_after(self, count: int, direction: Direction = "down", *, reset: bool = False) -> None:
        """Cut the connection that forwards the `count`-th byte from now in that direction, right after that byte."""
        with self._changed:
            for flow in self._flows(direction):
                flow.cut_at, flow.cut_reset = flow.bytes + count, reset

    def stall(self, direction: Direction = "both") -> None:
        """Stop forwarding, like a network that lost its route. Both ends still consider the connection alive."""
        with self._changed:
            for flow in self._flows(direction):
                flow.stalled = True

    def half_open(self) -> int:
        """Let every live connection go dead silently, as behind a firewall that has forgotten it.

        All traffic on them stops for good, and neither end gets a notice. Later connections work. Returns the number of
        dead connections.
        """
        with self._changed:
            for link in self._links:
                link.dead = True
            return len(self._links)

    def resume(self, direction: Direction = "both") -> None:
        """End `stall()`, and forward the bytes that were held back."""
        with self._changed:
            for flow in self._flows(direction):
                flow.stalled = False
            self._changed.notify_all()

    def delay(self, seconds: float, direction: Direction = "both") -> None:
        """Let every chunk arrive `seconds` later (0 ends it), as over a long line with many chunks under way."""
        with self._changed:
            for flow in self._flows(direction):
                flow.delay = seconds

    def throttle(self, bytes_per_second: float, direction: Direction = "both") -> None:
        """Forward at most `bytes_per_second` (0 ends it)."""
        with self._changed:
            for flow in self._flows(direction):
                flow.rate = bytes_per_second

    def limit(self, chunk: int = CHUNK, direction: Direction = "both") -> None:
        """Forward at most `chunk` bytes per send, so the receiver gets small pieces."""
        if chunk < 1:
            raise ValueError("a chunk holds at least one byte")
        with self._changed:
            for flow in self._flows(direction):
                flow.chunk = chunk

    def corrupt(self, offset: int = 0, direction: Direction = "down", *, mask: int = 0xFF) -> None:
        """XOR the byte `offset` bytes from now with `mask`."""
        with self._changed:
            for flow in self._flows(direction):
                flow.flips[flow.bytes + offset] = mask

    def mutate(self, change: Callable[[bytes], bytes] | None, direction: Direction = "down") -> None:
        """Pass every chunk through `change` (None ends it), as a man in the middle. It runs on the proxy's threads."""
        with self._changed:
            for flow in self._flows(direction):
                flow.mutate = change

    def refuse(self) -> None:
        """Take the port down. This cuts live connections and refuses new ones until `accept()`."""
        with self._changed:
            self._refusing = True
        self._stop_accepting()
        self.cut()

    def accept(self) -> None:
        """End `refuse()` on the same port."""
        with self._changed:
            if not self._refusing:
                return
            self._refusing = False
        self._listener = self._listen(self.port)
        self.start()

    def heal(self) -> None:
        """End all faults, except cuts that have happened and connections that are half open."""
        with self._changed:
            for flow in self._flows("both"):
                flow.stalled, flow.delay, flow.rate, flow.chunk = False, 0.0, 0.0, CHUNK
                flow.cut_at, flow.mutate = None, None
                flow.flips.clear()
            self._changed.notify_all()
        self.accept()

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        with self._changed:
            return len(self._links)

    # --- threads ----------------------------------------------------------------------------------------

    def start(self) -> Proxy:
        """Begin to listen."""
        name = f"jsclient-testing-proxy-{self.port}"
        self._acceptor = Thread(name, self._accept, self._listener)
        self._acceptor.start()
        return self

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed and not self._refusing:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, timeout=5)
            except OSError:
                client.close()
                continue
            self._join_ended()
            self._open(_Link(client, server, self.accepted + 1))

    def _open(self, link: _Link) -> None:
        with self._changed:
            self.accepted += 1
            self._links.add(link)
        for word, flow, source, sink in (
            ("up", self.up, link.client, link.server),
            ("down", self.down, link.server, link.client),
        ):
            name = f"jsclient-testing-proxy-{self.port}-{self.accepted}-{word}"
            thread = Thread(name, self._pump, link, flow, source, sink)
            self._threads.append(thread)
            thread.start()

    def _join_ended(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _pump(self, link: _Link, flow: Flow, source: socket.socket, sink: socket.socket) -> None:
        line: deque[tuple[float, bytes]] = deque()  # (when it arrives, chunk)
        try:
            while not link.ending and self._wait_open(link, flow):
                wait = line[0][0] - time.monotonic() if line else SLICE
                if wait <= 0:
                    if not self._forward(link, flow, sink, line.popleft()[1]):
                        break
                    continue
                if line and not select.select([source], [], [], min(wait, SLICE))[0]:
                    continue
                try:
                    data = source.recv(CHUNK)
                except TimeoutError:
                    continue
                if not data and link.dead:
                    continue
                if not data:
                    self._drain(link, flow, sink, line)
                    break
                line.append((time.monotonic() + flow.delay if flow.delay else 0.0, data))
        except (OSError, ValueError):  # ValueError: select of a socket that was closed
            pass
        finally:
            link.end(reset=False)
            with self._changed:
                link.pumps -= 1
                last = link.pumps == 0
                if last:
                    self._links.discard(link)
            if last:
                link.close()

    def _drain(self, link: _Link, flow: Flow, sink: socket.socket, line: deque[tuple[float, bytes]]) -> None:
        """The source has ended. Deliver the chunks that are still under way."""
        for due, data in line:
            if not self._pause(link, due - time.monotonic()) or not self._forward(link, flow, sink, data):
                return

    def _wait_open(self, link: _Link, flow: Flow) -> bool:
        """Wait while the direction is stalled, or the connection dead. False if the connection ends."""
        with self._changed:
            while (flow.stalled or link.dead) and not link.ending and not self._closed:
                self._changed.wait(SLICE)
        return not link.ending and not self._closed

    def _pause(self, link: _Link, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if link.ending or self._closed:
                return False
            with self._changed:
                self._changed.wait(left)
        return True

    def _forward(self, link: _Link, flow: Flow, sink: socket.socket, data: bytes) -> bool:
        """Send one received chunk with the current faults. False if the connection ends here."""
        if flow.mutate is not None:
            data = flow.mutate(data)
        view = memoryview(data)
        while view:
            if not self._wait_open(link, flow):
                return False
            piece, cut = self._next_piece(flow, view)
            if piece and self.tap is not None:
                self.tap(link.number, "up" if flow is self.up else "down", piece)
            if piece and not self._send(link, sink, piece):
                return False
            view = view[len(piece) :]
            if cut:
                link.end(flow.cut_reset)
                return False
            if flow.rate and not self._pause(link, len(piece) / flow.rate):
                return False
        return True

    def _next_piece(self, flow: Flow, view: memoryview) -> tuple[bytes, bool]:
        """The piece to send now, counted and with its bytes flipped; and True if the connection is cut after it."""
        size = min(len(view), flow.chunk)
        if flow.rate:
            size = min(size, max(1, int(flow.rate * SLICE)))
        with self._changed:
            cut = flow.cut_at is not None and flow.cut_at <= flow.bytes + size
            if flow.cut_at is not None and cut:
                size = max(0, flow.cut_at - flow.bytes)
                flow.cut_at = None
                self.cuts += 1
            piece = bytearray(view[:size])
            for place in [place for place in flow.flips if flow.bytes <= place < flow.bytes + size]:
                piece[place - flow.bytes] ^= flow.flips.pop(place)
            flow.bytes += size
        return bytes(piece), cut

    def _send(self, link: _Link, sink: socket.socket, piece: bytes) -> bool:
        view = memoryview(piece)
        while view:
            if link.ending or self._closed:
                return False
            try:
                view = view[sink.send(view) :]
            except TimeoutError:
                continue
        return True

    # --- the end ----------------------------------------------------------------------------------------

    def _stop_accepting(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RD)
        if self._acceptor is not None:
            self._acceptor.join(10)
        self._listener.close()

    def close(self) -> None:
        """Cut everything and join the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stop_accepting()
        for link in list(self._links):
            link.end(reset=False)
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()
