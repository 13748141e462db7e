"""What lives beneath a Connection: dialling, reading, sending, waiting. Not part of the public API.

`Engine` is all that the layers above (JetStream, buckets, services, workers, Spark) use of it, beside the public
face of `jsclient.Connection`. They get it from `jsclient.connection.engine_of`. `__all__` has the rest: inboxes, and
how something ends together with its connection. import-linter checks that nothing else is imported from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from jsclient._engine.mailbox import Mailbox
from jsclient._engine.sinks import BaseSubscription, Inbox, MessageSink, ReplySink, SinkSubscription
from jsclient._engine.takers import SLICE, Taker, Takers, wait_for
from jsclient._engine.unkept import Unkept, UnkeptLarge

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jsclient import errors
    from jsclient.cancel import Cancel
    from jsclient.durations import Deadline, Timeout
    from jsclient.message import HeadersLike, Msg, Payload
    from jsclient.states import LinkEvent
    from protocol.frames import Frame

__all__ = [
    "SLICE",
    "BaseSubscription",
    "Clock",
    "Engine",
    "Inbox",
    "Mailbox",
    "MessageSink",
    "ReplySink",
    "SinkSubscription",
    "Taker",
    "Takers",
    "Timer",
    "Unkept",
    "UnkeptLarge",
    "wait_for",
]


class Timer(Protocol):
    """A call to be made later."""

    def cancel(self) -> None:
        """Do not make it; safe at any time and from any thread."""


class Clock(Protocol):
    """Timers on the flusher thread of a connection. Safe from any thread and in signal handlers: it takes no lock."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Make a call in so many seconds; it must be quick and must not block."""

    def call_soon(self, call: Callable[[], None]) -> Timer:
        """The same, at once."""


class Engine(Protocol):
    """One session with a NATS system that outlives its links, as the layers above see it.

    In a forked child every use of it raises ForkedConnection.
    """

    @property
    def clock(self) -> Clock:
        """Timers."""

    @property
    def takers(self) -> Takers:
        """Whatever takes messages and has to end in order when the connection drains or closes."""

    @property
    def round_trip(self) -> float:
        """Seconds to the server and back, the shortest seen on this link; 0.0 without a link."""

    # --- sending: frames as `encode` makes them -----------------------------------------------------------

    @property
    def takes_headers(self) -> bool:
        """Whether the server takes headers, as far as it has told; if not, `check_headers` says so."""

    def check_headers(self) -> None:
        """Raises HeadersNotSupported when the server takes no headers."""

    def encode(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str | bytes = b"",
        headers: HeadersLike | bytes | None = None,
    ) -> bytes:
        """One validated PUB or HPUB frame. `reply` as bytes and `headers` as an encoded block are taken as they are."""

    def pub_start(self, subject: str, reply: str | bytes = b"") -> bytes:
        """How the line of a message begins, validated as in `encode`; see `protocol.frames`."""

    @property
    def post(self) -> Callable[[Frame], None]:
        """Queue a frame; it leaves with others, within three milliseconds."""

    @property
    def post_now(self) -> Callable[..., None]:
        """Send a frame at once, with what is queued before it: `post_now(frame, deadline=None)`."""

    @property
    def post_at_once(self) -> Callable[[Frame], None]:
        """The same for pulls and other small frames, bounded in number by their owners: with a link
        it never waits for room."""

    def sends_within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """In the body what this thread sends waits for room until the deadline at most, and not for `write_timeout`."""

    def bound(self) -> Deadline | None:
        """The deadline of `sends_within` that this thread is in: what else it waits for meanwhile ends then, too."""

    @property
    def flush_outbox(self) -> Callable[[], None]:
        """Send what is queued. It never waits for the network; before any wait of ours."""

    def when_read(self, call: Callable[[], None]) -> None:
        """Make a call on the flusher thread, once the server has read all that was sent so far, and what it had sent
        before is here; or the link is gone."""

    # --- asking -------------------------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = ...,
        headers: HeadersLike | bytes | None = None,
        cancel: Cancel | None = None,
        may_go_on: Callable[[bytes], bool] | None = None,
        start: bytes | None = None,
    ) -> Msg:
        """As `Connection.request`. Where `may_go_on(payload)` says so, further replies are heard: see `later_reply`.
        `start`: how the line begins (see `protocol.frames`), where the subject came over the wire."""

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        """Another reply to a request after a first one that `may_go_on`; None when none came in time.

        Until `forget_reply`. Raises ConnectionLost, ConnectionClosed: then no other one comes.
        """

    def forget_reply(self, reply: Msg) -> None:
        """No further replies are wanted. Does nothing where none are heard."""

    def request_repeatedly(self, subject: str, payload: bytes, *, timeout: Timeout, every: float) -> Msg:
        """As `request`, and sent again every so many seconds until an answer to any of them comes. Only for what may be
        done twice."""

    def request_each(
        self, subjects: list[bytes], payload: bytes, deadline: Deadline
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """One request to each subject (validated), one write, one wait. Only for what may be done twice: frames that a
        lost link has not taken go out on the next.

        Returns the replies by number, those within the deadline, and what has ended the wait before that, if anything.
        """

    # --- receiving ----------------------------------------------------------------------------------------

    def open_inbox(self, subject: str | None = None, queue: str = "") -> Inbox:
        """A mailbox bounded by the credit that its owner grants; it also gets link events, in order."""

    def open_sink(self, subject: str, sink: MessageSink, queue: str = "") -> SinkSubscription:
        """Messages go straight to the sink, on the reader thread."""

    def remove_subscription(
        self, subscription: BaseSubscription, tell_server: bool = False, keep_sink: bool = False
    ) -> None:
        """Forget a subscription; with `keep_sink` only the server does, what is on its way still arrives."""

    # --- how it is with the connection --------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether a drain has begun: then `check_draining` and `check_takes` say what is still taken."""

    def check_usable(self) -> None:
        """Raises ConnectionClosed (in a forked child: ForkedConnection)."""

    def check_process(self) -> None:
        """Raises ForkedConnection in a forked child, where nothing comes that one could wait for."""

    def check_draining(self) -> None:
        """Raises ConnectionDraining once nothing new is published, ConnectionClosed."""

    def check_takes(self) -> None:
        """Raises ConnectionDraining or ConnectionClosed where nothing new may begin to take messages."""

    def closed_error(self) -> errors.ConnectionClosed:
        """Why nothing works any more; `reason` is what ended the connection, if it was not the application."""

    def refuse_pickle(self, what: object) -> NoReturn:
        """Raises the TypeError of an attempt to send a live object to another process."""

    # --- telling, and being told ----------------------------------------------------------------------------

    def add_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """`listener(event)` runs on an internal thread when the link goes down, comes back, or is closed; quick!"""

    def remove_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """It hears no more; nothing happens if it did not."""

    def add_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """`listener(error)` runs on the reader thread when the server refuses a subject; quick!"""

    def remove_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """It hears no more; nothing happens if it did not."""

    def run_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """Queue user code for the events thread: serial, bounded, what it raises is logged."""

    def run_last_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """The same for what comes once in a life, its end: never dropped, however many others wait. On this thread
        where that of the callbacks has ended with the connection."""

    def report_error(self, error: BaseException, subscription: Any) -> None:
        """To `on_error`, or to the log when there is none."""
