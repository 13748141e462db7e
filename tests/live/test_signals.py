"""Ctrl-C at any moment, and what signal handlers may call. Each in a process of its own, with real signals."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Callable

import pytest
from tests import strict

import jsclient
from jsclient.testing import NatsServer

Count = Callable[[int, int], int]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

PREAMBLE = """
import os, queue, random, signal, sys, threading, time
import jsclient
from jsclient.connection import engine_of
from jsclient import errors
url, count = sys.argv[1], int(sys.argv[2])
random.seed(count)

def interrupted(step, check):
    '''Runs `step` again and again until a SIGINT at a random moment ends it; `count` times.'''
    armed, pause = queue.SimpleQueue(), threading.Event()
    def kill():
        while armed.get():
            pause.wait(random.random() * 0.004)
            os.kill(os.getpid(), signal.SIGINT)
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    for _ in range(count):
        try:
            armed.put(True)
            while True:
                step()
        except KeyboardInterrupt:
            pass
        check()
    armed.put(False)
    killer.join()
    print("done", count)
"""


def run(server: NatsServer, script: str, *args: object, timeout: float = 50) -> str:
    code = PREAMBLE + textwrap.dedent(script)
    done = subprocess.run(
        [*strict.PYTHON, "-c", code, server.url, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def assert_no_protocol_error(server: NatsServer) -> None:
    log = server.log_text()
    assert not any(word in log for word in ("arser", "Unknown Protocol")), log[-2000:]


LOOPS = {
    "publish": """
        numbers = iter(range(10**9))
        def step():
            nc.publish("sig.pub", b"%0100d" % next(numbers))
        interrupted(step, lambda: nc.flush(timeout=10))
        """,
    "request": """
        other.subscribe("sig.req", lambda message: message.respond(message.data))
        other.flush()
        def check():
            nc.flush(timeout=10)
            assert nc.request("sig.req", b"x", timeout=10).data == b"x"
        interrupted(lambda: nc.request("sig.req", b"y", timeout=10), check)
        assert not engine_of(nc).requests.waiting, engine_of(nc).requests.waiting
        """,
    "fetch": """
        from jsclient.jetstream import JetStream, StreamConfig, ConsumerConfig
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="SIG", subjects=["sig.js"], max_msgs=2000))
        consumer = js.create_consumer("SIG", ConsumerConfig(durable_name="c", ack_policy="explicit"))
        stop = threading.Event()
        def fill():
            while not stop.wait(0.01):
                other.publish("sig.js", b"x")
        filler = threading.Thread(target=fill, daemon=True)
        filler.start()
        def step():
            for message in consumer.fetch(20, timeout=2):
                message.ack()
        def check():
            nc.flush(timeout=10)
            assert consumer.next(timeout=10) is not None
        try:
            interrupted(step, check)
        finally:
            stop.set()
            filler.join()
        """,
    "next": """
        sub = nc.subscribe("sig.next")
        def check():
            nc.publish("sig.next", b"x")
            assert sub.next(timeout=10).data == b"x"
        interrupted(lambda: sub.next(timeout=10), check)
        """,
    "offline": """
        def offline():
            nc.force_reconnect()
            nc.publish("sig.none", b"x")
            nc.flush(timeout=10)
        interrupted(offline, lambda: nc.flush(timeout=10))
        """,
}
"""What a program does again and again: a Ctrl-C in the middle of it harms nothing that follows."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_in_a_loop(server: NatsServer, loop: str, count: Count) -> None:
    script = textwrap.indent(textwrap.dedent(LOOPS[loop]), "    ")
    script = f"with jsclient.connect(url) as nc, jsclient.connect(url) as other:\n{script}"
    assert "done" in run(server, script, count(200 if loop in ("next", "offline") else 500, 50), timeout=250)
    assert_no_protocol_error(server)


