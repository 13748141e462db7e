"""Connecting a socket: each address of a name gets its share of the time, and the attempt can be given up."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

from jsclient import handlers
from jsclient._transport import resolving
from jsclient._transport.tcp import TcpTransport, format_address, wrap_socket
from jsclient.durations import MOST_POLLED, Deadline

CONNECT_SLICE: Final = 0.1  # seconds between two looks at `abandoned` while a connection is being made

SocketFactory = Callable[[str, int, float | None], socket.socket]


def connect_tcp(
    host: str,
    port: int,
    *,
    timeout: float | None,
    local_address: str | tuple[str, int] | None = None,
    socket_factory: SocketFactory | None = None,
    abandoned: threading.Event | None = None,  # noqa: TID251
    randomize: bool = False,
) -> TcpTransport:
    """Connect to the first address of `host` that answers.

    Every address gets its share of the rest of `timeout` (seconds, name resolution included), in the order of the
    resolver or, with `randomize`, in random order. `socket_factory(host, port, timeout)` replaces all of this and
    returns a connected socket. Setting `abandoned` from another thread ends the attempt within 0.1 s. Raises OSError
    with the reason of each address.
    """
    deadline = Deadline(timeout)
    if socket_factory is not None:
        return wrap_socket(handlers.ran(socket_factory(host, port, timeout)), format_address(host, port))
    addresses = resolving.addresses(host, port, deadline, abandoned)
    if randomize:
        random.shuffle(addresses)
    failures: list[tuple[str, OSError]] = []
    for index, (family, kind, proto, _, address) in enumerate(addresses):
        left = deadline.remaining()
        share = None if left is None else left / (len(addresses) - index)
        peer = format_address(str(address[0]), int(address[1]))
        try:
            sock = _connect_one(family, kind, proto, address, share, local_address, abandoned)
        except OSError as error:
            failures.append((peer, error))
            if abandoned is not None and abandoned.is_set():
                break
        else:
            return wrap_socket(sock, peer)
    raise _connect_error(host, port, failures)


def _connect_error(host: str, port: int, failures: list[tuple[str, OSError]]) -> OSError:
    if not failures:
        return OSError(errno.EADDRNOTAVAIL, f"{format_address(host, port)} has no address")
    text = "; ".join(f"{peer}: {error.strerror or error}" for peer, error in failures)
    number = failures[-1][1].errno
    return OSError(number, text) if number is not None else OSError(text)


def _connect_one(
    family: int,
    kind: int,
    proto: int,
    address: tuple[object, ...],
    timeout: float | None,
    local_address: str | tuple[str, int] | None,
    abandoned: threading.Event | None,  # noqa: TID251
) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        if local_address is not None:
            sock.bind((local_address, 0) if isinstance(local_address, str) else local_address)
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
        _wait_connected(sock, Deadline(timeout), abandoned)
        if sock.getsockname() == sock.getpeername():
            # With the server down, a port of the ephemeral range can connect to itself: there is no server.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except BaseException:
        sock.close()
        raise
    return sock


def _wait_connected(sock: socket.socket, deadline: Deadline, abandoned: threading.Event | None) -> None:  # noqa: TID251
    while True:
        if abandoned is not None and abandoned.is_set():
            raise OSError(errno.ECANCELED, "the attempt was given up")
        if _writable(sock, deadline.at_most(CONNECT_SLICE)):
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            return
        if deadline.expired():
            raise TimeoutError(errno.ETIMEDOUT, "no answer in time")


def _writable(sock: socket.socket, timeout: float) -> bool:
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(min(timeout * 1000, MOST_POLLED)))
    _, writable, failed = select.select([], [sock], [sock], timeout)  # Windows reports failures as exceptional
    return bool(writable or failed)
