"""Servers for the pytest plugin that are not private processes: a server that exists already, or one in a container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from jsclient.testing.find import ServerNotFound, candidates, find_server, server_version
from jsclient.testing.wait import wait_until
from jsclient.urls import split_urls

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream

#: An image is pulled the first time; after that a container is ready in about a second.
CONTAINER_TIMEOUT = 120
DELETED_TIMEOUT = 1.0


class ExternalServer:
    """A server that someone else runs. It has an address, but you cannot kill, pause or configure it from here."""

    def __init__(self, url: str, *, ours: bool = False) -> None:
        first = split_urls(url)[0]
        parts = urlsplit(first if "://" in first else f"nats://{first}")
        self.url = url
        self.host: str = parts.hostname or "127.0.0.1"
        self.port: int = parts.port or 4222
        self.ours = ours  #: True for a container that was started for the tests
        self.store_dir = ""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self!r} has no {name!r}: only private servers can be controlled; "
            "run without --nats-url and --nats-container"
        )

    def __repr__(self) -> str:
        return f"<ExternalServer {self.host}:{self.port}>"  # the URL may carry a password


def server_of_version(wanted: str) -> str:
    """The path of a nats-server. With `wanted` ("2.10", "2.10.27") it is the first one whose version begins with it."""
    found = find_server() if not wanted else ""
    if found:
        return found
    seen: list[str] = []
    for place in [*named(), *candidates()]:
        try:
            version = server_version(place)
        except ServerNotFound:
            continue
        if ".".join(map(str, version[: wanted.count(".") + 1])) == wanted:
            return str(place)
        seen.append(f"{place} is {'.'.join(map(str, version))}")
    raise ServerNotFound(
        f"no nats-server {wanted} was found ({'; '.join(seen) or 'there is none'}); name one in NATS_SERVER, "
        f"or use --nats-container=nats --nats-version={wanted}"
    )


def named() -> list[Path]:
    """The program that NATS_SERVER names, if it is set."""
    return [Path(os.environ["NATS_SERVER"])] if os.environ.get("NATS_SERVER") else []


@contextlib.contextmanager
def in_container(image: str, version: str = "") -> Iterator[ExternalServer]:
    """Run `image` (with `version` as its tag, if given) and yield its address."""
    try:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy
    except ImportError:
        raise RuntimeError("--nats-container needs testcontainers: pip install 'testcontainers>=4.14'") from None
    full = f"{image.rpartition(':')[0] or image}:{version}" if version else image
    ready = LogMessageWaitStrategy("Server is ready").with_startup_timeout(CONTAINER_TIMEOUT)
    made = DockerContainer(full).with_exposed_ports(4222).with_command("-js -sd /tmp/store").waiting_for(ready)
    with made as running:
        address = f"nats://{running.get_container_host_ip()}:{running.get_exposed_port(4222)}"
        wait_until(lambda: _listens(address), CONTAINER_TIMEOUT, "the container's server does not answer")
        yield ExternalServer(address, ours=True)


def _listens(url: str) -> bool:
    """Wait for the server. The engine's proxy accepts connections before the server in the container listens, and then
    closes them."""
    import jsclient
    from jsclient import errors

    with contextlib.suppress(errors.ConnectFailed), jsclient.connect(url):
        return True
    return False


def stream_names(js: JetStream) -> set[str]:
    """The streams of the account; empty if the server runs without JetStream."""
    from jsclient import errors

    with contextlib.suppress(errors.JetStreamError):
        return set(js.stream_names())
    return set()


def forget_streams(js: JetStream, server: Any, before: set[str]) -> None:
    """Delete the streams that are not in `before`, and wait for their files to be gone.

    nats-server 2.15.1 answers a delete up to some milliseconds before it removes the files. A new stream of the same
    name that is made meanwhile may begin with the old messages.
    """
    for name in stream_names(js) - before:
        js.delete_stream(name)
        folders = list(Path(server.store_dir or "/nonexistent").glob(f"jetstream/*/streams/{name}"))
        with contextlib.suppress(TimeoutError):
            for folder in folders:
                wait_until(partial(_is_gone, folder), DELETED_TIMEOUT)


def _is_gone(folder: Path) -> bool:
    return not folder.exists()
