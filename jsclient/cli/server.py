"""`server ...`: the servers of the system account, and `server run`, a private one for trying things out."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.cli import server_check
from jsclient.cli.arguments import command, connect, group
from jsclient.cli.output import Columns, complain, listing, page, record, result, size, table
from jsclient.system import Gathered, SystemClient
from jsclient.waiting import Gate

if TYPE_CHECKING:
    from jsclient.testing import NatsServer


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    server = group(commands, "server")
    text = "Run a private nats-server with JetStream until Ctrl-C (finds the binary: NATS_SERVER, PATH, .tools)."
    running = server.add_parser("run", help=text, description=text)
    running.add_argument("--port", type=int, default=4222, help="0: any free one (default 4222)")
    running.add_argument("--store", help="folder for streams (default: a temporary one, removed at the end)")
    running.add_argument("--config", help="a configuration file to add")
    running.add_argument("--json", action="store_true", help="JSON lines instead of text")
    running.set_defaults(run=run)
    command(server, common, "ls", list_servers, "All servers and how busy they are (system account).")
    info = command(server, common, "info", server_info, "Settings and figures of a server (system account).")
    info.add_argument("name", nargs="?", default="", help="name or id (default: the one we are connected to)")
    ping = command(server, common, "ping", ping_servers, "Round trip of each server (system account).")
    ping.add_argument("--count", type=int, default=1)
    report = command(server, common, "report", report_servers, "Tables over all servers (system account).")
    report.add_argument("what", choices=("jetstream", "connections", "health"))
    for name, act, help_text in (
        ("kick", kick, "Cut off a client (server 2.10)."),
        ("ldm", move, "Ask a client to move to another server (server 2.10)."),
    ):
        made = command(server, common, name, act, help_text)
        made.add_argument("cid", type=int, help="the client's number: `server report connections`")
        made.add_argument("name", help="name or id of its server")
    asked = group(server, "request", "The same in the words of the NATS CLI.")
    kicked = command(asked, common, "kick", kick, "Cut off a client (server 2.10).")
    kicked.add_argument("cid", type=int, help="the client's number: `server report connections`")
    kicked.add_argument("name", help="name or id of its server")
    reload = command(server, common, "reload", reload_server, "Have a server read its configuration (server 2.10).")
    reload.add_argument("name", help="name or id")
    text = "Checks for monitoring: exit status 0 ok, 1 warning, 2 critical, 3 not known."
    server_check.add_commands(server.add_parser("check", help=text, description=text), common)


def run(options: argparse.Namespace) -> None:
    from jsclient.testing import NatsServer
    from jsclient.testing.find import ServerNotFound

    config = ""
    if options.config:
        with open(options.config, encoding="utf-8") as file:
            config = file.read()
    try:
        started = NatsServer(config, port=options.port or -1, store_dir=options.store)
    except ServerNotFound as error:  # no binary: one sentence says where it was looked for
        raise OSError(str(error)) from None
    stop = Gate()  # an Event's lock may be held by the very thread that the signal handler interrupts
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with started as server:
            _serve(server, stop, options.json)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(server: NatsServer, stop: Gate, as_json: bool) -> None:
    result(
        as_json, {"url": server.url, "pid": server.pid}, f"nats-server {server.url} pid {server.pid}, Ctrl-C ends it"
    )
    while not stop.wait(0.5) and server.running:
        pass
    if not stop.is_set():
        raise OSError(f"the nats-server has ended by itself:\n{server.log_text()[-2000:]}")


def _warn(gathered: Gathered[Any]) -> int:
    """Tell what is missing from a table; returns the exit status."""
    for refusal in gathered.errors:
        complain(f"{refusal.name}: {refusal.code} {refusal.description}")
    if gathered.missing:
        complain(f"no answer from {', '.join(gathered.missing)}")
    if not gathered and not gathered.errors:
        complain("no server has answered in time")
    if gathered.unknown:
        complain(f"{gathered.unknown} more servers of the cluster did not answer")
    return 0 if gathered.complete and not gathered.errors else 1


def _system(nc: Any, options: argparse.Namespace) -> SystemClient:
    return SystemClient(nc, timeout=options.timeout)


def _gather(options: argparse.Namespace, question: Any) -> Gathered[Any]:
    with connect(options) as nc:
        try:
            gathered: Gathered[Any] = question(_system(nc, options))
        except errors.NoResponders:
            raise errors.ConfigError("no server answers: this needs a user of the system account") from None
    if options.json:
        for one in gathered:
            record({"server": {"id": one.id, "name": one.name, "ver": one.version}, "data": one.data})
    return gathered


def _number(name: str) -> Callable[[Any], str]:
    return lambda one: f"{one.data.get(name, 0):,}"


def _bytes(name: str) -> Callable[[Any], str]:
    return lambda one: size(one.data.get(name, 0))


_SERVERS: Final[Columns] = {
    "NAME": lambda one: one.name,
    "VERSION": lambda one: one.version,
    "CONNECTIONS": _number("connections"),
    "SUBSCRIPTIONS": _number("subscriptions"),
    "MEMORY": _bytes("mem"),
    "CPU %": lambda one: f"{one.data.get('cpu', 0):g}",
    "SLOW": _number("slow_consumers"),
    "ROUTES": lambda one: len(one.data.get("routes") or ()),
    "CLUSTER": lambda one: one.cluster or "-",
    "HOST": lambda one: one.host,
}
_JETSTREAM: Final[Columns] = {
    "SERVER": lambda one: one.name,
    "STREAMS": _number("streams"),
    "CONSUMERS": _number("consumers"),
    "MESSAGES": _number("messages"),
    "BYTES": _bytes("bytes"),
    "MEMORY": _bytes("memory"),
    "FILE": _bytes("storage"),
    "API": lambda one: f"{(one.data.get('api') or {}).get('total', 0):,}",
    "API ERRORS": lambda one: f"{(one.data.get('api') or {}).get('errors', 0):,}",
    "META LEADER": lambda one: "*" if (one.data.get("meta_cluster") or {}).get("leader") == one.name else "",
}
_CONNECTIONS: Final[Columns] = {
    "CID": lambda pair: pair[1].get("cid"),
    "SERVER": lambda pair: pair[0].name,
    "NAME": lambda pair: pair[1].get("name", ""),
    "ACCOUNT": lambda pair: pair[1].get("account", ""),
    "ADDRESS": lambda pair: f"{pair[1].get('ip')}:{pair[1].get('port')}",
    "PENDING": lambda pair: size(pair[1].get("pending_bytes", 0)),
    "IN": lambda pair: f"{pair[1].get('in_msgs', 0):,}",
    "OUT": lambda pair: f"{pair[1].get('out_msgs', 0):,}",
    "SUBS": lambda pair: f"{pair[1].get('subscriptions', 0):,}",
    "UPTIME": lambda pair: pair[1].get("uptime", ""),
    "LANGUAGE": lambda pair: pair[1].get("lang", ""),
}


def list_servers(options: argparse.Namespace) -> int:
    gathered = _gather(options, lambda system: system.servers())
    if not options.json:
        listing(False, gathered, _SERVERS)
    return _warn(gathered)


def server_info(options: argparse.Namespace) -> int:
    def question(system: SystemClient) -> Gathered[Any]:
        return system.variables(server=options.name or system.nc.server_info.server_id)

    gathered = _gather(options, question)
    for one in () if options.json else gathered:
        data = one.data
        stats = (data.get("jetstream") or {}).get("stats") or {}
        page(
            f"Server {one.name}",
            (
                ("id", one.id),
                ("version", one.version),
                ("cluster", one.cluster or None),
                ("host", f"{data.get('host')}:{data.get('port')}"),
                ("uptime", data.get("uptime")),
                ("connections", f"{data.get('connections', 0):,} of {data.get('max_connections', 0):,}"),
                ("memory", size(data.get("mem", 0))),
                ("messages in", f"{data.get('in_msgs', 0):,}"),
                ("messages out", f"{data.get('out_msgs', 0):,}"),
                ("max payload", size(data.get("max_payload", 0))),
                ("slow consumers", f"{data.get('slow_consumers', 0):,}"),
                ("streams on disk", size(stats["storage"]) if "storage" in stats else None),
            ),
        )
    return _warn(gathered)


def ping_servers(options: argparse.Namespace) -> int:
    status = 0
    with connect(options) as nc:
        system = _system(nc, options)
        for _ in range(options.count):
            start = time.perf_counter()
            gathered = system.servers()
            taken = time.perf_counter() - start
            names = ", ".join(one.name for one in gathered)
            result(
                options.json,
                {"servers": [one.name for one in gathered], "seconds": taken, "complete": gathered.complete},
                f"{len(gathered)} servers in {taken * 1000:.2f} ms: {names}",
            )
            status |= _warn(gathered)
    return status


def report_servers(options: argparse.Namespace) -> int:
    return {"jetstream": _report_jetstream, "connections": _report_connections, "health": _report_health}[options.what](
        options
    )


def _report_jetstream(options: argparse.Namespace) -> int:
    gathered = _gather(options, lambda system: system.jetstream())
    if not options.json:
        listing(False, gathered, _JETSTREAM)
    return _warn(gathered)


def _report_connections(options: argparse.Namespace) -> int:
    gathered = _gather(options, lambda system: system.connections(auth=True, subscriptions=False))
    if not options.json:
        clients = [(one, client) for one in gathered for client in one.data.get("connections") or ()]
        listing(False, clients, _CONNECTIONS)
        for one in gathered:
            if one.data.get("total", 0) > one.data.get("num_connections", 0):
                complain(f"{one.name}: {one.data['num_connections']} of {one.data['total']} connections are shown")
    return _warn(gathered)


def _report_health(options: argparse.Namespace) -> int:
    gathered = _gather(options, lambda system: system.health())
    if not options.json:
        rows = [(one.name, "ok", "") for one in gathered]
        rows += [(refusal.name, str(refusal.code), refusal.description) for refusal in gathered.errors]
        table(("SERVER", "HEALTH", "REASON"), rows, flowing=True)
    return _warn(gathered)


def kick(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        _system(nc, options).kick(options.cid, options.name)
    _done(options, "kicked")


def move(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        _system(nc, options).ask_to_move(options.cid, options.name)
    _done(options, "asked to move")


def reload_server(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        _system(nc, options).reload(options.name)
    _done(options, "reloaded")


def _done(options: argparse.Namespace, what: str) -> None:
    result(options.json, {"server": options.name, "done": what}, f"{what}: {getattr(options, 'cid', options.name)}")
