"""What a user of the data source has to be allowed: as the block of a server's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from jsclient.jetstream.api import names
from jsclient.spark import options as known
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions

WAYS: Final = {name: letter for letter, name in known.WAYS.items()}


def required_permissions(options: Mapping[str, str], way: str) -> dict[str, list[str]]:
    """{"publish": [...], "subscribe": [...]}: the subjects that `way` needs with these options.

    `way`: read, readStream, write or writeStream. `options`: the option dict of the data source.
    """
    letter = WAYS.get(way)
    if letter is None:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"{way!r} is none of {', '.join(WAYS)}")
    checked = known.parse(options, letter)
    api = names.api_prefix(checked.domain, checked.api_prefix)
    publish = _reading(checked, api) if letter in (known.READ, known.READ_STREAM) else _writing(checked, api, letter)
    subscribe = [f"{_inbox(checked)}.>"]
    if letter == known.READ_STREAM and not checked.fail_on_data_loss:
        publish.append("_spark.>")
        subscribe.append("_spark.>")
    return {"publish": publish, "subscribe": subscribe}


def permissions(options: Mapping[str, str], way: str) -> str:
    """The same as text for the `permissions` of a user in the configuration of a server."""
    needed = required_permissions(options, way)
    lines = [f"  {kind}: {{ allow: {json.dumps(subjects)} }}" for kind, subjects in needed.items()]
    return "\n".join(["permissions: {", *lines, "}"])


def _inbox(options: SparkOptions) -> str:
    given: dict[str, Any] = dict(options.nats)
    prefix = given.get("inbox_prefix")
    return "_INBOX" if prefix is None else str(prefix.reveal())


def _reading(o: SparkOptions, api: str) -> list[str]:
    stream = o.stream
    found = [f"{api}INFO", f"{api}STREAM.INFO.{stream}", f"{api}STREAM.MSG.GET.{stream}"]
    if o.read_method != "direct":
        found += [f"{api}CONSUMER.{operation}.{stream}.>" for operation in ("CREATE", "DELETE", "MSG.NEXT")]
    if o.read_method != "consumer":
        found.append(f"{api}DIRECT.GET.{stream}")
    if o.ack_mode == "purge":
        found += [f"{api}STREAM.PURGE.{stream}", f"{api}CONSUMER.LIST.{stream}"]
    if o.dead_letter_subject is not None:
        found += [o.dead_letter_subject, f"{api}STREAM.NAMES", f"{api}STREAM.INFO.*"]
    if o.progress_bucket is not None:
        found.append(f"$KV.{o.progress_bucket}.>")
    return found


def _writing(o: SparkOptions, api: str, letter: str) -> list[str]:
    """Without the questions to the API rows are written all the same, but a window that is too short is not seen."""
    bucket = o.journal_bucket
    found = [o.subject or ">", f"{api}INFO", f"{api}STREAM.NAMES", f"{api}STREAM.INFO.*"]
    if o.audit_bucket is not None:
        found.append(f"$KV.{o.audit_bucket}.>")
    if o.publish_mode == "atomic":
        found += [f"{o.atomic_marker_subject}.>", f"{api}STREAM.MSG.GET.*"]
    elif o.delivery_semantics == "exactly-once" or (o.delivery_semantics == "auto" and letter == known.WRITE_STREAM):
        found += [f"$KV.{bucket}.>", f"{api}STREAM.CREATE.KV_{bucket}", f"{api}STREAM.MSG.GET.*"]
        found += [f"{api}CONSUMER.{operation}.*.>" for operation in ("CREATE", "DELETE", "MSG.NEXT")]
        if letter == known.WRITE:
            found.append(f"{api}STREAM.PURGE.KV_{bucket}")
    return found
