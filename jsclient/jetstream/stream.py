"""The handle of one stream."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jsclient import kinds
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import (
    ApiError,
    ConfigError,
    ConsumerExists,
    ConsumerNotFound,
    NotPullConsumer,
    NotPushConsumer,
    PurgeFailed,
)
from jsclient.jetstream.api import consumer_requests, model_base, names, stored_messages
from jsclient.jetstream.api.capabilities import OPERATIONS
from jsclient.jetstream.api.model_base import given
from jsclient.jetstream.api.models import (
    ConsumerConfig,
    ConsumerInfo,
    PauseState,
    Purged,
    RawStreamMsg,
    StreamInfo,
    Success,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.api.config_fields import ConsumerConfigDict
    from jsclient.jetstream.consumer import Consumer
    from jsclient.jetstream.consuming.ordered import OrderedConsumer
    from jsclient.jetstream.consuming.ordered_sequence import OrderedOptionsDict
    from jsclient.jetstream.consuming.push import OrderedPushConsumer, PushConsumer
    from jsclient.jetstream.context import JetStream


class Stream:
    """A stream by name. Making a handle sends nothing; `js.stream()` asks the server.

        stream = js.stream("ORDERS")
        print(stream.info().state.messages)
        print(stream.get_last_msg("ORDERS.new").data)
        stream.purge(keep=100)

    Thread-safe. `cached_info` is the last information that this handle received from the server, None if it never
    asked.

    Attributes:
        js: The JetStream object that it was made with.
        name: Its name.
        cached_info: The last answer of the server to this handle; None if it never asked.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        config: The configuration as one object. Without it, pass its fields as keywords.
        pedantic: True: the server refuses settings that it would adjust otherwise (server 2.11). Default False.
        drop_unknown: True removes settings of a newer server that this client does not know. By default the client
            sends them back unchanged.
        direct: True reads by direct get, which any replica answers; False reads from the leader. By default the
            stream's `allow_direct` decides.

    Further options:
        create_consumer, update_consumer, create_or_update_consumer, get_or_create_consumer: see `ConsumerConfigDict`.
        create_push_consumer, update_push_consumer, create_or_update_push_consumer: see `ConsumerConfigDict`.
        ordered_consumer, ordered_push_consumer: see `OrderedOptionsDict`.
    """

    def __init__(self, js: JetStream, name: str, info: StreamInfo | None = None) -> None:
        self.js = js
        self.name: str = names.check_stream(name)
        self.cached_info = info

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.js.nc).refuse_pickle(self)

    # --- the stream -----------------------------------------------------------------------------------------

    def info(
        self, *, deleted_details: bool = False, subjects_filter: str | None = None, timeout: Timeout = DEFAULT
    ) -> StreamInfo:
        """Ask the server; on request with the deleted sequences, and with the message count of each matching subject.

        The client reads all pages of subjects into one result. For many subjects see `subjects()`, which is lazy.

        `deleted_details`: with the sequences of deleted messages. `subjects_filter`: with the matching subjects and the
        number of messages of each; None (default) leaves subjects out.
        """
        kinds.check(bool, deleted_details=deleted_details)
        request: dict[str, Any] = {}
        if deleted_details:
            request["deleted_details"] = True
        if subjects_filter is not None:
            request["subjects_filter"] = names.check_subject(subjects_filter, "subjects_filter", wildcards=True)
        operation = f"STREAM.INFO.{self.name}"
        if not subjects_filter:
            plain = self.js.api.request(operation, request or None, timeout=timeout, read=True)
        else:
            plain = self._all_pages(operation, request, Deadline.of(timeout, self.js.api.timeout))
        info = model_base.from_wire(plain, StreamInfo)
        self.cached_info = info
        return info

    def _all_pages(self, operation: str, request: dict[str, Any], timeout: Timeout) -> dict[str, Any]:
        pages = self.js.api.pages(operation, "state.subjects", request, timeout=timeout)
        first = next(pages)
        subjects: dict[str, Any] = dict(first.get("state", {}).get("subjects") or {})
        for page in pages:
            subjects.update(page.get("state", {}).get("subjects") or {})
        first.setdefault("state", {})["subjects"] = subjects
        return first

    def subjects(self, subjects_filter: str = ">", *, timeout: Timeout = DEFAULT) -> Iterator[tuple[str, int]]:
        """Subjects of stored messages and the number of messages of each, page by page (100,000) as you iterate.

        `subjects_filter`: only those that match it; wildcards are allowed.
        """
        request = {"subjects_filter": names.check_subject(subjects_filter, "subjects_filter", wildcards=True)}
        pages = self.js.api.pages(f"STREAM.INFO.{self.name}", "state.subjects", request, timeout=timeout)
        return (item for page in pages for item in (page.get("state", {}).get("subjects") or {}).items())

    def purge(
        self,
        *,
        subject: str | None = None,
        seq: int | None = None,
        keep: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Remove messages and return their number: all, those on `subject`, before `seq`, or all but the last `keep`.

        The message at `seq` itself stays. `seq` and `keep` exclude each other.
        """
        if seq is not None and keep is not None:
            raise ConfigError("purge: seq and keep exclude each other")
        request: dict[str, Any] = {}
        if subject is not None:
            request["filter"] = names.check_subject(subject, "subject", wildcards=True)
        for name, value in (("seq", seq), ("keep", keep)):
            if value is None:
                continue
            if names.whole(value, name) < 1:
                # The server reads 0 as "not given" and would remove everything.
                raise ConfigError(f"purge: {name} must be 1 or more, or None; got {value}")
            request[name] = value
        answer = self.js.api.request(f"STREAM.PURGE.{self.name}", request or None, Purged, timeout=timeout)
        if not answer.success:
            raise PurgeFailed(0, 0, f"stream {self.name!r} was not purged, and the server gave no reason")
        return answer.purged

    def seal(self, *, timeout: Timeout = DEFAULT) -> StreamInfo:
        """Close the stream permanently: nothing can be stored, deleted or purged any more. This cannot be undone."""
        timeout = Deadline.of(timeout, self.js.api.timeout)
        current = self.info(timeout=timeout).config
        info = self.js.put_stream("UPDATE", current.replace(sealed=True), timeout=timeout)
        self.cached_info = info
        return info

    def delete(self, *, timeout: Timeout = DEFAULT) -> None:
        """Delete the stream with its messages and consumers."""
        self.js.delete_stream(self.name, timeout=timeout)

    # --- its servers ----------------------------------------------------------------------------------------

    def step_down(self, *, to: str | None = None, timeout: Timeout = DEFAULT) -> StreamInfo:
        """Make the leader of the stream stop leading, and return when another server leads.

        `to`: the server that is to lead (server 2.11). Raises TimedOut if the client saw no change within `timeout` (5
        s by default). The change may still follow.
        """
        from jsclient.jetstream.api import leadership

        deadline = Deadline.of(timeout, self.js.api.timeout)
        return leadership.step_down(
            self.js, f"STREAM.{self.name}", f"stream {self.name!r}", lambda by: self.info(timeout=by), to, deadline
        )

    def remove_peer(self, server: str, *, timeout: Timeout = DEFAULT) -> StreamInfo:
        """Take the stream away from a server, and return when that server no longer holds it.

        Another server of the cluster takes its place. `info().cluster` shows when the new server is `current`. Raises
        PeerNotFound for a server that does not hold the stream, ConfigError for a stream of one replica, and TimedOut
        as `step_down` does.
        """
        from jsclient.jetstream.api import leadership

        kinds.check(str, server=server)

        deadline = Deadline.of(timeout, self.js.api.timeout)
        return leadership.remove_peer(self.js, self.name, server, lambda by: self.info(timeout=by), deadline)

    # --- its messages ---------------------------------------------------------------------------------------

    def get_msg(
        self, seq: int, *, subject: str | None = None, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> RawStreamMsg:
        """The message at `seq`; with `subject`, the first one at or after `seq` with a subject that matches.

        `direct=True` reads from any replica or mirror (cheap, may be a moment behind), False from the leader. None
        follows `direct_get` of the JetStream object, or else what the stream allows. Raises MessageNotFound.
        """
        request = _request(seq, subject)
        timeout = Deadline.of(timeout, self.js.api.timeout)
        return self._reader(direct, timeout).get(request, timeout)

    def get_data(
        self, seq: int, *, subject: str | None = None, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> bytes:
        """The payload of the message at `seq`, without its headers, subject and time. Arguments as in get_msg.

        The server sends nothing else (server 2.12). An older one sends the complete message. Raises MessageNotFound.
        """
        request = _request(seq, subject)
        timeout = Deadline.of(timeout, self.js.api.timeout)
        if self.js.capabilities.at_least(OPERATIONS["no_hdr"], timeout):
            request["no_hdr"] = True
        return self._reader(direct, timeout).data(request, timeout)

    def get_last_msg(self, subject: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> RawStreamMsg:
        """The newest message with a subject that matches; `direct` as in get_msg. Raises MessageNotFound."""
        request = {"last_by_subj": names.check_subject(subject, wildcards=True)}
        timeout = Deadline.of(timeout, self.js.api.timeout)
        return self._reader(direct, timeout).get(request, timeout)

    def get_first_msg(
        self, start_time: dt.datetime, *, subject: str | None = None, timeout: Timeout = DEFAULT
    ) -> RawStreamMsg:
        """The first message stored at that time or later (on `subject`, wildcards allowed). Raises MessageNotFound.

        Server 2.11 or later finds it in one request if the stream has `allow_direct`. Otherwise an ordered consumer
        finds it.
        """
        kinds.check(dt.datetime, start_time=start_time)
        from jsclient.jetstream import batch_get

        return batch_get.first_since(self, start_time, subject, timeout)

    def _reader(self, direct: bool | None, timeout: Deadline) -> stored_messages.Reader:
        use_direct = self.reads_direct(direct)
        silent = use_direct and self.js.capabilities.at_least((2, 10), timeout) is False
        return stored_messages.Reader(self.js.api, self.name, use_direct, fall_back=direct is None, silent=silent)

    def reads_direct(self, direct: bool | None = None) -> bool:
        """True if reads go to any replica: by `direct`, else by the JetStream object, else by what the stream allows.

        A handle that never asked the server reads from the leader.
        """
        kinds.check(bool, None, direct=direct)
        if direct is not None:
            return direct
        if self.js.direct_get is not None:
            return self.js.direct_get
        info = self.cached_info
        return info is not None and bool(info.config.allow_direct)

    def get_batch(
        self,
        batch: int,
        *,
        seq: int | None = None,
        start_time: dt.datetime | None = None,
        subject: str | None = None,
        max_bytes: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Iterator[RawStreamMsg]:
        """Up to `batch` messages from `seq` (default: the first) or `start_time` on, as they come.

        If the stream allows direct gets (server 2.11 or later), one request reads many messages. Otherwise the client
        reads each message separately, and an ordered consumer finds the first one since `start_time`. The timeout is
        for each request. `max_bytes` limits one answer of the server, not the total.

        `subject`: only messages on it (wildcards are allowed); by default all.
        """
        from jsclient.jetstream import batch_get

        return batch_get.get_batch(
            self, batch, seq=seq, start_time=start_time, subject=subject, max_bytes=max_bytes, timeout=timeout
        )

    def get_last_msgs(
        self,
        subjects: str | Iterable[str],
        *,
        up_to_seq: int | None = None,
        up_to_time: dt.datetime | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Iterator[RawStreamMsg]:
        """The newest message of every subject that matches, in the order of the stream.

        `up_to_seq` and `up_to_time` read the state at that point and need server 2.11. Without them, the client also
        reads older servers and streams without direct gets, subject by subject. A given `timeout` then bounds all
        subjects together.
        """
        from jsclient.jetstream import batch_get

        kinds.check(str, Iterable, subjects=subjects)
        kinds.check(int, None, up_to_seq=up_to_seq)
        wanted = [subjects] if isinstance(subjects, str) else list(subjects)
        return batch_get.get_last(self, wanted, up_to_seq=up_to_seq, up_to_time=up_to_time, timeout=timeout)

    def delete_msg(self, seq: int, *, timeout: Timeout = DEFAULT) -> None:
        """Delete one message; its bytes may stay on disk for a while. Raises MessageDeleteFailed."""
        self._delete_msg({"seq": seq, "no_erase": True}, timeout)

    def secure_delete_msg(self, seq: int, *, timeout: Timeout = DEFAULT) -> None:
        """Delete one message and overwrite its bytes with random data; slow. Raises MessageDeleteFailed."""
        self._delete_msg({"seq": seq}, timeout)

    def _delete_msg(self, request: dict[str, Any], timeout: Timeout) -> None:
        if names.whole(request["seq"], "seq") < 1:
            raise ConfigError(f"seq must be 1 or more, got {request['seq']}")
        if not self.js.api.request(f"STREAM.MSG.DELETE.{self.name}", request, Success, timeout=timeout).success:
            raise ApiError(0, 0, f"message {request['seq']} was not deleted, and the server gave no reason")

    # --- its pull consumers ---------------------------------------------------------------------------------

    def create_consumer(
        self,
        config: ConsumerConfig | None = None,
        *,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """Create a pull consumer; the same configuration again is fine, another one raises ConsumerExists.

        Without a name it creates an ephemeral consumer with a generated name.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put(config, "create", timeout, pedantic=pedantic)

    def update_consumer(
        self,
        config: ConsumerConfig | None = None,
        *,
        drop_unknown: bool = False,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """Replace the whole configuration of a consumer; raises ConsumerDoesNotExist.

        Start from `info().config.replace(...)`. Settings of a newer server that this client does not know then go back
        unchanged (`config.extra`), unless you pass `drop_unknown`.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put(config, "update", timeout, pedantic=pedantic, drop_unknown=drop_unknown)

    def create_or_update_consumer(
        self,
        config: ConsumerConfig | None = None,
        *,
        pedantic: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> Consumer:
        """Create a pull consumer, or replace the configuration of the existing one.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put(config, "", timeout, pedantic=pedantic)

    def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, *, timeout: Timeout = DEFAULT, **fields: Unpack[ConsumerConfigDict]
    ) -> Consumer:
        """The existing consumer of that name, unchanged, else a new one with this configuration.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        timeout = Deadline.of(timeout, self.js.api.timeout)
        config.check()
        config.check_pull()
        name = config.effective_name
        if name:
            try:
                return self.consumer(name, timeout=timeout)
            except ConsumerNotFound:
                pass
        try:
            return self.create_consumer(config, timeout=timeout)
        except ConsumerExists:  # another client was faster
            return self.consumer(name or "", timeout=timeout)

    def _put(
        self, config: ConsumerConfig, action: consumer_requests.Action, timeout: Timeout, **options: bool
    ) -> Consumer:
        kinds.check(bool, **options)
        config.check_pull()
        return self._pull_handle(consumer_requests.put(self.js, self.name, config, action, timeout=timeout, **options))

    def _pull_handle(self, info: ConsumerInfo) -> Consumer:
        from jsclient.jetstream.consumer import Consumer

        return Consumer(self.js, self.name, info.name, info)

    def consumer(self, name: str, *, fetch_info: bool = True, timeout: Timeout = DEFAULT) -> Consumer:
        """The handle of an existing pull consumer; raises ConsumerNotFound, NotPullConsumer.

        `fetch_info=False` sends nothing. Use it if the account has permission only to pull and ack.
        """
        from jsclient.jetstream.consumer import Consumer

        kinds.check(bool, fetch_info=fetch_info)

        if not fetch_info:
            return Consumer(self.js, self.name, names.check_consumer(name))
        info = consumer_requests.info(self.js, self.name, name, timeout=timeout)
        if info.config.is_push:
            raise NotPullConsumer(f"consumer {name!r} of stream {self.name!r} is a push consumer")
        return self._pull_handle(info)

    def ordered_consumer(self, **options: Unpack[OrderedOptionsDict]) -> OrderedConsumer:
        """Read every message once and in order, without acks. Sends nothing yet. Options: see OrderedOptions."""
        from jsclient.jetstream.consuming.ordered import OrderedConsumer

        return OrderedConsumer(self.js, self.name, **options)

    def ordered_push_consumer(
        self, *, heartbeat: float | dt.timedelta = 5.0, **options: Unpack[OrderedOptionsDict]
    ) -> OrderedPushConsumer:
        """An ordered consumer to which the server pushes: for accounts without permission to pull.

        `heartbeat`: seconds between the server's heartbeats (5).
        """
        from jsclient.jetstream.consuming.push import OrderedPushConsumer

        return OrderedPushConsumer(self.js, self.name, heartbeat=heartbeat, **options)

    # --- its push consumers ---------------------------------------------------------------------------------

    def create_push_consumer(
        self, config: ConsumerConfig | None = None, *, timeout: Timeout = DEFAULT, **fields: Unpack[ConsumerConfigDict]
    ) -> PushConsumer:
        """Create a push consumer (deliver_subject is required); raises ConsumerExists for another configuration.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put_push(config, "create", timeout)

    def update_push_consumer(
        self,
        config: ConsumerConfig | None = None,
        *,
        drop_unknown: bool = False,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[ConsumerConfigDict],
    ) -> PushConsumer:
        """Replace the whole configuration of a push consumer; raises ConsumerDoesNotExist.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put_push(config, "update", timeout, drop_unknown=drop_unknown)

    def create_or_update_push_consumer(
        self, config: ConsumerConfig | None = None, *, timeout: Timeout = DEFAULT, **fields: Unpack[ConsumerConfigDict]
    ) -> PushConsumer:
        """Create a push consumer, or replace the configuration of the existing one.

        `fields` are the fields of ConsumerConfig.
        """
        config = given(ConsumerConfig, config, fields)
        return self._put_push(config, "", timeout)

    def _put_push(
        self, config: ConsumerConfig, action: consumer_requests.Action, timeout: Timeout, **options: bool
    ) -> PushConsumer:
        kinds.check(bool, **options)
        from jsclient.jetstream.consuming.push import PushConsumer

        config.check_push()
        info = consumer_requests.put(self.js, self.name, config, action, timeout=timeout, **options)
        return PushConsumer(self.js, self.name, info.name, info.config, info)

    def push_consumer(
        self, name: str, *, config: ConsumerConfig | None = None, timeout: Timeout = DEFAULT
    ) -> PushConsumer:
        """The handle of an existing push consumer; raises ConsumerNotFound, NotPushConsumer.

        Pass `config` if the account has no permission to request consumer information. It describes how the consumer
        was created (deliver_subject, deliver_group, idle_heartbeat, flow_control, ack_policy). The call then sends
        nothing.
        """
        from jsclient.jetstream.consuming.push import PushConsumer

        kinds.check(ConsumerConfig, None, config=config)

        if config is not None:
            config.check_push()
            return PushConsumer(self.js, self.name, name, config)
        info = consumer_requests.info(self.js, self.name, name, timeout=timeout)
        if not info.config.is_push:
            raise NotPushConsumer(f"consumer {name!r} of stream {self.name!r} is a pull consumer")
        return PushConsumer(self.js, self.name, name, info.config, info)

    # --- all its consumers ----------------------------------------------------------------------------------

    def consumer_info(self, name: str, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Request information about a consumer of either kind. This is expensive: do not call it for every fetch."""
        return consumer_requests.info(self.js, self.name, name, timeout=timeout)

    def consumer_names(self, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """Names of all consumers, page by page as you iterate; `timeout` bounds the listing (default: 5 s a page)."""
        return consumer_requests.consumer_names(self.js, self.name, timeout=timeout)

    def consumers(self, *, timeout: Timeout = DEFAULT) -> Iterator[ConsumerInfo]:
        """Information about all consumers, page by page; `timeout` bounds the listing (default: 5 s a page)."""
        return consumer_requests.consumer_infos(self.js, self.name, timeout=timeout)

    def delete_consumer(self, name: str, *, timeout: Timeout = DEFAULT) -> None:
        """Delete a consumer; readers that wait on it get ConsumerDeleted. Raises ConsumerNotFound."""
        consumer_requests.delete(self.js, self.name, name, timeout=timeout)

    def pause_consumer(
        self, name: str, until: dt.datetime | float | dt.timedelta, *, timeout: Timeout = DEFAULT
    ) -> PauseState:
        """Stop delivery until a point in time or for a number of seconds (server 2.11); pulls wait meanwhile."""
        return consumer_requests.pause(self.js, self.name, name, until, timeout=timeout)

    def resume_consumer(self, name: str, *, timeout: Timeout = DEFAULT) -> PauseState:
        """End a pause, if there is one (server 2.11)."""
        return consumer_requests.resume(self.js, self.name, name, timeout=timeout)

    def reset_consumer(self, name: str, seq: int | None = None, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Deliver again from `seq`, or from the message after the ack floor (server 2.14); see `reset_seq`."""
        return consumer_requests.reset(self.js, self.name, name, seq, timeout=timeout)

    def unpin_consumer(self, name: str, group: str, *, timeout: Timeout = DEFAULT) -> None:
        """Let another client of the priority group take over (server 2.11)."""
        consumer_requests.unpin(self.js, self.name, name, group, timeout=timeout)


def _request(seq: int, subject: str | None) -> dict[str, Any]:
    """A request for the message at `seq`, or for the first one from there on with a subject that matches."""
    if names.whole(seq, "seq") < (0 if subject else 1):
        raise ConfigError(f"seq must be 1 or more, got {seq}")
    if subject is None:
        return {"seq": seq}
    return {"seq": seq, "next_by_subj": names.check_subject(subject, wildcards=True)}
