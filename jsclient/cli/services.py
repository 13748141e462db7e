"""`service ...` (also `micro`): services of the micro protocol."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from jsclient import errors, services
from jsclient.cli.arguments import command, connect, group
from jsclient.cli.output import page, record, table


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


def _found(found: Iterable[Any], options: argparse.Namespace) -> list[Any]:
    answers = sorted(found, key=lambda one: (one.name, one.id))
    if not answers:
        raise errors.NoMessages(f"no service {options.name!r} answers" if options.name else "no service answers")
    if options.json:
        for one in answers:
            record(one)
    return answers


def list_services(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = _found(services.info(nc, options.name, options.id, timeout=options.timeout), options)
    if not options.json:
        rows = [(one.name, one.version, one.id, len(one.endpoints), one.description) for one in found]
        table(("NAME", "VERSION", "ID", "ENDPOINTS", "DESCRIPTION"), rows)


def ping_services(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = _found(services.ping(nc, options.name, options.id, timeout=options.timeout), options)
    if not options.json:
        table(("NAME", "VERSION", "ID"), [(one.name, one.version, one.id) for one in found])


def show_services(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = _found(services.info(nc, options.name, options.id, timeout=options.timeout), options)
    for one in () if options.json else found:
        page(
            f"Service {one.name} {one.version}, instance {one.id}",
            [
                ("description", one.description or None),
                *(
                    (endpoint.name, f"{endpoint.subject}  queue {endpoint.queue_group or '-'}")
                    for endpoint in one.endpoints
                ),
            ],
        )


def show_stats(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = _found(services.stats(nc, options.name, options.id, timeout=options.timeout), options)
    if options.json:
        return
    rows = [
        (
            one.name,
            one.id,
            endpoint.name,
            f"{endpoint.num_requests:,}",
            f"{endpoint.num_errors:,}",
            f"{endpoint.average_processing_time / 1e6:.3f}",
            endpoint.last_error,
        )
        for one in found
        for endpoint in one.endpoints
    ]
    table(("NAME", "ID", "ENDPOINT", "REQUESTS", "ERRORS", "AVERAGE MS", "LAST ERROR"), rows)
