"""`service ...` (also `micro`): services of the micro protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import jsclient
from jsclient import services
from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect
from jsclient.cli.output import NothingThere, columns, details, listing

cli: Commands = Commands(connect)

_WHICH: Final = (
    arg("name", nargs="?", default="", help="only services of this name"),
    arg("id", nargs="?", default="", help="only this instance"),
)
_LISTED: Final = {
    **columns(NAME="name", VERSION="version", ID="id"),
    "ENDPOINTS": lambda one: len(one.endpoints),
    **columns(DESCRIPTION="description"),
}
_STATS: Final = {
    "NAME": lambda pair: pair[0].name,
    "ID": lambda pair: pair[0].id,
    "ENDPOINT": lambda pair: pair[1].name,
    "REQUESTS": lambda pair: f"{pair[1].num_requests:,}",
    "ERRORS": lambda pair: f"{pair[1].num_errors:,}",
    "AVERAGE MS": lambda pair: f"{pair[1].average_processing_time / 1e6:.3f}",
    "LAST ERROR": lambda pair: pair[1].last_error,
}


def _found(question: Callable[..., Iterable[Any]], nc: jsclient.Connection, options: Options) -> list[Any]:
    answers = list(question(nc, options.name, options.id, timeout=options.timeout))
    if not answers:
        raise NothingThere(f"no service {options.name!r} answers" if options.name else "no service answers")
    return sorted(answers, key=lambda one: (one.name, one.id))


@cli("service ls", *_WHICH)
def list_services(nc: jsclient.Connection, options: Options) -> None:
    """Which instances are there."""
    listing(options, _found(services.info, nc, options), _LISTED, flowing=True)


@cli("service info", *_WHICH)
def show_services(nc: jsclient.Connection, options: Options) -> None:
    """Endpoints of the instances."""
    for one in _found(services.info, nc, options):
        ends = [(end.name, f"{end.subject}  queue {end.queue_group or '-'}") for end in one.endpoints]
        title = f"Service {one.name} {one.version}, instance {one.id}"
        details(options, one, title, [("description", one.description), *ends])


@cli("service stats", *_WHICH)
def show_stats(nc: jsclient.Connection, options: Options) -> None:
    """Requests, errors and times per endpoint."""
    found = _found(services.stats, nc, options)
    rows = found if options.json else [(one, endpoint) for one in found for endpoint in one.endpoints]
    listing(options, rows, _STATS, flowing=True)
