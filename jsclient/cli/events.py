"""`events`: events of streams and consumers that servers report."""

from __future__ import annotations

from jsclient.cli.arguments import Options, arg, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import arriving, opened
from jsclient.cli.output import picked, result
from jsclient.jetstream import JetStream
from jsclient.jetstream.advisories import Advisory

cli: Commands = Commands(opened)


@cli(
    "events",
    arg("--stream", help="only of this stream"),
    arg("--consumer", help="only of this consumer"),
    arg("--count", type=positive, help="end after so many"),
    arg("--wait", type=seconds, help="end after so many seconds without one"),
)
def show_events(js: JetStream, options: Options) -> None:
    def wanted(advisory: Advisory) -> bool:
        chosen = picked(options, "stream", "consumer")
        return all(value in (None, advisory.raw.get(key)) for key, value in chosen.items())

    with js.advisories(Advisory) as advisories:
        for advisory in arriving(advisories, options, wanted):
            result(options, advisory.raw, _text(advisory))


def _text(advisory: Advisory) -> str:
    what = advisory.type.rpartition(".")[2] or advisory.type
    hidden = ("type", "id", "timestamp", "client")
    when = advisory.timestamp.isoformat(timespec="milliseconds") if advisory.timestamp else "-"
    return f"{when} {what} " + " ".join(f"{key}={value}" for key, value in advisory.raw.items() if key not in hidden)
