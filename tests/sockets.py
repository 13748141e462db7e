"""Sockets as applications hand them to `socket_factory`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import WebSocketURI

from jsclient._transport.stream import Buffer, Transport, unwritten
from jsclient.durations import Deadline


class ProxySocket(socket.socket):
    """Sends in Python code, as the sockets of packages for proxies do."""

    def send(self, *args: Any) -> int:
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        return super().sendmsg(*args)


def opened_websocket() -> ClientProtocol:
    """A websocket whose handshake is over."""
    return ClientProtocol(WebSocketURI(False, "h", 80, "/", ""), state=State.OPEN)


def mask(data: bytes, key: bytes) -> bytes:
    """XOR with the repeated key of 4 bytes."""
    size = len(data)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def write_all(transport: Transport, blocks: Sequence[Buffer], timeout: float) -> int:
    """Write blocks as the sender of a link does; returns how many bytes were left when the time was up."""
    deadline = Deadline(timeout)
    while any(blocks) or transport.unsent:
        try:
            for taken in transport.write(blocks):
                blocks = unwritten(blocks, taken)
        except BlockingIOError:
            if not timeout or not transport.wait_writable(deadline.remaining()):
                break
    return sum(map(len, blocks))
