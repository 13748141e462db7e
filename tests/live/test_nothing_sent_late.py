"""On a link that takes nothing: a call that has ended sends nothing later, and what is queued has a bound."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from tests.deadline_rig import fill

import jsclient
from jsclient import errors
from jsclient._connection.outbox import HIGH_WATER, HIGH_WATER_FRAMES
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, Proxy, wait_until


@attrs.frozen
class Stalled:
    nc: jsclient.Connection
    """Whose link takes nothing."""
    heard: list[str]
    """The subjects below `late.` that the server has been sent."""
    proxy: Proxy

    def heal(self) -> None:
        """The link takes everything again, and all of it has arrived."""
        self.proxy.heal()
        self.nc.publish("late.end")
        self.nc.flush(10)
        wait_until(lambda: "late.end" in self.heard, 5)


def clog(nc: jsclient.Connection) -> None:
    """Publish until the kernel takes nothing more; the queue has room for some frames.

    A full kernel takes more, up to a megabyte, when it looks for the first time whether the window of its peer is still
    closed: 0.25 s after it has refused.
    """
    box = engine_of(nc).outbox
    last = (-1, 0.0)  # what the kernel had taken, and when it took that

    def stuck() -> bool:
        nonlocal last
        taken, now = box.bytes_out - box.unsent, time.monotonic()
        if taken != last[0]:
            last = (taken, now)
        if box.size + box.unsent < HIGH_WATER // 4:
            nc.publish("dl.x", bytes(50_000))
        return box.size >= 50_000 and now - last[1] > 0.4

    wait_until(stuck, 20)


@pytest.fixture
def stalled(server: NatsServer) -> Iterator[Stalled]:
    with (
        Proxy(server.port) as proxy,
        jsclient.connect(proxy.url, ping_interval=60, pending_buffer=1000) as nc,
        jsclient.connect(server.url) as witness,
    ):
        heard: list[str] = []
        witness.subscribe("late.>", lambda message: heard.append(message.subject))
        witness.flush()
        nc.flush()
        proxy.stall("both")
        clog(nc)
        yield Stalled(nc, heard, proxy)


def test_a_request_that_was_cancelled_is_not_sent_later(stalled: Stalled) -> None:
    cancel = jsclient.Cancel()
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            stalled.nc.request("late.cancelled", timeout=30, cancel=cancel)
        except errors.JsClientError as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    queued = len(engine_of(stalled.nc).outbox.frames)
    thread.start()
    wait_until(lambda: len(engine_of(stalled.nc).outbox.frames) > queued, 5)
    cancel.cancel()
    thread.join(5)
    assert isinstance(ended[0], errors.Cancelled)
    stalled.heal()
    assert stalled.heard == ["late.end"]


@pytest.mark.parametrize("kind", ["many", "repeatedly", "once"])
def test_a_request_whose_time_was_up_is_not_sent_later_and_says_so(stalled: Stalled, kind: str) -> None:
    """`request_many` ended empty, as if nobody had answered; three copies of the repeated one went out."""
    calls: dict[str, Any] = {
        "many": lambda: list(stalled.nc.request_many("late.many", timeout=0.3)),
        "repeatedly": lambda: engine_of(stalled.nc).request("late.rep", b"", timeout=0.3, every=0.1),
        "once": lambda: stalled.nc.request("late.once", timeout=0.3),
    }
    with pytest.raises(errors.RequestTimeout) as caught:
        calls[kind]()
    assert not caught.value.sent
    stalled.heal()
    assert stalled.heard == ["late.end"]


@pytest.mark.slow
def test_flushes_have_a_bound(stalled: Stalled) -> None:
    """190,000 PINGs, and 236 MB, were queued within 4 s."""
    engine = engine_of(stalled.nc)
    for _ in range(2 * HIGH_WATER_FRAMES):
        with contextlib.suppress(errors.FlushTimeout):
            stalled.nc.flush(0)
    assert len(engine.outbox.frames) <= HIGH_WATER_FRAMES
    # A write that stalls holds some more than the queue.
    assert len(engine.session.pings.waiters) < 1.5 * HIGH_WATER_FRAMES
    stalled.heal()


def test_a_loop_that_subscribes_and_ends_leaves_nothing_behind(stalled: Stalled) -> None:
    engine = engine_of(stalled.nc)
    fill(stalled.nc)
    for number in range(20_000):
        stalled.nc.subscribe(f"sub.{number}.{'x' * 100}").close()
    assert sum(map(len, list(engine.outbox.frames))) < HIGH_WATER + 1000
    stalled.heal()


def test_subscriptions_have_a_bound(stalled: Stalled) -> None:
    engine = engine_of(stalled.nc)
    subject = "s" * 200
    made: list[jsclient.Subscription] = []
    started = time.monotonic()
    with pytest.raises(errors.BufferFull):
        while True:
            made.append(stalled.nc.subscribe(f"{subject}.{len(made)}"))
    assert time.monotonic() - started < 10
    assert HIGH_WATER < engine.outbox.size < 3 * HIGH_WATER
    with pytest.raises(errors.BufferFull):
        for subscription in made:  # not the first one only: the kernel may have taken some meanwhile
            subscription.unsubscribe(5)
    stalled.heal()
    assert made[-1].subject == f"{subject}.{len(made) - 1}"


def lose_the_first_frame(
    nc: jsclient.Connection,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Any], None],
    then: Callable[[], None] = lambda: None,
) -> None:
    """The link is lost just when the next call sends. `lose`: what becomes of that frame; `then`: called behind each
    later one."""
    engine = engine_of(nc)
    enqueue = engine.outbox.enqueue_at_once
    struck: list[Any] = []

    def losing(frame: Any) -> None:
        if struck:
            enqueue(frame)
            then()
            return
        struck.append(frame)
        lose(frame)

    monkeypatch.setattr(engine.outbox, "enqueue_at_once", losing)


def test_what_is_sent_again_after_a_loss_keeps_its_cancel_token(
    nc: jsclient.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try could not be cancelled."""
    deaf = nc.subscribe("deaf")
    nc.flush()
    cancel = jsclient.Cancel()

    def refuse(frame: Any) -> None:
        raise errors.ConnectionLost("not connected at the moment", sent=False)  # as the outbox does then

    lose_the_first_frame(nc, monkeypatch, refuse, cancel.cancel)
    with pytest.raises(errors.Cancelled):
        nc.request("deaf", timeout=20, cancel=cancel)
    deaf.close()


