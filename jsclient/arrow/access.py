"""The few JetStream requests that planning and reading need, retried while the server is unavailable.

Spark does not retry a failed `latestOffset` or `commit`, so one lost request would end the query. Therefore every
request here is retried until `reconnectTimeout` has passed. The error that is raised then carries a token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from jsclient import errors
from jsclient.arrow.chunks import Matching, Times
from jsclient.arrow.ranges import StreamState
from jsclient.connection import engine_of
from jsclient.durations import Deadline, to_ns
from jsclient.jetstream.api import consumer_requests
from jsclient.jetstream.api.capabilities import Capabilities
from jsclient.jetstream.api.models import ConsumerInfo, StreamInfo
from jsclient.jetstream.api.requests import API_TIMEOUT, Api
from jsclient.jetstream.api.stored_messages import Parts, parts_of
from jsclient.protocol import has_wildcard

if TYPE_CHECKING:
    from jsclient.arrow.settings import Refused, Settings
    from jsclient.connection import Connection

T = TypeVar("T")
log: logging.Logger = logging.getLogger("jsclient.arrow")

CONSUMER_LIMIT: Final = 10026  # err_code of "maximum consumers limit reached"
RETRY_PAUSE: Final = 0.2  # seconds between two attempts; a restarted server is back within about a second
KEEP_ANSWERS: Final = 60.0  # seconds for which the tasks of a worker share answers about a stream
MOST_ANSWERS: Final = 1000
FEW_FILTERS: Final = 8  # one request to the leader for each
MOST_STEPS: Final = 100
PULL_MESSAGES: Final = 5_000  # for which one request asks at most
PULL_BYTES: Final = 4 << 20
RETRIED: Final = (
    errors.JetStreamUnavailable,
    errors.RequestTimeout,
    errors.ConnectionLost,
    errors.JetStreamTemporarilyUnavailable,
    errors.TooManyRequests,
)


_answers: WeakKeyDictionary[Connection, dict[Any, tuple[float, Any]]] = WeakKeyDictionary()


def cached(nc: Connection, key: Any, ask: Callable[[], T]) -> T:
    """The result of `ask` from the last minute on this connection, or a new one. Tasks of one worker share connections.

    A task that fails closes its connection, so a retry calls `ask` again.
    """
    answers = _answers.setdefault(nc, {})
    known = answers.get(key)
    if known is None or known[0] < time.monotonic():
        if len(answers) >= MOST_ANSWERS:
            answers.clear()
        known = answers[key] = (time.monotonic() + KEEP_ANSWERS, ask())
    return known[1]


def forget(nc: Connection, key: Any) -> None:
    """Drop the answer, so the next call asks again."""
    _answers.get(nc, {}).pop(key, None)


class StreamAccess:
    """One stream as the data source uses it. Each task and planning call makes a new one; its only state is caches."""

    def __init__(self, nc: Connection, options: Settings, stream: str = "", timeout: float | None = None) -> None:
        self.nc = nc
        self.options = options
        self.stream: str = stream or options.stream
        self.deadline: Deadline = Deadline(timeout)  # for all requests and reads of this object
        self.api: Api = Api(nc, domain=options.domain, prefix=options.api_prefix)
        self.capabilities: Capabilities = cached(nc, ("capabilities", self.api.prefix), lambda: Capabilities(self.api))

    def retrying(self, what: str, call: Callable[[], T]) -> T:
        """Call until it works. If the server stays unavailable too long, JETSTREAM_READ_FAILED names `what`."""
        deadline = Deadline(self.deadline.at_most(self.options.reconnect_timeout))
        while True:
            try:
                return call()
            except RETRIED as error:
                if deadline.expired():
                    raise self.failed(what, error) from error
                log.info("%s of stream %r: %s; trying again", what, self.stream, type(error).__name__)
                time.sleep(deadline.at_most(RETRY_PAUSE))
            except errors.StreamNotFound as error:
                raise self.options.refuse(
                    "JETSTREAM_STREAM_NOT_FOUND",
                    f"there is no stream {self.stream!r} ({self.options.hide(errors.brief(error))}); "
                    "check its name and domain",
                ) from error
            except errors.ConsumerFilterError:
                raise  # the reader has another way
            except errors.AccountLimitExceeded as error:
                # Other tasks end and delete their consumers. Consumers of killed tasks vanish after their threshold.
                if error.err_code != CONSUMER_LIMIT or deadline.expired():
                    raise self.failed(what, error) from error
                log.info("stream %r: %s; waiting for other tasks", self.stream, error)
                time.sleep(deadline.at_most(RETRY_PAUSE))
            except errors.JsClientError as error:
                raise self.failed(what, error) from error

    def patience(self) -> float:
        """Seconds for one request to the API, at most the remaining time."""
        return self.deadline.at_most(API_TIMEOUT)

    def failed(self, what: str, error: BaseException) -> Refused:
        if self.deadline.expired():
            return self.timed_out(what)
        text = self.options.hide(f"{type(error).__name__}: {errors.brief(error)}")
        return self.options.refuse("JETSTREAM_READ_FAILED", f"{what} of stream {self.stream!r} failed: {text}")

    def timed_out(self, what: str) -> Refused:
        return self.options.refuse(
            "JETSTREAM_TASK_TIMEOUT",
            f"stream {self.stream!r}: {what} took longer than {self.deadline.seconds:g} s ({self.options.time_limit})",
        )

    # --- the stream -------------------------------------------------------------------------------------

    def info(self) -> StreamInfo:
        return self.retrying(
            "STREAM.INFO",
            lambda: self.api.request(
                f"STREAM.INFO.{self.stream}", None, StreamInfo, timeout=self.patience(), read=True
            ),
        )

    def state(self, info: StreamInfo | None = None) -> StreamState:
        """One STREAM.INFO for the planner."""
        info = info or self.info()
        created = "" if info.created is None else getattr(info.created, "text", "") or info.created.isoformat()
        config, state = info.config, info.state
        last = state.last_seq
        return StreamState(
            name=self.stream,
            created=created,
            # A new stream reports 0 and 0, an emptied one last + 1.
            first=last + 1 if state.messages == 0 else max(1, state.first_seq),
            last=last,
            messages=state.messages,
            bytes=state.bytes,
            retention=config.retention or "limits",
            # For a mirror, too. With mirror_direct it answers for its origin; for its own name it needs allow_direct.
            allow_direct=bool(config.allow_direct),
            consumer_count=state.consumer_count,
            compacted=self.options.compacted,
            last_ns=_nanoseconds(getattr(state.last_ts, "text", "")) if state.messages else None,
        )

    def direct_works(self, state: StreamState) -> bool:
        """True if ranges can be read by batched direct get: the stream allows it, and the server is 2.11 or later."""
        return state.allow_direct and self.capabilities.at_least((2, 11)) is True

    def sequence_at(self, ns: int, state: StreamState) -> int:
        """The first sequence stored at or after a point in time; state.end when there is none.

        A temporary consumer that starts at this time finds it on every server. Work queues do not allow such a
        consumer, so they need a direct get (2.11).
        """
        if state.messages == 0:
            return state.end
        if state.retention == "workqueue":
            body = {"start_time": rfc3339(ns), "next_by_subj": ">"}
            found = self.retrying("direct get by time", lambda: self.direct_get(body))
            return state.end if found is None else found.sequence
        deadline = Deadline(self.options.reconnect_timeout)
        while True:
            info = self.glance({"deliver_policy": "by_start_time", "opt_start_time": rfc3339(ns)})
            if info.num_pending:
                return min(max(info.delivered.stream_seq + 1, state.first), state.end)
            if self.next_on_leader(info.delivered.stream_seq + 1, ()) is None:
                return state.end
            # The consumer is on a replica that lags behind.
            if deadline.expired():
                raise self.failed("looking up a time", errors.RequestTimeout("a replica does not catch up"))
            time.sleep(deadline.at_most(RETRY_PAUSE))

    def next_on_leader(self, seq: int, filters: tuple[str, ...], before: int | None = None) -> int | None:
        """The first message at or after `seq` that matches, according to the leader of the stream; None if none does.

        The search ends at `before`.
        """
        if len(filters) > FEW_FILTERS:
            # Go from message to message. With many filters a match is near, so this mostly needs fewer requests than
            # filters.
            matching = Matching(filters)
            for _ in range(min(len(filters), MOST_STEPS)):
                found = self._on_leader({"seq": max(1, seq), "next_by_subj": ">"})
                if found is None or (before is not None and int(found["seq"]) >= before):
                    return None
                if matching.one(str(found["subject"]).encode("utf-8", "surrogateescape")):
                    return int(found["seq"])
                seq = int(found["seq"]) + 1
        each = [self._on_leader({"seq": max(1, seq), "next_by_subj": subject}) for subject in filters or (">",)]
        return min((int(found["seq"]) for found in each if found is not None), default=None)

    def _on_leader(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The stored message that the leader finds for a STREAM.MSG.GET; None if there is none."""

        def get() -> dict[str, Any] | None:
            try:
                answer = self.api.request(f"STREAM.MSG.GET.{self.stream}", body, timeout=self.patience(), read=True)
            except errors.MessageNotFound:
                return None
            return dict(answer["message"])

        return self.retrying("STREAM.MSG.GET", get)

    def direct_get(self, body: dict[str, Any]) -> Parts | None:
        """One message by direct get (server 2.11), with the number of messages behind it; None if there is none.

        It makes one attempt. An answer that proves nothing raises RequestTimeout, for example the answer of a mirror,
        which may keep less than the stream.
        """
        body = {"batch": 1, **body}
        message = self.api.request_raw(f"DIRECT.GET.{self.stream}", body, timeout=self.patience(), read=True)
        if message.status is not None:
            if message.status.code == 404:
                return None
            raise errors.RequestTimeout(f"{message.status.code} {message.status.description}")
        found = parts_of(message)
        if found.stream != self.stream.encode() or found.pending is None:
            raise errors.RequestTimeout("a mirror, or a server before 2.11, answered")
        return found

    def stored_at(self, seq: int) -> int | None:
        """The storage time of the message with this sequence, in ns since 1970; None if there is no such message."""
        found = self._on_leader({"seq": seq})
        return None if found is None else _nanoseconds(str(found.get("time", "")))

    def mark(self, state: StreamState, start: int, end: int) -> tuple[int, int] | None:
        """Sequence and time of the last message of [start, end), to recognize the store later; None without one."""
        if end <= start:
            return None
        stored = state.last_ns if end == state.end else self.stored_at(end - 1)
        return None if stored is None else (end - 1, stored)

    def purge_below(self, seq: int) -> None:
        """Remove messages below `seq` that match the subjects of the query; they are finally processed."""
        for subject in self.options.subjects or ("",):
            body: dict[str, Any] = {"seq": seq}
            if subject:
                body["filter"] = subject
            self.retrying("purge", lambda body=body: self.api.request(f"STREAM.PURGE.{self.stream}", body))  # type: ignore[misc]

    # --- consumers --------------------------------------------------------------------------------------

    def new_name(self, label: str) -> str:
        from jsclient.nuid import next_nuid

        return f"{self.options.consumers}_{label}_{next_nuid()}"

    def glance(self, more: dict[str, Any]) -> ConsumerInfo:
        """The numbers of a consumer that is deleted without being read."""
        name = self.new_name("look")
        info = self.create_consumer(name, more, 5.0)
        self.delete_consumer(name)
        return info

    def create_consumer(self, name: str, more: dict[str, Any], threshold: float) -> ConsumerInfo:
        """An ephemeral AckNone pull consumer in memory, R1, that vanishes `threshold` seconds after its last pull."""
        config = {
            "name": name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "max_deliver": 1,
            "inactive_threshold": to_ns(threshold),
            **more,
        }
        operation = f"CONSUMER.CREATE.{self.stream}.{name}"
        filters = config.get("filter_subjects")
        if filters is not None and len(filters) == 1:
            config["filter_subject"] = config.pop("filter_subjects")[0]
            if not has_wildcard(config["filter_subject"]):
                # Permissions can name this form; the server accepts the form without it just as well.
                operation += f".{config['filter_subject']}"
        body = {"stream_name": self.stream, "config": config}
        info = self.retrying(
            "CONSUMER.CREATE", lambda: self.api.request(operation, body, ConsumerInfo, timeout=self.patience())
        )
        if filters is not None and len(filters) > 1 and not info.config.filter_subjects:
            raise self._too_old()
        return info

    def delete_consumer(self, name: str) -> None:
        """Best effort, without waiting. A consumer that stays behind vanishes after its inactive threshold."""
        consumer_requests.delete_soon(self.api, self.stream, name)
        with suppress(errors.JsClientError):
            engine_of(self.nc).flush_outbox()  # a worker may be killed when its task is done

    def check_filters(self) -> None:
        """Check that the server is 2.10 if there are several filters. An older one would ignore them and deliver
        everything."""
        if len(self.options.subjects) > 1 and self.capabilities.at_least((2, 10)) is False:
            raise self._too_old()

    def _too_old(self) -> Refused:
        return self.options.refuse(
            "JETSTREAM_SERVER_TOO_OLD",
            f"several subjects need nats-server 2.10, the server is {self.nc.server_info.version}; "
            "give one filter, or filter what was read",
        )


def _nanoseconds(text: str) -> int | None:
    """A time of the server as ns since 1970; None if it has another form than servers use."""
    return Times().ns(text.encode()) if text.endswith("Z") and len(text) >= 20 else None


def from_sequence(seq: int, filters: Sequence[str]) -> dict[str, Any]:
    """The configuration of a consumer that begins at a sequence."""
    begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, seq)}
    return {**begin, "filter_subjects": list(filters)} if filters else begin


def rfc3339(ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339 with all nine digits."""
    seconds, rest = divmod(ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
