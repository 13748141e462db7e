"""JetStream: the way in. Streams, consumers and publishing of one account, through one connection."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from jsclient import checks, codecs, kinds
from jsclient.codecs import Codec
from jsclient.connection import Connection, engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, plain_or_none
from jsclient.errors import ApiError, ConfigError, NoStreamForSubject, StreamNameInUse, StreamNotFound
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.capabilities import OPERATIONS, Capabilities
from jsclient.jetstream.api.model_base import given
from jsclient.jetstream.api.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    PauseState,
    StreamConfig,
    StreamInfo,
    Success,
)
from jsclient.jetstream.api.models_stream import user_metadata
from jsclient.jetstream.api.permissions import Permissions, Use, required_permissions
from jsclient.jetstream.api.requests import API_TIMEOUT, Api, RequestHook, ResponseHook
from jsclient.jetstream.publishing.methods import Publishing
from jsclient.jetstream.publishing.options import V
from jsclient.jetstream.publishing.outcome import PUBLISH_TIMEOUT
from jsclient.jetstream.stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.advisories import Advisories, Advisory, E
    from jsclient.jetstream.api.config_fields import ConsumerConfigDict, StreamConfigDict
    from jsclient.jetstream.consumer import Consumer
    from jsclient.jetstream.consuming.ordered import OrderedConsumer
    from jsclient.jetstream.consuming.ordered_sequence import OrderedOptionsDict
    from jsclient.jetstream.consuming.push import OrderedPushConsumer, PushConsumer
    from jsclient.jetstream.publishing.options import JetStreamDict, PublishWindowDict


class JetStream(Publishing[V]):
    """JetStream of the connection's account, or of what `domain` or `api_prefix` reaches. Making it sends nothing.

        with jsclient.connect("nats://127.0.0.1:4222") as nc:
            js = JetStream(nc)
            js.create_or_update_stream(name="ORDERS", subjects=["ORDERS.*"])
            ack = js.publish("ORDERS.new", b"hello")  # stored, with the sequence ack.seq
            consumer = js.create_or_update_consumer("ORDERS", durable_name="CONS")
            messages = consumer.fetch(10, timeout=1)  # msg.ack() for each when it is done

    `domain="hub"` uses `$JS.hub.API`. `api_prefix="JS.acc@hub.API"` is for an API imported from another account. That
    account must export it with `response_type: stream`. The default, singleton, passes one message of each pull, so
    watchers, listings, ordered reads and objects of many chunks raise ImportPassesOneResponse.

    `timeout` is the default of API calls, in seconds. `publish_timeout` is the default of `publish`, of batches and of
    the writes of buckets and stores. `direct_get`: True reads stored messages from any replica, False from the leader,
    None (default) as each stream allows. `on_request(subject, payload)` and `on_response(subject, payload, headers)`
    see every API call, on the calling thread. The `publish_async_*` options are described in AsyncPublisher.
    Thread-safe.

    With a `codec` (jsclient.codecs: JSON, MSGPACK, or an object with the two functions of Codec) every publish takes
    values as well, and `consumer.typed(Order)` reads with it. Bytes and text go out unchanged. Without a codec, publish
    takes only bytes and text, and typed handles read JSON. For type checkers a JetStream with a codec is a
    `JetStream[Any]`.

    Attributes:
        nc: The connection.
        codec: The codec with which `publish` writes values; None takes bytes and text only.
        domain: As given.
        direct_get: As given.
        publish_timeout: Seconds; as given.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        payload: The body: bytes, bytearray, memoryview or text (UTF-8), by default empty. A body larger than the
            server accepts raises PayloadTooLarge before anything is sent.
        headers: Headers, or a mapping of names to one value or several. An invalid header raises InvalidHeader before
            anything is sent.
        msg_id: The message id. Within its duplicate window (2 minutes by default) a stream stores one message of each
            id.
        config: The configuration as one object. Without it, pass its fields as keywords.
        pedantic: True: the server refuses settings that it would adjust otherwise (server 2.11). Default False.
        drop_unknown: True removes settings of a newer server that this client does not know. By default the client
            sends them back unchanged.

    Further options:
        JetStream: see `PublishWindowDict`.
        publish, publish_async: see `PublishOptions`.
        publish_msg: see `PublishDict`.
        publish_msg_async: see `PublishAsyncDict`.
        atomic_batch: see `AtomicBatchDict`.
        fast_batch: see `FastBatchDict`.
        create_stream, update_stream, create_or_update_stream, get_or_create_stream: see `StreamConfigDict`.
        create_consumer, update_consumer, create_or_update_consumer, get_or_create_consumer: see `ConsumerConfigDict`.
        create_push_consumer, update_push_consumer, create_or_update_push_consumer: see `ConsumerConfigDict`.
        ordered_consumer, ordered_push_consumer: see `OrderedOptionsDict`.
    """

    @overload
    def __init__(self: JetStream[NoReturn], nc: Connection, **options: Unpack[JetStreamDict]) -> None: ...

    @overload
    def __init__(
        self: JetStream[Any], nc: Connection, *, codec: Codec | None, **options: Unpack[JetStreamDict]
    ) -> None: ...

    def __init__(
        self,
        nc: Connection,
        *,
        domain: str | None = None,
        api_prefix: str | None = None,
        timeout: float | dt.timedelta | None = API_TIMEOUT,
        publish_timeout: float | dt.timedelta | None = PUBLISH_TIMEOUT,
        direct_get: bool | None = None,
        on_request: RequestHook | None = None,
        on_response: ResponseHook | None = None,
        codec: Codec | None = None,
        **publish_async_options: Unpack[PublishWindowDict],
    ) -> None:
        if not hasattr(nc, "request"):
            raise ConfigError(f"nc must be a Connection, not {type(nc).__name__}")
        if codec is not None:
            codecs.check(codec)
        kinds.check(str, None, domain=domain, api_prefix=api_prefix)
        kinds.check(bool, None, direct_get=direct_get)
        kinds.check(Callable, None, on_request=on_request, on_response=on_response)
        self.nc = nc
        self.codec = codec
        self.domain = domain
        self.direct_get = direct_get
        self.publish_timeout: float | None = plain_or_none(publish_timeout)
        check_timeout(self.publish_timeout, "publish_timeout")
        self.api: Api = Api(
            nc,
            domain=domain,
            prefix=api_prefix,
            timeout=plain_or_none(timeout),
            on_request=on_request,
            on_response=on_response,
        )
        """For layers."""
        self.capabilities: Capabilities = Capabilities(self.api)
        """For layers."""
        super().__init__(publish_async_options)

    @property
    def decodes_with(self) -> Codec:
        """The codec that reads values: the given one, else JSON."""
        return codecs.JSON if self.codec is None else self.codec

    def __repr__(self) -> str:
        return f"<JetStream {self.api.prefix[:-1]}>"

    def __reduce__(self) -> Any:
        return engine_of(self.nc).refuse_pickle(self)

    # --- account --------------------------------------------------------------------------------------------

    def account_info(self, *, timeout: Timeout = DEFAULT) -> AccountInfo:
        """Use and limits of the account; raises JetStreamNotEnabled or JetStreamUnavailable if it has no JetStream."""
        return self.api.request("INFO", None, AccountInfo, timeout=timeout, read=True)

    def api_level(self, *, timeout: Timeout = DEFAULT) -> int | None:
        """The API level of the servers (0 before 2.11; 1 = 2.11, 2 = 2.12, 4 = 2.14, 5 = 2.15), None if unknown."""
        return self.capabilities.level(Deadline.of(timeout, self.api.timeout))

    def required_permissions(
        self,
        stream: str,
        consumer: str | None = None,
        *,
        uses: Iterable[Use] = ("publish", "consume"),
        subjects: Iterable[str] = (),
        deliver_subject: str | None = None,
    ) -> Permissions:
        """The subjects that a user must be granted to do this through this domain or prefix; print it.

        `uses` takes "publish" (to `subjects`, which it needs) and "consume" (pull and ack through a handle made with
        `fetch_info=False`). It also takes "info" (handles that request information), "ordered", "push" (on
        `deliver_subject`), "read" (stored messages), "manage" (create, change, delete) and "list". Without `consumer`
        the result covers all consumers of the stream. Sends nothing.
        """
        kinds.check(Iterable, uses=uses, subjects=subjects)
        kinds.check(str, None, deliver_subject=deliver_subject)
        inboxes = self.nc.options.inbox_prefix
        subjects = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        return required_permissions(self.api.prefix, inboxes, stream, consumer, uses, subjects, deliver_subject)

    @overload
    def advisories(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[Advisory], Any] | None = None,
    ) -> Advisories[Advisory]: ...

    @overload
    def advisories(
        self,
        kind: type[E],
        *,
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[E], Any] | None = None,
    ) -> Advisories[E]: ...

    def advisories(
        self,
        kind: type[Any] | None = None,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[Any], Any] | None = None,
    ) -> Advisories[Any]:
        """Subscribe to the server's events about streams and consumers; see jsclient.jetstream.advisories.

        `kind` is a class of events (default: all), such as MaxDeliveries; `stream` and `consumer` narrow it.

        With a `callback` a worker thread of the connection calls it for every event; by default you iterate.
        """
        from jsclient.jetstream.advisories import Advisories, Advisory  # 60 classes that few programs need

        return Advisories(
            self.nc, Advisory if kind is None else kind, stream=stream, consumer=consumer, callback=callback
        )

    # --- streams --------------------------------------------------------------------------------------------

    def create_stream(
        self,
        config: StreamConfig | None = None,
        *,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[StreamConfigDict],
    ) -> Stream:
        """Create a stream; the same configuration again is fine, another one raises StreamNameInUse.

        `pedantic` makes the server refuse settings that it would otherwise adjust (server 2.11).

        `fields` are the fields of StreamConfig.
        """
        config = given(StreamConfig, config, fields)
        return self._handle(self.put_stream("CREATE", config, pedantic=pedantic, timeout=timeout))

    def update_stream(
        self,
        config: StreamConfig | None = None,
        *,
        drop_unknown: bool = False,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[StreamConfigDict],
    ) -> Stream:
        """Replace the whole configuration of a stream; raises StreamNotFound.

        Start from `stream.info().config.replace(...)`. Settings of a newer server that this client does not know then
        go back unchanged (`config.extra`), unless you pass `drop_unknown`.

        `fields` are the fields of StreamConfig.
        """
        config = given(StreamConfig, config, fields)
        info = self.put_stream("UPDATE", config, drop_unknown=drop_unknown, pedantic=pedantic, timeout=timeout)
        return self._handle(info)

    def create_or_update_stream(
        self,
        config: StreamConfig | None = None,
        *,
        drop_unknown: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[StreamConfigDict],
    ) -> Stream:
        """Replace the configuration of a stream, or create it.

        `fields` are the fields of StreamConfig.
        """
        config = given(StreamConfig, config, fields)
        timeout = Deadline.of(timeout, self.api.timeout)
        try:
            return self.update_stream(config, drop_unknown=drop_unknown, timeout=timeout)
        except StreamNotFound:
            return self._handle(self.put_stream("CREATE", config, drop_unknown=drop_unknown, timeout=timeout))

    def get_or_create_stream(
        self, config: StreamConfig | None = None, *, timeout: Timeout = DEFAULT, **fields: Unpack[StreamConfigDict]
    ) -> Stream:
        """The existing stream of that name, unchanged, else a new one with this configuration.

        `fields` are the fields of StreamConfig.
        """
        config = given(StreamConfig, config, fields)
        timeout = Deadline.of(timeout, self.api.timeout)
        config.check()
        try:
            return self.stream(config.name, timeout=timeout)
        except StreamNotFound:
            pass
        try:
            return self.create_stream(config, timeout=timeout)
        except StreamNameInUse:  # another client was faster
            return self.stream(config.name, timeout=timeout)

    def put_stream(
        self,
        operation: Literal["CREATE", "UPDATE"],
        config: StreamConfig,
        *,
        drop_unknown: bool = False,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> StreamInfo:
        """The request behind create and update; returns the server's info."""
        kinds.check(bool, drop_unknown=drop_unknown, pedantic=pedantic)
        kinds.check(StreamConfig, config=config)
        timeout = Deadline.of(timeout, self.api.timeout)
        config.check()
        if drop_unknown:
            config = model_base.without_unknown(config)
        self.capabilities.check_config(config, timeout)
        metadata = user_metadata(config.metadata)
        body = model_base.to_wire(config if metadata == config.metadata else config.replace(metadata=metadata))
        if pedantic:
            self.capabilities.require("pedantic", OPERATIONS["pedantic"], timeout)
            body["pedantic"] = True
        info = self.api.request(f"STREAM.{operation}.{config.name}", body, StreamInfo, timeout=timeout)
        self.capabilities.check_echo(config, info.config, f"stream {config.name!r} was {operation.lower()}d")
        return info

    def _handle(self, info: StreamInfo) -> Stream:
        return Stream(self, info.config.name, info)

    def stream(self, name: str, *, fetch_info: bool = True, timeout: Timeout = DEFAULT) -> Stream:
        """The handle of an existing stream; raises StreamNotFound. `fetch_info=False` sends nothing."""
        kinds.check(bool, fetch_info=fetch_info)
        stream = Stream(self, name)
        if fetch_info:
            stream.info(timeout=timeout)
        return stream

    def delete_stream(self, name: str, *, timeout: Timeout = DEFAULT) -> None:
        """Delete a stream with its messages and consumers; raises StreamNotFound."""
        operation = f"STREAM.DELETE.{names.check_stream(name)}"
        if not self.api.request(operation, None, Success, timeout=timeout).success:
            raise ApiError(0, 0, f"the server did not delete stream {name!r} and gave no reason")

    def stream_names(self, *, subject: str | None = None, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """Names of all streams, or of the streams that take a subject; page by page as you iterate.

        `timeout` bounds the complete listing; by default each page (1,024 names) has the time of an API call. Raises
        ListingIncomplete if the pages do not fit together, or if servers of a cluster are silent.
        """
        return self.api.items("STREAM.NAMES", "streams", _by_subject(subject), timeout=timeout)

    def streams(self, *, subject: str | None = None, timeout: Timeout = DEFAULT) -> Iterator[StreamInfo]:
        """Information about all streams, or those that take a subject; page by page (256) as you iterate."""
        found = self.api.items("STREAM.LIST", "streams", _by_subject(subject), timeout=timeout)
        return (model_base.from_wire(plain, StreamInfo) for plain in found)

    def stream_name_by_subject(self, subject: str, *, timeout: Timeout = DEFAULT) -> str:
        """The stream that takes a subject (wildcards allowed); raises NoStreamForSubject."""
        checks.filter_subject(subject)
        for name in self.stream_names(subject=subject, timeout=timeout):
            return name
        raise NoStreamForSubject(f"no stream takes messages on {subject!r}", subject)

    # --- consumers: the same methods as on Stream, for callers that have only the stream's name -----------------

    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """See Stream.create_consumer."""
        return Stream(self, stream).create_consumer(config, pedantic=pedantic, timeout=timeout, **fields)

    def update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        drop_unknown: bool = False,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """See Stream.update_consumer."""
        handle = Stream(self, stream)
        return handle.update_consumer(config, drop_unknown=drop_unknown, pedantic=pedantic, timeout=timeout, **fields)

    def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """See Stream.create_or_update_consumer."""
        return Stream(self, stream).create_or_update_consumer(config, pedantic=pedantic, timeout=timeout, **fields)

    def get_or_create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """See Stream.get_or_create_consumer."""
        return Stream(self, stream).get_or_create_consumer(config, timeout=timeout, **fields)

    def consumer(self, stream: str, name: str, *, fetch_info: bool = True, timeout: Timeout = DEFAULT) -> Consumer:
        """See Stream.consumer. `fetch_info=False` sends nothing."""
        return Stream(self, stream).consumer(name, fetch_info=fetch_info, timeout=timeout)

    def ordered_consumer(self, stream: str, **options: Unpack[OrderedOptionsDict]) -> OrderedConsumer:
        """See Stream.ordered_consumer."""
        return Stream(self, stream).ordered_consumer(**options)

    def ordered_push_consumer(
        self, stream: str, *, heartbeat: float | dt.timedelta = 5.0, **options: Unpack[OrderedOptionsDict]
    ) -> OrderedPushConsumer:
        """See Stream.ordered_push_consumer."""
        return Stream(self, stream).ordered_push_consumer(heartbeat=heartbeat, **options)

    def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> PushConsumer:
        """See Stream.create_push_consumer."""
        return Stream(self, stream).create_push_consumer(config, timeout=timeout, **fields)

    def update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        drop_unknown: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> PushConsumer:
        """See Stream.update_push_consumer."""
        return Stream(self, stream).update_push_consumer(config, drop_unknown=drop_unknown, timeout=timeout, **fields)

    def create_or_update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> PushConsumer:
        """See Stream.create_or_update_push_consumer."""
        return Stream(self, stream).create_or_update_push_consumer(config, timeout=timeout, **fields)

    def push_consumer(
        self, stream: str, name: str, *, config: ConsumerConfig | None = None, timeout: Timeout = DEFAULT
    ) -> PushConsumer:
        """See Stream.push_consumer. With `config` nothing is sent."""
        return Stream(self, stream).push_consumer(name, config=config, timeout=timeout)

    def consumer_info(self, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """See Stream.consumer_info."""
        return Stream(self, stream).consumer_info(name, timeout=timeout)

    def consumer_names(self, stream: str, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """See Stream.consumer_names."""
        return Stream(self, stream).consumer_names(timeout=timeout)

    def consumers(self, stream: str, *, timeout: Timeout = DEFAULT) -> Iterator[ConsumerInfo]:
        """See Stream.consumers."""
        return Stream(self, stream).consumers(timeout=timeout)

    def delete_consumer(self, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> None:
        """See Stream.delete_consumer."""
        Stream(self, stream).delete_consumer(name, timeout=timeout)

    def pause_consumer(
        self, stream: str, name: str, until: dt.datetime | float | dt.timedelta, *, timeout: Timeout = DEFAULT
    ) -> PauseState:
        """See Stream.pause_consumer."""
        return Stream(self, stream).pause_consumer(name, until, timeout=timeout)

    def resume_consumer(self, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> PauseState:
        """See Stream.resume_consumer."""
        return Stream(self, stream).resume_consumer(name, timeout=timeout)

    def reset_consumer(
        self, stream: str, name: str, seq: int | None = None, *, timeout: Timeout = DEFAULT
    ) -> ConsumerInfo:
        """See Stream.reset_consumer."""
        return Stream(self, stream).reset_consumer(name, seq, timeout=timeout)

    def unpin_consumer(self, stream: str, name: str, group: str, *, timeout: Timeout = DEFAULT) -> None:
        """See Stream.unpin_consumer."""
        Stream(self, stream).unpin_consumer(name, group, timeout=timeout)


def _by_subject(subject: str | None) -> dict[str, Any] | None:
    return None if subject is None else {"subject": names.check_subject(subject, wildcards=True)}
