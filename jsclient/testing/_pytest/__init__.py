"""A pytest plugin: `nats_server`, `jetstream`, `nats_cluster` and `fault_proxy` as fixtures.

It is installed as the module `pytest_jsclient`, and pytest finds it through its entry point. It imports nothing of
jsclient until a test asks for a fixture. So a test run without it pays nothing, and coverage measures every import. The
chapter on testing, jsclient/testing/README.md, explains the options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream
    from jsclient.testing import Cluster, NatsServer, Proxy
    from jsclient.testing.external import ExternalServer

#: option of the command line and of the ini file (with _ for -) -> its help text
OPTIONS = {
    "nats-url": "use the server at this URL instead of a private one; its streams are left as they are",
    "nats-version": "the private server must be of this version, for example 2.10; of a container, its tag",
    "nats-config": "a configuration file for the private servers",
    "nats-container": "run the server in a container of this image (testcontainers), for example nats:2",
    "nats-scope": "how long a server lives: function (the default), module or session",
}
SCOPES = ("function", "module", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nats", "NATS servers for tests (jsclient)")
    for name, text in OPTIONS.items():
        group.addoption(f"--{name}", default=None, help=text)
        parser.addini(name.replace("-", "_"), help=text, default="")


def setting(config: pytest.Config, name: str) -> str:
    """The value from the command line, else from the ini file, else ""."""
    given = config.getoption(f"--{name}")
    return str(given if given is not None else config.getini(name.replace("-", "_")))


def server_scope(fixture_name: str, config: pytest.Config) -> Any:
    """The scope of a server. External servers and containers last for the session, private ones follow `nats-scope`."""
    if fixture_name == "nats_server" and (setting(config, "nats-url") or setting(config, "nats-container")):
        return "session"
    scope = setting(config, "nats-scope") or "function"
    if scope not in SCOPES:
        raise pytest.UsageError(f"--nats-scope={scope}: it is one of {', '.join(SCOPES)}")
    return scope


def private_options(config: pytest.Config) -> dict[str, str]:
    """The arguments for private servers: the program of the wanted version, and the text of the configuration."""
    from pathlib import Path

    from jsclient.testing.external import server_of_version

    options = {"binary": server_of_version(setting(config, "nats-version"))}
    file = setting(config, "nats-config")
    if file:
        options["config"] = Path(config.rootpath, file).read_text(encoding="utf-8")
    return options


@pytest.fixture(scope=server_scope)
def nats_server(request: pytest.FixtureRequest) -> Iterator[NatsServer | ExternalServer]:
    """A nats-server with JetStream: `nats_server.url`. A private one has `kill()`, `pause()`, `restart()`, too."""
    url, image = setting(request.config, "nats-url"), setting(request.config, "nats-container")
    if url:
        from jsclient.testing.external import ExternalServer

        yield ExternalServer(url)
    elif image:
        from jsclient.testing.external import in_container

        with in_container(image, setting(request.config, "nats-version")) as contained:
            yield contained
    else:
        from jsclient.testing import NatsServer

        with NatsServer(**private_options(request.config)) as server:  # type: ignore[arg-type]
            yield server


@pytest.fixture
def jetstream(nats_server: NatsServer | ExternalServer) -> Iterator[JetStream]:
    """A JetStream on a connection of this test; `jetstream.nc` is the connection.

    If the server outlives the test, the streams that the test made are deleted when it ends. Streams of an external
    server (`--nats-url`) stay, because they may belong to someone else.
    """
    import jsclient
    from jsclient.jetstream import JetStream
    from jsclient.testing.external import forget_streams, stream_names

    with jsclient.connect(nats_server.url, name="pytest") as nc:
        js = JetStream(nc)
        before = stream_names(js)
        yield js
        if getattr(nats_server, "ours", True):
            with jsclient.connect(nats_server.url) as cleaning:  # the test may have closed or broken the first one
                forget_streams(JetStream(cleaning), nats_server, before)


@pytest.fixture(scope=server_scope)
def nats_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three clustered nats-servers with JetStream: `nats_cluster.url` names all, `nats_cluster.servers` is the list."""
    from jsclient.testing import Cluster

    with Cluster(**private_options(request.config)) as cluster:  # type: ignore[arg-type]
        yield cluster


@pytest.fixture
def fault_proxy(nats_server: NatsServer | ExternalServer) -> Iterator[Proxy]:
    """A TCP proxy in front of `nats_server`: connect to `fault_proxy.url`, then `cut()`, `stall()`, `refuse()`, ..."""
    from jsclient.testing import Proxy

    with Proxy(nats_server.port, target_host=nats_server.host) as proxy:
        yield proxy
