"""Create, update, read, list and delete consumers: the requests behind the methods of JetStream and Stream."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jsclient import kinds
from jsclient.checks import FilterInSubject
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import ApiError, ConfigError, ConsumerDoesNotExist, ConsumerExists, ConsumerNotFound, JsClientError
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.capabilities import OPERATIONS
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo, PauseState, Success
from jsclient.jetstream.api.models_stream import user_metadata

if TYPE_CHECKING:
    from jsclient.jetstream.api.access import Access
    from jsclient.jetstream.api.requests import Api

Action = Literal["create", "update", ""]


def named(config: ConsumerConfig) -> ConsumerConfig:
    """The configuration with a name. It is generated here, so a repeated create makes no second consumer."""
    return config if config.effective_name else config.replace(name=names.new_name())


def put(
    js: Access,
    stream: str,
    config: ConsumerConfig,
    action: Action,
    *,
    timeout: Timeout = DEFAULT,
    pedantic: bool = False,
    drop_unknown: bool = False,
    every: float = 0.0,
) -> ConsumerInfo:
    """Create ("create"), change ("update") or either (""). For `every`, see `Api.request`."""
    names.check_stream(stream)
    deadline = Deadline.of(timeout, js.api.timeout)
    config = named(config)
    config.check()
    if drop_unknown:
        config = model_base.without_unknown(config)
    name = config.effective_name or ""
    js.capabilities.check_config(config, deadline)
    if pedantic:
        js.capabilities.require("pedantic", OPERATIONS["pedantic"], deadline)
    if action and js.capabilities.at_least((2, 10), deadline) is False:
        existing = _emulate_action(js, stream, config, action, deadline)
        if existing is not None:
            return existing
    operation = f"CONSUMER.CREATE.{stream}.{name}"
    if config.filter_subject:
        # Permissions can be given by filter in this form.
        operation = FilterInSubject(f"{operation}.{config.filter_subject}")
    body: dict[str, Any] = {"stream_name": stream, "config": model_base.to_wire(clean(config))}
    if action:
        body["action"] = action
    if pedantic:
        body["pedantic"] = True
    info = js.api.request(operation, body, ConsumerInfo, timeout=deadline, every=every)
    js.capabilities.check_echo(config, info.config, f"consumer {name!r} was made")
    return info


def clean(config: ConsumerConfig) -> ConsumerConfig:
    """Without the metadata that servers add automatically."""
    metadata = user_metadata(config.metadata)
    return config if metadata == config.metadata else config.replace(metadata=metadata)


def _emulate_action(
    js: Access, stream: str, config: ConsumerConfig, action: Action, timeout: Timeout
) -> ConsumerInfo | None:
    """Servers before 2.10 ignore `action`: a create would change an existing consumer, an update would create one.

    Between the question and the request another client may create or delete it; only a newer server can exclude that.
    """
    try:
        existing = info(js, stream, config.effective_name or "", timeout=timeout)
    except ConsumerNotFound:
        if action == "update":
            raise ConsumerDoesNotExist(400, 10149, "consumer does not exist") from None
        return None
    if action == "create":
        if not same(config, existing.config):
            raise ConsumerExists(400, 10148, "consumer already exists")
        return existing
    return None


def same(wanted: ConsumerConfig, existing: ConsumerConfig) -> bool:
    """True if everything that is set in `wanted` is so in `existing` (apart from names and our defaults)."""
    for field in msgspec.structs.fields(ConsumerConfig):
        value = getattr(wanted, field.name)
        if field.name in ("name", "extra", "metadata") or value is None:
            continue
        if value != getattr(existing, field.name) and (value or getattr(existing, field.name)):
            return False
    return bool(wanted.durable_name) == bool(existing.durable_name)


def info(js: Access, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
    operation = f"CONSUMER.INFO.{names.check_stream(stream)}.{names.check_consumer(name)}"
    return js.api.request(operation, None, ConsumerInfo, timeout=timeout, read=True)


def delete(js: Access, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> None:
    operation = f"CONSUMER.DELETE.{names.check_stream(stream)}.{names.check_consumer(name)}"
    if not js.api.request(operation, None, Success, timeout=timeout).success:
        raise ApiError(0, 0, f"the server did not delete consumer {name!r} and gave no reason")


def delete_soon(api: Api, stream: str, name: str) -> None:
    """Best effort and without waiting; the server removes a missed consumer after inactive_threshold."""
    engine = engine_of(api.nc)
    try:
        subject = api.subject(f"CONSUMER.DELETE.{stream}.{name}")
        engine.enqueue_at_once(engine.encode(subject, b"", api.nc.new_inbox().encode()))
    except JsClientError:
        pass


def consumer_names(js: Access, stream: str, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
    return js.api.items(f"CONSUMER.NAMES.{names.check_stream(stream)}", "consumers", timeout=timeout)


def consumer_infos(js: Access, stream: str, *, timeout: Timeout = DEFAULT) -> Iterator[ConsumerInfo]:
    found = js.api.items(f"CONSUMER.LIST.{names.check_stream(stream)}", "consumers", timeout=timeout)
    return (model_base.from_wire(plain, ConsumerInfo) for plain in found)


def pause(
    js: Access, stream: str, name: str, until: dt.datetime | float | dt.timedelta, *, timeout: Timeout = DEFAULT
) -> PauseState:
    """Stop delivery until a point in time, or for a number of seconds by this machine's clock."""
    if not isinstance(until, dt.datetime):
        seconds = model_base.as_duration(until, "until")
        if seconds < 0:
            raise ConfigError(f"pause_consumer: until must not be negative, got {until!r} seconds")
        until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds)
    stamp = model_base.as_timestamp(until, "until")
    return _pause(js, stream, name, {"pause_until": model_base.format_time(stamp)}, "pause_consumer", timeout)


