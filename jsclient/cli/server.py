"""`server`: a private nats-server with JetStream in the foreground, for trying things out."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from jsclient.cli.output import line, record
from jsclient.waiting import Gate


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "Run a private nats-server with JetStream until Ctrl-C (finds the binary: NATS_SERVER, PATH, .tools)."
    server = commands.add_parser("server", help=text, description=text)
    server.add_argument("--port", type=int, default=4222, help="0: any free one (default 4222)")
    server.add_argument("--store", help="folder for streams (default: a temporary one, removed at the end)")
    server.add_argument("--config", help="a configuration file to add")
    server.add_argument("--json", action="store_true", help="JSON lines instead of text")
    server.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from jsclient.testing import NatsServer

    config = ""
    if options.config:
        with open(options.config, encoding="utf-8") as file:
            config = file.read()
    stop = Gate()  # an Event's lock may be held by the very thread that the signal handler interrupts
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with NatsServer(config, port=options.port or -1, store_dir=options.store) as server:
        if options.json:
            record({"url": server.url, "pid": server.pid})
        else:
            line(f"nats-server {server.url} pid {server.pid}, Ctrl-C ends it")
        while not stop.wait(0.5) and server.running:
            pass
        if not stop.is_set():
            raise OSError(f"the nats-server has ended by itself:\n{server.log_text()[-2000:]}")
