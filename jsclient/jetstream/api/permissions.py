"""The subjects that a user must be granted: the same names that the rest of this package publishes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

import msgspec

from jsclient.errors import ConfigError
from jsclient.jetstream.api import names

Use = Literal["publish", "consume", "info", "ordered", "push", "read", "manage", "list"]

STREAM_OPERATIONS: Final = ("CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "MSG.DELETE")
CONSUMER_OPERATIONS: Final = ("INFO", "DELETE", "PAUSE", "RESET", "UNPIN")


class Permissions(msgspec.Struct, frozen=True):
    """Subjects to allow. `str()` is the `permissions` block of a nats-server user."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def __str__(self) -> str:
        return (
            "permissions {\n"
            f"  publish: {{ allow: [{_quoted(self.publish)}] }}\n"
            f"  subscribe: {{ allow: [{_quoted(self.subscribe)}] }}\n"
            "}"
        )


def _quoted(subjects: Iterable[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


def required_permissions(
    prefix: str,
    inbox_prefix: str,
    stream: str,
    consumer: str | None,
    uses: Iterable[Use],
    subjects: tuple[str, ...],
    deliver_subject: str | None,
) -> Permissions:
    """See JetStream.required_permissions."""
    names.check_stream(stream)
    if consumer is not None:
        names.check_consumer(consumer)
    names.check_filters(subjects, "subjects")
    publish: dict[str, None] = {}
    subscribe = {f"{inbox_prefix}.>": None}
    given: Iterable[Any] = [uses] if isinstance(uses, str) else uses
    for use in given:
        if use == "publish" and not subjects:
            raise ConfigError(
                "required_permissions for publish needs subjects: pass subjects=['orders.*'] with the subjects to "
                "publish on, or uses= without 'publish'"
            )
        if use not in get_args(Use):
            raise ConfigError(f"unknown use {use!r}: must be one of {', '.join(get_args(Use))}")
        wanted = [*_of(use, prefix, stream, consumer or "*"), *(subjects if use == "publish" else ())]
        publish.update(dict.fromkeys(wanted))
        if use == "push":
            if deliver_subject is None:
                raise ConfigError(
                    "required_permissions for push needs deliver_subject: pass the consumer's deliver_subject"
                )
            subscribe[names.check_subject(deliver_subject, "deliver_subject", wildcards=True)] = None
    return Permissions(tuple(publish), tuple(subscribe))


def _of(use: Use, prefix: str, stream: str, consumer: str) -> list[str]:
    # Acks have two forms: the second, with domain and account, is off by default as of server 2.15.
    acks = [f"$JS.ACK.{stream}.{consumer}.>", f"$JS.ACK.*.*.{stream}.{consumer}.>"]
    flow = [f"$JS.FC.{stream}.{consumer}.>", f"$JS.FC.*.*.{stream}.{consumer}.>"]
    if use == "publish":
        # To find out if a stream takes a subject, and how long it remembers ids. To look whether a message in doubt is
        # stored also needs "read", which shows the complete stream.
        return [f"{prefix}STREAM.NAMES", f"{prefix}STREAM.INFO.{stream}"]
    if use == "consume":
        return [f"{prefix}CONSUMER.MSG.NEXT.{stream}.{consumer}", *acks]
    if use == "info":
        return [f"{prefix}STREAM.INFO.{stream}", f"{prefix}CONSUMER.INFO.{stream}.{consumer}"]
    if use == "ordered":
        operations = (f"CREATE.{stream}.>", f"MSG.NEXT.{stream}.*", f"DELETE.{stream}.*", f"INFO.{stream}.*")
        return [f"{prefix}STREAM.INFO.{stream}", *(f"{prefix}CONSUMER.{operation}" for operation in operations)]
    if use == "push":
        return [f"{prefix}CONSUMER.INFO.{stream}.{consumer}", *acks, *flow]
    if use == "read":
        direct = [f"{prefix}DIRECT.GET.{stream}", f"{prefix}DIRECT.GET.{stream}.>"]
        return [f"{prefix}STREAM.INFO.{stream}", f"{prefix}STREAM.MSG.GET.{stream}", *direct]
    if use == "list":
        listings = [f"{prefix}CONSUMER.NAMES.{stream}", f"{prefix}CONSUMER.LIST.{stream}"]
        return [f"{prefix}INFO", f"{prefix}STREAM.NAMES", f"{prefix}STREAM.LIST", *listings]
    # INFO returns the level of the server. Without it the client refuses newer settings.
    streams = [f"{prefix}STREAM.{operation}.{stream}" for operation in STREAM_OPERATIONS]
    created = [f"{prefix}CONSUMER.CREATE.{stream}.{consumer}", f"{prefix}CONSUMER.CREATE.{stream}.{consumer}.>"]
    consumers = [f"{prefix}CONSUMER.{operation}.{stream}.{consumer}" for operation in CONSUMER_OPERATIONS]
    return [f"{prefix}INFO", *streams, *created, *consumers]
