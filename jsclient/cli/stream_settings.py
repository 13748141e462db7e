"""The settings of a stream as options of `stream add`, `edit` and `copy`, in the words of the NATS CLI."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import (
    DESCRIPTION,
    Options,
    arg,
    count_of_bytes,
    ignored,
    positive,
    seconds,
    spelled,
    split,
    storage,
)
from jsclient.cli.settings import CONFIG, EDITING, METADATA, REMOVED, changed, config_file, given
from jsclient.jetstream import StreamConfig, StreamSource

_RETENTION: Final = spelled(limits="", interest="", workqueue="work workq")

_SWITCHES: Final = {
    "allow-rollup": "allow_rollup_hdrs",
    "deny-delete": "deny_delete",
    "deny-purge": "deny_purge",
    "allow-direct": "allow_direct",
    "allow-mirror-direct": "mirror_direct",
    "allow-msg-ttl": "allow_msg_ttl",
    "allow-schedules": "allow_msg_schedules",
    "allow-counter": "allow_msg_counter",
    "allow-batch": "allow_atomic",
    "allow-fast": "allow_batched",
    "discard-per-subject": "discard_new_per_subject",
}
"""Option -> field; each has a --no- of its own."""


def _setting(option: str, field: str, **more: Any) -> Any:
    return arg(f"--{option}", dest=field, **more)


def _source(name: str) -> StreamSource:
    return StreamSource(name=name)


def _sources(names: str) -> list[StreamSource]:
    return list(map(_source, split(names)))


ALL: Final = (
    arg("--subjects", type=split, action="extend", help="with commas"),
    arg("--retention", type=_RETENTION, metavar="limits|interest|workqueue"),
    _setting("replicas", "num_replicas", type=positive),
    arg("--max-age", type=seconds, help="seconds, or as 90d; 0: without limit"),
    arg("--max-msgs", type=int),
    arg("--max-msgs-per-subject", type=int),
    arg("--max-bytes", type=count_of_bytes, help="bytes, or as 10GB"),
    arg("--max-msg-size", type=count_of_bytes, help="bytes, or as 64KB"),
    arg("--max-consumers", type=int),
    _setting("dupe-window", "duplicate_window", type=seconds, help="seconds"),
    arg("--discard", choices=("old", "new")),
    arg("--compression", choices=("none", "s2")),
    DESCRIPTION,
    METADATA,
    _setting("cluster", "placement.cluster", help='where its servers have to be; "": anywhere'),
    arg("--tag", "--tags", dest="placement.tags", type=split, action="extend", help='of its servers; "": any'),
    _setting("transform-source", "subject_transform.src", metavar="SUBJECT", help="with --transform-destination"),
    _setting("transform-destination", "subject_transform.dest", metavar="SUBJECT", help="under which it is stored"),
    _setting("republish-source", "republish.src", metavar="SUBJECT", help="what is published again, once stored"),
    _setting("republish-destination", "republish.dest", metavar="SUBJECT"),
    _setting("republish-headers", "republish.headers_only", action="store_true", default=None, help="headers alone"),
    _setting("subject-del-markers-ttl", "subject_delete_marker_ttl", type=seconds, help="how long markers stay"),
    *(_setting(option, field, action=BooleanOptionalAction) for option, field in _SWITCHES.items()),
)
"""What new, copied and present streams share."""

NEW: Final = (
    arg("--storage", type=storage, help="file (default) or memory"),
    arg("--mirror", type=_source, metavar="STREAM", help="a copy of this stream, without subjects of its own"),
    _setting(
        "source", "sources", type=_sources, action="extend", metavar="STREAM", help="copy from it; may be repeated"
    ),
    CONFIG,
    _setting("first-sequence", "first_seq", type=positive, help="sequence of its first message (server 2.10)"),
    _setting("limit-consumer-inactive", "consumer_limits.inactive_threshold", type=seconds, help="of its consumers"),
    _setting("limit-consumer-max-pending", "consumer_limits.max_ack_pending", type=positive, help="of its consumers"),
    arg("--persist-mode", choices=("default", "async")),
    *ALL,
    ignored("--defaults"),
)
"""Options of `stream add`."""


def _end(option: str, field: str, text: str) -> Any:
    return _setting(option, field, action="store_const", const=REMOVED, help=text)


PRESENT: Final = (
    *ALL,
    _end("no-mirror", "mirror", "a mirror becomes a stream of its own (server 2.12)"),
    _end("no-transform", "subject_transform", "end the transform of subjects"),
    _end("no-republish", "republish", "end republishing"),
    *EDITING,
)
"""Options of `stream edit`."""


def wanted_stream(options: Options) -> StreamConfig:
    """What `stream add` creates. Raises ConfigError for a file that holds no configuration."""
    changes = given(options, StreamConfig)
    if options.config is not None:
        base = config_file(options.config, StreamConfig)
    elif changes.keys() & {"subjects", "mirror", "sources"}:
        base = StreamConfig()
    else:
        raise errors.ConfigError("a stream needs --subjects, --mirror or --source")
    return changed(base.replace(name=options.stream), changes)
