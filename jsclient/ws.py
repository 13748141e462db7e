"""Websocket around any byte stream, on the framing of `protocol.websocket`."""

from __future__ import annotations

from collections.abc import Mapping

from jsclient.tcp import Transport


class WebSocketTransport(Transport):
    """Binary frames over another transport. Made by `start_websocket`."""


def start_websocket(
    transport: Transport,
    host: str,
    port: int,
    path: str,
    headers: Mapping[str, str],
    *,
    compression: bool,
    timeout: float | None,
) -> WebSocketTransport:
    """Upgrade `transport` to websocket; blocks until the server has agreed."""
    raise OSError("websocket is not available yet")
