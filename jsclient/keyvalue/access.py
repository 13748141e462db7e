"""The inner part of a handle on a bucket: its streams, the subjects of its keys, and its codecs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from jsclient._connection import Engine
from jsclient.connection import engine_of
from jsclient.durations import Deadline, Patience
from jsclient.errors import ConfigError, MessageTtlRefused, NoStreamForSubject
from jsclient.jetstream import JetStream, StreamInfo, StreamSource
from jsclient.jetstream.api.stored_messages import SILENCE
from jsclient.jetstream.stream import Stream
from jsclient.keyvalue import missing
from jsclient.keyvalue.coding import Coding
from jsclient.keyvalue.keys import (
    ALL_KEYS,
    STREAM_PREFIX,
    SUBJECT_ROOT,
    check_filter,
    check_key,
    key_limit,
    origin_of,
    stream_name,
)
from jsclient.keyvalue.watch import KeyWatcher, WatchOptions
from jsclient.message import Payload

_DEFAULT_API: Final = "$JS.API."


class Access:
    """The way to one bucket. `stored` in a name or parameter means the form in which the bucket has a key or value."""

    def __init__(self, js: JetStream, bucket: str, info: StreamInfo | None, mirror: StreamSource | None) -> None:
        self.js: JetStream = js
        self.engine: Engine = engine_of(js.nc)
        self.bucket: str = bucket
        self.stream_name: str = stream_name(bucket)
        self.stream: Stream = Stream(js, self.stream_name)
        self.direct: bool = True if info is None else bool(info.config.allow_direct)
        self.read_only: bool = False
        self.coding: Coding | None = None
        origin, write_prefix = bucket, None
        self.writer: JetStream = js
        if info is not None:
            mirror = info.config.mirror
            self.direct = self.direct or bool(mirror and info.config.mirror_direct)
        if mirror is not None:
            # A mirror stores the subjects of its origin, and cannot be written itself.
            origin, write_prefix = origin_of(mirror, bucket)
            if write_prefix is not None:
                # Reads that belong to a write go the same way: the local account does not know the origin.
                api_of_origin = write_prefix.removesuffix(f".{SUBJECT_ROOT}{origin}.")
                self.writer = JetStream(js.nc, api_prefix=api_of_origin, publish_timeout=js.publish_timeout)
        self.prefix: str = f"{SUBJECT_ROOT}{origin}."
        api = js.api.prefix
        if write_prefix is None:
            # In another domain or account the bucket's subjects are reached below the API prefix only.
            write_prefix = self.prefix if api == _DEFAULT_API else api + self.prefix
        self.write_prefix: str = write_prefix
        self.written_stream: str = STREAM_PREFIX + origin  # writes of a mirror go to the bucket that it copies
        self.written: Stream = (
            self.stream if origin == bucket and self.writer is js else Stream(self.writer, self.written_stream)
        )
        self.direct_prefix: str = f"{api}DIRECT.GET.{self.stream_name}.{self.prefix}"
        self.direct_subject: str = f"{api}DIRECT.GET.{self.stream_name}"
        # A server before 2.10 does not answer for a deleted stream. After this time the request goes to its leader.
        server = js.nc.server_info
        old = bool(server.version) and api == _DEFAULT_API and not server.at_least(2, 10)
        self.patience: float | None = SILENCE if old else None
        self.limit: int = key_limit(api, self.stream_name, self.prefix)

    def changed(self, **changes: Any) -> Access:
        """The same with other attributes."""
        made = copy.copy(self)
        vars(made).update(changes)
        return made

    # --- keys and values ----------------------------------------------------------------------------------

    def stored_key(self, key: str) -> str:
        """The key as the bucket has it. Raises InvalidName, EncodeFailed."""
        return check_key(key if self.coding is None else self.coding.key(key), self.limit)

    def stored_value(self, value: Any) -> Any:
        """The value as the bucket has it. Raises EncodeFailed."""
        return value if self.coding is None else self.coding.write(value)

    def stored_patterns(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """The patterns as the bucket has its keys. Raises ConfigError, EncodeFailed."""
        if self.coding is not None:
            patterns = tuple(map(self.coding.pattern, patterns))
        for pattern in patterns:
            check_filter(pattern, self.limit)
        return patterns

    # --- writing ------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raises ConfigError if the handle is only for reading."""
        if self.read_only:
            raise ConfigError(
                f"this handle of bucket {self.bucket!r} is for reading (read_only). Nothing was sent. Write through "
                "the handle that you called read_only on."
            )

    def publish(self, stored: str, value: Payload, **options: Any) -> int:
        """Store something under a key. Every write of one key uses this method. Returns the revision."""
        self.check_writable()
        try:
            return self.writer.publish(self.write_prefix + stored, value, **options).seq
        except NoStreamForSubject as error:
            raise missing.not_written(self.written_stream, error) from error
        except MessageTtlRefused as error:
            raise self.takes_no_ttl(error) from None

    def takes_no_ttl(self, error: MessageTtlRefused) -> MessageTtlRefused:
        """The error for a ttl that the stream of the bucket refused."""
        return error.told_as(
            f"bucket {self.bucket!r} takes no ttl: {error.what}. Nothing was stored. Give the bucket a "
            "limit_marker_ttl (update_key_value), or leave the ttl out."
        )

    # --- listing ------------------------------------------------------------------------------------------

    def watch(
        self,
        stored: tuple[str, ...],
        options: WatchOptions,
        timeout: float | None,
        deadline: Deadline,
        coding: Coding | None = None,
    ) -> KeyWatcher[Any]:
        """Watch keys by patterns in their stored form. Without `coding` the entries keep that form, too."""
        where = (self.js, self.bucket, self.stream_name, self.prefix, stored or (ALL_KEYS,))
        return KeyWatcher(*where, options, timeout, deadline, coding)

    def keys(self, stored: tuple[str, ...], patience: Patience, coding: Coding | None = None) -> Iterator[str]:
        """All keys that have a value, each once. See KeyValue.keys."""
        seen: set[str] = set()
        options = WatchOptions(ignore_deletes=True, meta_only=True)
        with self.watch(stored, options, None, patience.deadline(), coding) as watcher:
            while (entry := watcher.next(patience.remaining())) is not None:
                if entry.key not in seen:
                    seen.add(entry.key)
                    with patience.paused():
                        yield entry.key
