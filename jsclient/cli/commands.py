"""The parser of all commands."""

from __future__ import annotations

import argparse

import jsclient
from jsclient.cli import (
    account,
    bench,
    buckets,
    check,
    completion,
    consumers,
    context,
    core,
    counters,
    dead,
    events,
    groups,
    locks,
    objects,
    server,
    services,
    streams,
    top,
    worker,
)
from jsclient.cli.arguments import common_arguments

EVERYDAY = (core, streams, consumers, buckets, objects, counters, services)
OPERATING = (worker, groups, locks, dead, events, check, top, account, context, server, bench, completion)


def parser() -> argparse.ArgumentParser:
    common = common_arguments()
    main = argparse.ArgumentParser(
        prog="jsclient",
        description="NATS JetStream from the command line.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing there, 130 interrupted.",
    )
    main.add_argument("--version", action="version", version=jsclient.__version__)
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (*EVERYDAY, *OPERATING):
        module.add_commands(commands, common)
    return main