HANDLERS = {
    "close": "nc.close(wait=False)",
    "drain": "nc.drain(wait=False)",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", HANDLERS)
@pytest.mark.parametrize("loop", ["publish", "next", "request"])
def test_handlers_may_end_the_connection_at_any_moment(server: NatsServer, call: str, loop: str, count: Count) -> None:
    """A timer signal every millisecond calls close or drain; every round ends in one of our errors, none hangs."""
    steps = {
        "publish": 'nc.publish("sig.h", b"x" * 200)',
        "next": 'nc.publish("sig.h", b"x"); sub.next(timeout=10)',
        "request": 'nc.request("sig.echo", b"x", timeout=10)',
    }
    out = run(
        server,
        f"""
        helper = jsclient.connect(url)
        helper.subscribe("sig.echo", lambda message: message.respond(b"y"))
        helper.flush()
        calls = 0
        nc = None
        def handler(*_):
            global calls
            calls += 1
            if nc is not None and calls % 4 == 0:
                {HANDLERS[call]}
        signal.signal(signal.SIGALRM, handler)
        rounds = 0
        while calls < count:
            nc = jsclient.connect(url)
            sub = nc.subscribe("sig.h" if "{loop}" == "next" else "sig.other")
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            begin = time.monotonic()
            try:
                while True:
                    {steps[loop]}
            except (errors.NatsConnectionError, errors.SubscriptionClosed):
                pass
            nc.close()
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.monotonic() - begin < 8, "it hung"
            rounds += 1
        helper.close()
        print("rounds", rounds, "calls", calls)
        """,
        count(1000, 100),
        timeout=250,
    )
    assert "rounds" in out
    assert_no_protocol_error(server)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("loop", ["messages", "ack", "publish_async"])
def test_handlers_may_stop_jetstream_at_any_moment(server: NatsServer, loop: str, count: Count) -> None:
    """A timer signal every millisecond calls stop() of the messages, or close of the connection, in mid-call."""
    steps = {
        "messages": "messages.next(timeout=10)",
        "ack": "messages.next(timeout=10).ack()",
        "publish_async": 'js.publish_async("sigjs.x", b"x")',
    }
    end = "nc.close(wait=False)" if loop == "publish_async" else "messages.stop()"
    out = run(
        server,
        f"""
        from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
        feed = jsclient.connect(url)
        stream = JetStream(feed).create_or_update_stream(StreamConfig(name="SIGJS", subjects=["sigjs.>"], max_msgs=500))
        for _ in range(500):
            feed.publish("sigjs.x", b"x")
        feed.flush()
        calls = rounds = 0
        active = False
        def handler(*_):
            global calls
            calls += 1
            if active and calls % 4 == 0:
                {end}
        signal.signal(signal.SIGALRM, handler)
        while calls < count:
            nc = jsclient.connect(url)
            js = JetStream(nc)
            consumer = js.create_consumer("SIGJS", ConsumerConfig(ack_policy="explicit"))
            messages = consumer.messages(max_messages=50)
            active = True
            begin = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            try:
                while True:
                    {steps[loop]}
            except (errors.NatsConnectionError, errors.SubscriptionClosed, StopIteration):
                pass
            except errors.JetStreamError as error:
                print(repr(error))
            active = False
            nc.close()
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.monotonic() - begin < 8, "it hung"
            rounds += 1
        feed.close()
        print("rounds", rounds, "calls", calls)
        """,
        count(1000, 100),
        timeout=250,
    )
    assert "rounds" in out
    assert_no_protocol_error(server)


def test_interpreter_exit_flushes_and_does_not_hang(server: NatsServer) -> None:
    """No close, threads that are still busy, a blocked callback: the process ends and what was published arrives."""

    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("exit.>", pending_messages=100_000)
        nc.flush()
        run(
            server,
            """
            blocked = threading.Event()
            nc = jsclient.connect(url)
            nc.subscribe("exit.callback", lambda message: blocked.wait())
            nc.publish("exit.callback", b"x")
            nc.flush()
            def forever():
                while True:
                    try:
                        nc.request("nobody.listens", b"", timeout=1)
                    except errors.JsClientError:
                        pass
            for _ in range(3):
                threading.Thread(target=forever, daemon=True).start()
            waiting = nc.subscribe("exit.nothing")
            def take():
                try:
                    waiting.next(timeout=None)
                except errors.ConnectionClosed:
                    pass
            threading.Thread(target=take, daemon=True).start()
            for number in range(20000):
                nc.publish("exit.data", b"%d" % number)
            """,
            0,
            timeout=10,
        )
        assert sub.next(timeout=5).subject == "exit.callback"
        got = [int(sub.next(timeout=5).data) for _ in range(20_000)]
        assert got == list(range(20_000))


def test_interpreter_exit_without_a_server_does_not_hang(server: NatsServer) -> None:
    run(
        server,
        """
        nc = jsclient.connect("nats://127.0.0.1:1", retry_on_failed_connect=True)
        nc.publish("x", b"y")
        """,
        0,
        timeout=10,
    )


WAITS = {
    "request": 'nc.request("sigr.echo", b"h", timeout=5)',
    "flush": "nc.flush(timeout=5)",
    "publish": 'js.publish("sigr.other", b"h", timeout=5)',
    "fetch": 'list(other.fetch(1, timeout=5)); helper.publish("sigr.other", b"o")',
}
"""Calls that wait. On top of a write of the same thread they are refused."""


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "wait", [pytest.param(name, marks=[] if name == "request" else pytest.mark.slow) for name in WAITS]
)
@pytest.mark.parametrize("loop", ["request", "messages"])
def test_handlers_may_wait_while_their_thread_reads_the_socket(
    server: NatsServer, wait: str, loop: str, count: Count
) -> None:
    """A handler on top of a wait that reads for itself waits for something, too."""
    steps = {
        "request": 'assert nc.request("sigr.echo", b"m", timeout=5).data == b"m"',
        "messages": "assert int(next(messages).data) == taken, taken; taken += 1",
    }
    out = run(
        server,
        f"""
        from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
        helper = jsclient.connect(url)
        helper.subscribe("sigr.echo", lambda message: message.respond(message.data))
        helper.flush()
        nc = jsclient.connect(url)
        js = JetStream(nc)
        stream = js.create_or_update_stream(StreamConfig(name="SIGR", subjects=["sigr.numbers", "sigr.other"]))
        stream.purge()
        for _ in range(20):
            js.publish("sigr.other", b"o")
        other = js.create_consumer("SIGR", ConsumerConfig(ack_policy="none", filter_subject="sigr.other"))
        numbers = js.create_consumer("SIGR", ConsumerConfig(ack_policy="none", filter_subject="sigr.numbers"))
        stopping = threading.Event()
        def fill():
            number = 0
            while not stopping.wait(0.002):
                for _ in range(20):
                    helper.publish("sigr.numbers", b"%d" % number)
                    number += 1
        filler = threading.Thread(target=fill, daemon=True)
        filler.start()
        slowest, taken, calls, refused = 0.0, 0, 0, 0
        def handler(*_):
            global slowest, calls, refused
            begin = time.monotonic()
            try:
                {WAITS[wait]}
            except errors.Reentered:
                refused += 1
            calls += 1
            slowest = max(slowest, time.monotonic() - begin)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + random.random() * 0.01)
        signal.signal(signal.SIGALRM, handler)
        messages = numbers.messages()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while calls < count:
            {steps[loop]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        link = engine_of(nc).session.link
        print("slowest", slowest, "borrowed", link.reading.borrowed, "reconnects", nc.stats().reconnects, refused)
        stopping.set()
        filler.join()
        messages.close()
        nc.close()
        helper.close()
        """,
        count(500, 50),
        timeout=80,
    )
    _, slowest, _, borrowed, _, reconnects, refused = out.split()
    assert float(slowest) < 2
    assert int(borrowed) > 0
    assert int(reconnects) == 0
    assert int(refused) < count(500, 50), "elsewhere than on top of a write of the same thread they work"
    assert_no_protocol_error(server)


