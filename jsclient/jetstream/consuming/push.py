"""Push consumers: the server sends messages to a subject without a request.

Pull consumers do the same with less to go wrong; push remains for queue groups of mixed clients and for old designs.
The client answers flow control in order with the messages: after the application took everything before it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from jsclient import checks, errors, handlers
from jsclient.codecs import OnBad
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming import diagnosis
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.pull_inboxes import pool_of
from jsclient.jetstream.consuming.push_intake import PushIntake, PushOptions, PushOptionsDict
from jsclient.jetstream.consuming.typed import Values, values_of, with_policy, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.message import M
from jsclient.jetstream.without_payload import refuse_headers_only

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream


UNBIND_TIMEOUT: Final = 1.0

T = TypeVar("T")


class PushSource:
    """The consumer as iterators see it; a PushConsumer and the handles that `typed` makes of it share it."""

    def __init__(
        self, js: JetStream, stream_name: str, name: str, config: ConsumerConfig, info: ConsumerInfo | None
    ) -> None:
        self.js = js
        self.nc: Connection = js.nc
        self.stream_name: str = names.check_stream(stream_name)
        self.name: str = names.check_consumer(name)
        self.config: ConsumerConfig = config
        self.info: ConsumerInfo | None = info
        """The last answer of the server; None before the first."""

    def ask(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """CONSUMER.INFO."""
        operation = f"CONSUMER.INFO.{self.stream_name}.{self.name}"
        info = self.js.api.request(operation, None, ConsumerInfo, timeout=timeout, read=True)
        self.info, self.config = info, info.config
        return info

    @property
    def _made(self) -> dt.datetime | None:
        return None if self.info is None else self.info.created

    def examine(self, timeout: float) -> Exception | None:
        """Ask the server for the reason of the silence; None if it names none within `timeout` seconds."""
        found = diagnosis.examine(self.js, self.stream_name, self.name, self._made, timeout)
        return found if isinstance(found, Exception) else None

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        """Ask the server if the complete stream was deleted."""
        return diagnosis.why_gone(self.js, self.stream_name, self._made, deleted, timeout)

    def check_bound(self) -> None:
        """Raises ConsumerAlreadyBound if another subscriber has a consumer that allows only one."""
        if self.config.deliver_group or self.info is None:
            return  # a handle that never asked the server does not ask now
        deadline = Deadline(UNBIND_TIMEOUT)
        while self.ask().push_bound:
            # The server notices the end of our earlier subscription with a delay.
            if not deadline.expired():
                time.sleep(UNBIND_TIMEOUT / 10)
                continue
            raise errors.ConsumerAlreadyBound(f"somebody else is subscribed to {self}")

    def __str__(self) -> str:
        return f"push consumer {self.name!r} of stream {self.stream_name!r}"


class PushMessages(MessageIterator[M]):
    """The iterator of a push consumer. Threads may share it; its end unsubscribes."""

    def __init__(self, source: PushSource, options: PushOptions, values: Values[Any] | None = None) -> None:
        self._push = PushIntake(source, options)
        # If the server does not confirm an ack, the client asks it how far it has delivered: see stale_acks.py.
        subject = f"CONSUMER.MSG.NEXT.{source.stream_name}.{source.name}"
        pool_of(source.nc).remember(source.js.api.subject(subject))
        super().__init__(source, options, self._push, values=values)

    def _get(self, timeout: float | None) -> M | None:
        deadline = Deadline(timeout)
        self._user = get_ident()
        while True:
            self._check_open()
            self._on_notices(self._push.dropped())
            try:
                item = self._push.take(deadline)
            except errors.SubscriptionClosed:
                self._finish()
            if item is None:
                self._on_notices(self._push.look(deadline))
                if deadline.expired() and not self._mailbox.items:
                    return None
            elif self._push.is_control(item):
                self._on_notices(self._push.control(item))
            elif self._stopped:
                self._return(item)
            else:
                self._push.delivered += 1
                message = self._make(item, self.connection)
                if message is not None:
                    return message

    @property
    def _wants_acks(self) -> bool:
        return bool(self.source.config.ack_policy == "explicit")


class PushConsumer(Generic[M]):
    """A push consumer. You get one from `create_push_consumer`, `push_consumer` and similar methods.

    The server delivers only while there is a subscriber, that is while an iterator or consume is open. With a
    `deliver_group` there can be many, in one process or several. Without one, only one is allowed
    (ConsumerAlreadyBound).

    Attributes:
        js: The JetStream object that it was made with.
        nc: Its connection.
        stream_name: The stream that it reads.
        name: Its name.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        config: The configuration as one object. Without it, pass its fields as keywords.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.

    Further options:
        messages, consume: see `PushOptionsDict`.
    """

    def __init__(
        self, js: JetStream, stream_name: str, name: str, config: ConsumerConfig, info: ConsumerInfo | None = None
    ) -> None:
        if not config.is_push:
            raise errors.NotPushConsumer(f"consumer {name!r} of stream {stream_name!r} is a pull consumer")
        self._source = PushSource(js, stream_name, name, config, info)
        self.js = js
        self.nc: Connection = js.nc
        self.stream_name = stream_name
        self.name = name
        self._values: Values[Any] | None = None

    def typed(
        self, type: type[T], *, on_bad: OnBad = "raise", dead_letter: str | None = None
    ) -> PushConsumer[TypedMsg[T]]:
        """The same consumer, of messages with a `value` of a type. See Consumer.typed."""
        refuse_headers_only(self.config.headers_only, self)
        values = values_of(self.js, type, on_bad, dead_letter)
        return with_values(self, with_policy(values, self.config.ack_policy))  # type: ignore[no-any-return]

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration, as last received from the server."""
        return self._source.config

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """The last information from the server, without a round trip; None for a handle that never asked."""
        return self._source.info

    def info(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Request the current state. Raises ConsumerNotFound."""
        return self._source.ask(timeout)

    def messages(self, **options: Unpack[PushOptionsDict]) -> Messages[M]:
        """An endless iterator; options: see PushOptions. Raises ConsumerAlreadyBound."""
        return Messages(self._iterator(options))

    def _iterator(self, options: PushOptionsDict) -> PushMessages[M]:
        chosen = PushOptions(**options)
        self._source.check_bound()
        return PushMessages(self._source, chosen, self._values)

    def consume(
        self, handler: Callable[[M], Any], *, workers: int = 1, **options: Unpack[PushOptionsDict]
    ) -> ConsumeContext:
        """Call `handler(msg)` for every message; with one worker in order. See Consumer.consume.

        `workers`: threads that call the handler. Options: see PushOptions.
        """
        handlers.required(handler, "the handler")
        checks.threads(workers, "workers")
        return ConsumeContext(self._iterator(options), handler, workers)

    def __str__(self) -> str:
        return str(self._source)

    def __repr__(self) -> str:
        return f"<PushConsumer {self.name!r} of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.nc).refuse_pickle(self)