@pytest.mark.parametrize("kind", ["many", "repeatedly"])
def test_requests_of_every_kind_are_sent_again_if_the_link_was_lost_before(
    nc: jsclient.Connection, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc.subscribe("echo.move", lambda message: message.respond(message.data))
    nc.flush()
    engine = engine_of(nc)

    def lose(frame: Any) -> None:  # as the end of a link does with what was not sent, and then with all that waits
        engine.requests.withdrawn([frame])
        engine.requests.fail(lambda: errors.ConnectionLost("gone"))

    lose_the_first_frame(nc, monkeypatch, lose)
    if kind == "many":
        assert [m.data for m in nc.request_many("echo.move", b"x", timeout=10, max_messages=1)] == [b"x"]
    else:
        assert engine.request("echo.move", b"x", timeout=10, every=5).data == b"x"


def test_what_was_not_sent_when_the_link_was_lost_is_certainly_not_done(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the next link, which does not come in time: the outcome was called unknown."""
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="LOST", subjects=["lost"], storage="memory")

        def lose(frame: Any) -> None:
            proxy.refuse()
            wait_until(lambda: not nc.is_connected, 5)
            raise errors.ConnectionLost("not connected at the moment", sent=False)

        lose_the_first_frame(nc, monkeypatch, lose)
        with pytest.raises(errors.NotStored):
            js.publish("lost", b"x", timeout=0.5)
        with pytest.raises(errors.RequestTimeout) as caught:
            nc.request("lost", timeout=0.2)
        assert not caught.value.sent
        proxy.accept()
        js.delete_stream("LOST", timeout=20)


def test_a_request_for_many_counts_as_under_way_until_its_first_reply(nc: jsclient.Connection) -> None:
    """A server that shuts down is left when what is under way is answered: this one had lost its reply then."""
    engine = engine_of(nc)
    asked = nc.subscribe("parts")
    nc.flush()
    replies = nc.request_many("parts", timeout=10)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(next(replies)))
    thread.start()
    question = asked.next(timeout=5)
    assert len(engine.requests.under_way()) == 1
    question.respond(b"1")
    thread.join(5)
    assert first[0].data == b"1"
    assert engine.requests.under_way() == []
    replies.close()  # type: ignore[attr-defined]


def test_what_asks_late_for_an_end_is_told(server: NatsServer) -> None:
    """The thread for callbacks ends with the connection: they were dropped without a word."""
    nc = jsclient.connect(server.url)
    js = nc.jetstream()
    js.create_stream(name="LATE", subjects=["late-end"], storage="memory")
    subscription, future = nc.subscribe("a"), js.publish_async("late-end")
    future.result(5)
    js.delete_stream("LATE")
    nc.close()
    told: list[Any] = []
    subscription.when_closed(told.append)
    future.add_done_callback(told.append)
    wait_until(lambda: told == [subscription, future], 5)
