"""`service ...` (also `micro`): services of the micro protocol."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final

from jsclient import errors, services
from jsclient.cli.arguments import command, connect, group
from jsclient.cli.output import Columns, listing, page, record


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    for name in ("service", "micro"):
        actions = group(commands, name)
        for verb, run, text in (
            ("ls", list_services, "Which instances are there."),
            ("info", show_services, "Endpoints of the instances."),
            ("stats", show_stats, "Requests, errors and times per endpoint."),
            ("ping", ping_services, "Which instances answer."),
        ):
            made = command(actions, common, verb, run, text)
            made.add_argument("name", nargs="?", default="", help="only services of this name")
            made.add_argument("id", nargs="?", default="", help="only this instance")


_PINGED: Final[Columns] = {
    "NAME": lambda one: one.name,
    "VERSION": lambda one: one.version,
    "ID": lambda one: one.id,
}
_LISTED: Final[Columns] = {
    **_PINGED,
    "ENDPOINTS": lambda one: len(one.endpoints),
    "DESCRIPTION": lambda one: one.description,
}
_STATS: Final[Columns] = {
    "NAME": lambda pair: pair[0].name,
    "ID": lambda pair: pair[0].id,
    "ENDPOINT": lambda pair: pair[1].name,
    "REQUESTS": lambda pair: f"{pair[1].num_requests:,}",
    "ERRORS": lambda pair: f"{pair[1].num_errors:,}",
    "AVERAGE MS": lambda pair: f"{pair[1].average_processing_time / 1e6:.3f}",
    "LAST ERROR": lambda pair: pair[1].last_error,
}


def _found(question: Callable[..., Iterable[Any]], options: argparse.Namespace) -> list[Any]:
    with connect(options) as nc:
        answers = list(question(nc, options.name, options.id, timeout=options.timeout))
    if not answers:
        raise errors.NoMessages(f"no service {options.name!r} answers" if options.name else "no service answers")
    return sorted(answers, key=lambda one: (one.name, one.id))


def list_services(options: argparse.Namespace) -> None:
    listing(options.json, _found(services.info, options), _LISTED, plain=lambda one: one, flowing=True)


def ping_services(options: argparse.Namespace) -> None:
    listing(options.json, _found(services.ping, options), _PINGED, plain=lambda one: one)


def show_services(options: argparse.Namespace) -> None:
    for one in _found(services.info, options):
        if options.json:
            record(one)
            continue
        ends = [(end.name, f"{end.subject}  queue {end.queue_group or '-'}") for end in one.endpoints]
        title = f"Service {one.name} {one.version}, instance {one.id}"
        page(title, [("description", one.description), *ends])


def show_stats(options: argparse.Namespace) -> None:
    found = _found(services.stats, options)
    if options.json:
        listing(True, found, {}, plain=lambda one: one)
    else:
        listing(False, [(one, endpoint) for one in found for endpoint in one.endpoints], _STATS, flowing=True)
