"""What went over the links of the clients, as the proxies saw it: the witness when client and server disagree."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from jsclient.testing.proxy import Direction, Tap

#: The line of a publish up to its end, looked for backwards from the payload.
PUBLISH = re.compile(rb"\bH?PUB (\S+) (\S+)((?: \d+)+)\r\n")
#: The condition of a write, before its number.
EXPECTS = rb"Nats-Expected-Last(?:-Subject)?-Sequence: *"
#: No header block of ours is longer.
FAR = 2048


class Wire:
    """The bytes of every connection and direction, in the order in which they passed."""

    def __init__(self) -> None:
        self._flows: dict[tuple[int, int, Direction], bytearray] = {}
        self._lock = threading.Lock()
        self.began = time.monotonic()

    def tap(self, node: int) -> Tap:
        """For the proxy before server `node`."""

        def take(link: int, direction: Direction, data: bytes) -> None:
            with self._lock:
                self._flows.setdefault((node, link, direction), bytearray()).extend(data)

        return take

    def publishes(self, value: bytes) -> list[tuple[int, int, bytes]]:
        """(node, link, reply subject) of every publish with this payload, one for each copy that was sent."""
        found = []
        for (node, link, direction), data in list(self._flows.items()):
            if direction != "up":
                continue
            for place in _places(data, value + b"\r\n"):
                lines = list(PUBLISH.finditer(bytes(data[max(0, place - FAR) : place])))
                found.append((node, link, lines[-1][2] if lines else b"?"))
        return found

    def answers(self, value: bytes) -> list[list[bytes]]:
        """For every copy that was sent, what the server answered to it (on any link: an answer may come later)."""
        downs = [bytes(data) for (_, _, direction), data in list(self._flows.items()) if direction == "down"]
        return [[answer for data in downs for answer in _answers(data, reply)] for _, _, reply in self.publishes(value)]

    def asked(self, key: str, expected: int | None) -> bool:
        """Whether a write of this key went over the wire with that last sequence as its condition; None: with any."""
        number = rb"\d+" if expected is None else b"%d" % expected
        bound = rb"\bHPUB \S*" + re.escape(key.encode()) + rb" [^\r]*\r\n(?:[^\r]+\r\n)*?" + EXPECTS + number + rb"\r\n"
        flows = [bytes(data) for (_, _, direction), data in list(self._flows.items()) if direction == "up"]
        return any(re.search(bound, data) for data in flows)

    def tell(self, value: bytes) -> str:
        """The same as text."""
        copies = self.answers(value)
        said = [b" and ".join(answers).decode(errors="replace") or "nothing" for answers in copies]
        return f"{len(copies)} copies were sent; answered: " + "; ".join(said)


def _places(data: bytes | bytearray, what: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(what), data)]


def _answers(data: bytes, reply: bytes) -> list[bytes]:
    found = []
    # 2.9 leaves two spaces where a reply subject would stand.
    for match in re.finditer(rb"\bH?MSG " + re.escape(reply) + rb" +\S+ +(?:\S+ +)??((?:\d+ +)?\d+)\r\n", data):
        size = int(match[1].split()[-1])
        found.append(data[match.end() : match.end() + size].strip())
    return found


Evidence = Callable[[bytes], str]
