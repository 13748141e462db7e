"""`server run`: a private server for trying things out."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.output import result
from jsclient.waiting import Gate

if TYPE_CHECKING:
    from jsclient.testing import NatsServer

cli: Commands = Commands()


@cli.local(
    "server run",
    arg("--port", type=int, default=4222, help="0: any free one (default 4222)"),
    arg("--store", help="folder for streams (default: a temporary one, removed at the end)"),
)
def run(options: Options) -> None:
    """Run a private nats-server with JetStream until Ctrl-C (finds the binary: NATS_SERVER, PATH, .tools)."""
    from jsclient.testing import NatsServer
    from jsclient.testing.find import ServerNotFound

    try:
        started = NatsServer(port=options.port or -1, store_dir=options.store)
    except ServerNotFound as error:  # no binary: one sentence lists the places searched
        raise OSError(str(error)) from None
    stop = Gate()  # an Event's lock may be held by the very thread that the signal handler interrupts
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with _started(started) as server:
            text = f"nats-server {server.url} pid {server.pid}, Ctrl-C ends it"
            result(options, {"url": server.url, "pid": server.pid}, text)
            while not stop.wait(0.5) and server.running:
                pass
            if not stop.is_set():
                raise OSError(f"the nats-server has ended by itself:\n{server.log_text()[-2000:]}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _started(server: NatsServer) -> NatsServer:
    from jsclient.testing.server import TAKEN

    try:
        return server.start()
    except RuntimeError as error:
        server.close()
        if TAKEN in str(error):
            text = f"port {server.port} is in use, probably by another nats-server. Choose another one with --port."
            raise OSError(text) from None
        raise OSError(str(error)) from None