@pytest.mark.timeout(90)
def test_ctrl_c_in_messages_loses_and_doubles_nothing(server: NatsServer, count: Count) -> None:
    out = run(
        server,
        """
        from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
        with jsclient.connect(url) as feed, jsclient.connect(url) as nc:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="SIGM", subjects=["sigm"], storage="memory", max_msgs=100_000))
            consumer = js.create_consumer("SIGM", ConsumerConfig(ack_policy="none"))
            stopping = threading.Event()
            def fill():
                # A few ahead and no more: so the thread waits again and again, and reads for itself, however slow it
                # is. At a rate of its own the feed filled the mailbox of a busy machine, and nothing was waited for.
                for number in range(10**9):
                    feed.publish("sigm", b"%d" % number)
                    while number > last + 5:
                        if stopping.wait(0.0005):
                            return
            last = -1
            filler = threading.Thread(target=fill, daemon=True)
            filler.start()
            with consumer.messages() as messages:
                def step():
                    # Ctrl-C may strike between `next` and our own bookkeeping: what it took with it is told by a gap
                    # of one; more than that, or a number that comes again, is our fault.
                    global last
                    number = int(messages.next(timeout=10).data)
                    assert last < number <= last + 2, (last, number)
                    last = number
                reading = engine_of(nc).session.link.reading
                before = reading.borrowed
                interrupted(step, lambda: None)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("taken", last, "borrowed", reading.borrowed - before, "reconnects", nc.stats().reconnects)
            stopping.set()
            filler.join()
        """,
        count(500, 50),
        timeout=80,
    )
    assert "reconnects 0" in out
    assert "borrowed 0" not in out
    assert_no_protocol_error(server)


