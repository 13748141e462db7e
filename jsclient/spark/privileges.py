"""The permissions that a user of the data source needs, as a block for the server's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal

import attrs

from jsclient.jetstream.api import names
from jsclient.spark import options as known
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions

WAYS: Final = {name: letter for letter, name in known.WAYS.items()}


def required_permissions(
    options: Mapping[str, str],
    way: str,
    *,
    format: Literal["jetstream", "jetstream-kv", "jetstream-objects"] = "jetstream",
) -> dict[str, list[str]]:
    """The subjects that `way` needs with these options, as `{"publish": [...], "subscribe": [...]}`.

    `way` is read, readStream, write or writeStream. `options` is the option dict of the data source `format`.
    """
    return needs(options, way, format)[1]


def needs(options: Mapping[str, str], way: str, format: str) -> tuple[SparkOptions, dict[str, list[str]]]:
    """The checked options, and `required_permissions`."""
    letter = WAYS.get(way)
    if letter is None:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"{way!r} is none of {', '.join(WAYS)}")
    if format == "jetstream":
        checked = known.parse(options, letter)
        api = names.api_prefix(checked.domain, checked.api_prefix)
        reads = letter in (known.READ, known.READ_STREAM)
        publish = _reading(checked, api) if reads else _writing(checked, api, letter)
    elif format == "jetstream-kv":
        checked, publish = _bucket(options, letter)
    elif format == "jetstream-objects":
        checked, publish = _objects(options, letter)
    else:
        raise JetStreamSparkError(
            "JETSTREAM_BAD_OPTION", f"{format!r} is no format; there are jetstream, jetstream-kv and jetstream-objects"
        )
    subscribe = [f"{_inbox(checked)}.>"]
    return checked, {"publish": publish, "subscribe": subscribe}


def permissions(
    options: Mapping[str, str],
    way: str,
    *,
    format: Literal["jetstream", "jetstream-kv", "jetstream-objects"] = "jetstream",
) -> str:
    """The same as text for the `permissions` of a user in the configuration of a server.

    `format` is the data source that the options belong to.
    """
    needed = required_permissions(options, way, format=format)
    lines = [f"  {kind}: {{ allow: {json.dumps(subjects)} }}" for kind, subjects in needed.items()]
    return "\n".join(["permissions: {", *lines, "}"])


def _inbox(options: SparkOptions) -> str:
    return options.inbox_prefix or "_INBOX"


def _reading(o: SparkOptions, api: str) -> list[str]:
    found = [f"{api}INFO"]
    if o.stream_patterns:
        # Permissions cannot contain patterns of names, so they allow all streams; the pattern is up to the user.
        found.append(f"{api}STREAM.LIST")
    for stream in ("*",) if o.stream_patterns else o.stream_names:
        found += _of_stream(o, api, stream)
    if o.dead_letter_subject is not None:
        found += [o.dead_letter_subject, f"{api}STREAM.NAMES", f"{api}STREAM.INFO.*"]
    return list(dict.fromkeys(found))


def _of_stream(o: SparkOptions, api: str, stream: str) -> list[str]:
    """Reading one stream; `*` stands for all."""
    found = [f"{api}STREAM.INFO.{stream}", f"{api}STREAM.MSG.GET.{stream}"]
    if o.read_method != "direct":
        found += [f"{api}CONSUMER.{operation}.{stream}.>" for operation in ("CREATE", "DELETE", "MSG.NEXT")]
    if o.read_method != "consumer":
        found.append(f"{api}DIRECT.GET.{stream}")
    if o.ack_mode == "purge":
        found += [f"{api}STREAM.PURGE.{stream}", f"{api}CONSUMER.LIST.{stream}"]
    return found


def _bucket(given: Mapping[str, str], letter: str) -> tuple[SparkOptions, list[str]]:
    """A key-value bucket: a table, its history or changes, and puts."""
    from jsclient.spark import buckets, kv
    from jsclient.spark.kv_rows import prefix_of

    if letter in (known.READ, known.READ_STREAM):
        table = letter == known.READ
        own, streams = (kv.READING, kv.RANGES) if table else ({"keys"}, kv.FEED)
        options = buckets.parse(given, letter, buckets.KV_ROOT, own, streams)
        api = names.api_prefix(options.stream.domain, options.stream.api_prefix)
        reading = options.stream
        if table and not options.history:
            reading = attrs.evolve(reading, read_method="consumer")
        return reading, _reading(reading, api)
    options = buckets.sink_options(given, letter)
    api = names.api_prefix(options.stream.domain, options.stream.api_prefix)
    found = [f"{prefix_of(options)}>", f"{api}INFO", f"{api}STREAM.MSG.GET.KV_{options.bucket}"]
    return options.stream, found + _journal(options.stream, api, letter)


def _objects(given: Mapping[str, str], letter: str) -> tuple[SparkOptions, list[str]]:
    from jsclient.spark import buckets

    if letter != known.READ:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", "jetstream-objects can be read in batches only")
    options = buckets.parse(given, letter, "OBJ_", set(), {"failondataloss"}).stream
    return options, _reading(options, names.api_prefix(options.domain, options.api_prefix))


def _writing(o: SparkOptions, api: str, letter: str) -> list[str]:
    """Without the permissions for the API rows are written all the same, but a too short window stays unnoticed."""
    found = [o.subject or ">", f"{api}INFO", f"{api}STREAM.NAMES", f"{api}STREAM.INFO.*"]
    journal = _journal(o, api, letter)
    if journal:  # a replay reads the sink back
        found += [*journal, f"{api}STREAM.MSG.GET.*"]
        found += [f"{api}CONSUMER.{operation}.*.>" for operation in ("CREATE", "DELETE", "MSG.NEXT")]
    return list(dict.fromkeys(found))


def _journal(o: SparkOptions, api: str, letter: str) -> list[str]:
    """Keeping a journal; nothing without one."""
    if not o.keeps_journal(streaming=letter == known.WRITE_STREAM):
        return []
    bucket = o.journal_bucket
    found = [f"$KV.{bucket}.>", f"{api}STREAM.CREATE.KV_{bucket}", f"{api}STREAM.MSG.GET.KV_{bucket}"]
    return [*found, f"{api}STREAM.PURGE.KV_{bucket}"] if letter == known.WRITE else found