def resume(js: Access, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> PauseState:
    return _pause(js, stream, name, {}, "resume_consumer", timeout)


def _pause(js: Access, stream: str, name: str, body: dict[str, Any], what: str, timeout: Timeout) -> PauseState:
    operation = f"CONSUMER.PAUSE.{names.check_stream(stream)}.{names.check_consumer(name)}"
    timeout = Deadline.of(timeout, js.api.timeout)
    js.capabilities.require(what, OPERATIONS[what], timeout)
    return js.api.request(operation, body, PauseState, timeout=timeout)


def unpin(js: Access, stream: str, name: str, group: str, *, timeout: Timeout = DEFAULT) -> None:
    operation = f"CONSUMER.UNPIN.{names.check_stream(stream)}.{names.check_consumer(name)}"
    kinds.check(str, group=group)
    if not group:
        raise ConfigError("unpin_consumer needs the name of the priority group")
    timeout = Deadline.of(timeout, js.api.timeout)
    js.capabilities.require("unpin_consumer", OPERATIONS["unpin_consumer"], timeout)
    js.api.request(operation, {"group": group}, timeout=timeout)


def step_down(js: Access, stream: str, name: str, to: str | None, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
    from jsclient.jetstream.api import leadership

    of = f"CONSUMER.{names.check_stream(stream)}.{names.check_consumer(name)}"
    deadline = Deadline.of(timeout, js.api.timeout)

    def look(by: Deadline) -> ConsumerInfo:
        return info(js, stream, name, timeout=by)

    return leadership.step_down(js, of, f"consumer {name!r} of stream {stream!r}", look, to, deadline)


def reset(js: Access, stream: str, name: str, seq: int | None = None, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
    """Back to `seq` of the stream, or to the message after the ack floor; `reset_seq` of the answer has the place."""
    operation = f"CONSUMER.RESET.{names.check_stream(stream)}.{names.check_consumer(name)}"
    kinds.check(int, None, seq=seq)
    if seq is not None and seq < 1:
        raise ConfigError(f"seq must be 1 or more, or None for the ack floor; got {seq}")
    timeout = Deadline.of(timeout, js.api.timeout)
    js.capabilities.require("reset_consumer", OPERATIONS["reset_consumer"], timeout)
    body = {} if seq is None else {"seq": seq}
    return js.api.request(operation, body, ConsumerInfo, timeout=timeout)