@pytest.mark.timeout(90)
def test_an_alarm_in_publishes_reaches_its_thread_and_doubles_nothing(server: NatsServer, count: Count) -> None:
    """A TimeoutError is an OSError: taken for that of the socket, it made what had gone out "certainly not sent"."""
    out = run(
        server,
        """
        from collections import Counter
        from jsclient.jetstream import JetStream, StreamConfig
        def strike(*_):
            raise TimeoutError("alarm")
        signal.signal(signal.SIGALRM, strike)
        quick = jsclient.ReconnectPolicy(delay=lambda *_: 0.0)
        with jsclient.connect(url, reconnect=quick) as nc, jsclient.connect(url) as reader:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="SIGA", subjects=["siga"], storage="memory"))
            acked, strikes, number = 0, 0, 0
            while strikes < count:
                number += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 300e-6))
                    try:
                        js.publish("siga", b"%d" % number)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    acked += 1
                except TimeoutError as error:
                    strikes += str(error) == "alarm"
                except errors.JsClientError:
                    pass  # while it reconnects
            nc.flush(timeout=10)
            stored = Counter()
            stream = JetStream(reader).stream("SIGA")
            with stream.ordered_consumer().messages() as messages:
                for message in messages:
                    stored[message.data] += 1
                    if not message.metadata.num_pending:
                        break
            print("strikes", strikes, "reconnects", nc.stats().reconnects, "acked", acked, end=" ")
            print("twice", [number for number, times in stored.items() if times > 1])
        """,
        count(20_000, 2_000),
        timeout=80,
    )
    assert "reconnects 0 " in out
    assert "twice []" in out
    assert_no_protocol_error(server)


REENTERED = {
    "flush": "nc.flush(timeout=2)",
    "subscribe": 'nc.subscribe("re.more").close()',
    "publish_async": 'js.publish_async("re.js", b"h")',
    "shared": "jsclient.shared(nc.options).flush(timeout=2)",
    "request": 'nc.request("re.echo", b"h", timeout=2)',
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("handler", REENTERED)
def test_no_call_hangs_in_a_signal_handler_or_a_finalizer(server: NatsServer, handler: str, count: Count) -> None:
    """Each call on top of each other one, by a timer signal at random moments, while finalizers close subscriptions."""
    out = run(
        server,
        f"""
        import gc
        from jsclient.jetstream import JetStream, StreamConfig
        gc.set_threshold(20)
        class Holder:
            '''In a circle, so that the collector finds it anywhere, on any thread.'''
            def __init__(self, nc):
                self.sub, self.me = nc.subscribe("re.held"), self
            def __del__(self):
                self.sub.close()
        helper = jsclient.connect(url)
        helper.subscribe("re.echo", lambda message: message.respond(b"y"))
        helper.flush()
        nc = jsclient.connect(url)
        js = JetStream(nc)
        js.create_or_update_stream(StreamConfig(name="RE", subjects=["re.js"], max_msgs=100))
        steps = [
            lambda: nc.flush(timeout=5), lambda: nc.subscribe("re.x").close(), lambda: js.publish_async("re.js", b"m"),
            lambda: nc.request("re.echo", b"m", timeout=5), lambda: Holder(nc), lambda: nc.rtt(5),
            lambda: jsclient.shared(nc.options), lambda: js.publish("re.js", b"s", timeout=5), lambda: nc.servers,
        ]
        calls, slowest, refused = 0, 0.0, 0
        def handle(*_):
            global calls, slowest, refused
            begin = time.monotonic()
            try:
                {REENTERED[handler]}
            except errors.Reentered:
                refused += 1
            calls += 1
            slowest = max(slowest, time.monotonic() - begin)
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() * 0.004)
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while calls < count:
            random.choice(steps)()
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()
        js.publish_async_complete(10)
        nc.flush(timeout=5)
        held = [sub for sub in engine_of(nc).subscriptions.sinks.values() if getattr(sub, "subject", "") == "re.held"]
        assert not held, held
        print("slowest", slowest, "refused", refused, "reconnects", nc.stats().reconnects)
        jsclient.shared(nc.options).close()
        nc.close()
        helper.close()
        """,
        count(2000, 200),
        timeout=100,
    )
    _, slowest, _, refused, _, reconnects = out.split()
    assert float(slowest) < 2
    assert int(refused) < count(2000, 200), "elsewhere than on top of a write of the same thread they work"
    assert int(reconnects) == 0
    assert_no_protocol_error(server)
