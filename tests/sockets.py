"""Sockets as applications hand them to `socket_factory`."""

from __future__ import annotations

import socket
from typing import Any


class ProxySocket(socket.socket):
    """Sends in Python code, as the sockets of packages for proxies do."""

    def send(self, *args: Any) -> int:
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        return super().sendmsg(*args)
