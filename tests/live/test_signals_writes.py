"""Signal handlers on top of a write or an end of their own thread, and functions at the exit."""

from __future__ import annotations

import os

import pytest
from tests.live.test_signals import Count, assert_no_protocol_error, run

import jsclient
from jsclient.testing import NatsServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")


@pytest.mark.timeout(90)
def test_a_handler_that_waits_for_another_thread_costs_a_link_at_most(server: NatsServer, count: Count) -> None:
    """That thread cannot send while the handler stays on top of a write; after a second the link is replaced."""
    out = run(
        server,
        """
        helper = jsclient.connect(url)
        helper.subscribe("sigt.echo", lambda message: message.respond(message.data))
        helper.flush()
        nc = jsclient.connect(url, reconnect=jsclient.ReconnectPolicy(delay=lambda *_: 0.0))
        nc.request("sigt.echo", b"first", timeout=5)  # other threads wait for the one that opens the inbox
        slowest = calls = lost = 0
        def ask(data):
            global lost
            try:
                assert nc.request("sigt.echo", data, timeout=5).data == data
            except errors.ConnectionLost:
                lost += 1
        def handler(*_):
            global slowest, calls
            begin = time.monotonic()
            thread = threading.Thread(target=ask, args=(b"t",))
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
            calls += 1
            slowest = max(slowest, time.monotonic() - begin)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + random.random() * 0.01)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while calls < count:
            ask(b"m")
        signal.setitimer(signal.ITIMER_REAL, 0)
        ask(b"still here")
        print("slowest", slowest, "lost", lost, "reconnects", nc.stats().reconnects)
        nc.close()
        helper.close()
        """,
        count(100, 10),
        timeout=80,
    )
    _, slowest, _, lost, _, reconnects = out.split()
    assert float(slowest) < 4
    assert int(lost) <= 2 * int(reconnects)
    assert_no_protocol_error(server)


def test_functions_at_exit_may_send_and_wait(server: NatsServer) -> None:
    """Those that were registered after the import of jsclient: they run before it closes its connections."""
    with jsclient.connect(server.url) as witness:
        sub = witness.subscribe("sax.left")
        witness.flush()
        out = run(
            server,
            """
            import atexit
            from jsclient.jetstream import JetStream, StreamConfig
            nc = jsclient.connect(url)
            js = JetStream(nc)
            js.create_or_update_stream(StreamConfig(name="SAX", subjects=["sax.js"]))
            @atexit.register
            def last():
                print(js.publish("sax.js", b"x", timeout=5).stream)
                nc.publish("sax.left", b"sent when the client closes the connection")
            """,
            0,
        )
        assert out.split() == ["SAX"]
        assert sub.next(timeout=5).data.startswith(b"sent")


IN_A_WRITE = {
    "publish": 'nc.publish("siw.x", b"h")',
    "ack": "message.ack()",
    "request": 'nc.request("siw.echo", b"h", timeout=5)',
    "flush": "nc.flush(timeout=5)",
    "js_publish": 'js.publish("siw.js", b"h", timeout=5)',
    "next": "sub.next(timeout=5)",
    "fetch": "consumer.fetch(1, timeout=5)",
    "close": "nc.close(wait=False)",
    "close_and_wait": "nc.close()",
    "drain": "nc.drain()",
}


@pytest.mark.parametrize("call", IN_A_WRITE)
def test_in_a_write_of_its_own_thread_a_handler_queues_and_never_waits(server: NatsServer, call: str) -> None:
    """A socket that sends in Python code strikes within its first send of a marked frame."""
    out = run(
        server,
        f"""
        import socket
        from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
        from jsclient.testing import wait_until
        seen = []
        class Struck(socket.socket):
            def send(self, data, *flags):
                if b"strike" in bytes(data) and not seen:
                    seen.append(None)
                    os.kill(os.getpid(), signal.SIGUSR1)
                return super().send(data, *flags)
        def made(host, port, timeout):
            return Struck(fileno=socket.create_connection((host, port), timeout).detach())
        def handler(*_):
            begin = time.monotonic()
            try:
                {IN_A_WRITE[call]}
                seen.append("done")
            except errors.Reentered:
                seen.append("refused")
            seen.append(time.monotonic() - begin)
        signal.signal(signal.SIGUSR1, handler)
        heard = []
        witness = jsclient.connect(url)
        witness.subscribe("siw.>", lambda message: heard.append(message.data))
        witness.subscribe("siw.echo", lambda message: message.respond(b"y"))
        witness.flush()
        nc = jsclient.connect(url, socket_factory=made)
        js = JetStream(nc)
        stream = js.create_or_update_stream(StreamConfig(name="SIW", subjects=["siw.js", "siw.acked"]))
        stream.purge()
        js.publish("siw.acked", b"a")
        consumer = stream.create_consumer(ConsumerConfig(ack_policy="explicit", filter_subject="siw.acked"))
        message = consumer.next(timeout=5)
        sub = nc.subscribe("siw.nothing")
        nc.flush()
        nc.publish("siw.struck", b"strike")
        nc.flush() if "close" not in "{call}" and "drain" not in "{call}" else nc.close()
        witness.publish("siw.end", b"end")
        wait_until(lambda: b"end" in heard, 5)
        print(*seen[1:], b"strike" in heard, b"h" in heard, consumer.info().num_ack_pending if not nc.closed else 1)
        nc.close()
        witness.close()
        """,
        0,
        timeout=20,
    )
    outcome, took, struck, sent, pending = out.split()
    queues = call in ("publish", "ack", "close", "close_and_wait", "drain")
    assert outcome == ("done" if queues else "refused")
    assert float(took) < 0.5
    assert struck == "True", "the interrupted call is not harmed"
    assert sent == str(call == "publish")
    assert pending == ("0" if call == "ack" else "1")
    assert_no_protocol_error(server)


@pytest.mark.parametrize("end", ["nc.drain(timeout=None)", "nc.close()"])
def test_an_end_on_top_of_the_same_end_does_not_wait_for_itself(server: NatsServer, end: str) -> None:
    """A second SIGTERM, in a handler that ends the connection, while the first one is at it. It waited for ever."""
    out = run(
        server,
        f"""
        from jsclient.testing import wait_until
        begun, go_on = threading.Event(), threading.Event()
        def handle(message):
            begun.set()
            go_on.wait(30)
        nc = jsclient.connect(url)
        sub = nc.subscribe("top.x", handle)
        nc.publish("top.x")
        nc.flush()
        assert begun.wait(10)
        took = []
        def handler(*_):
            begin = time.monotonic()
            try:
                {end}
            except errors.Reentered:
                pass
            took.append(time.monotonic() - begin)
            go_on.set()
        signal.signal(signal.SIGUSR1, handler)
        def strike():
            wait_until(lambda: sub.closed, 10)
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_until(lambda: took, 2)
        striker = threading.Thread(target=strike)
        if "close" in "{end}":
            os.kill(count, signal.SIGSTOP)  # the server: so a close waits for it
        striker.start()
        try:
            {end}
        finally:
            os.kill(count, signal.SIGCONT)
        striker.join()
        assert nc.closed
        print("took", *took)
        """,
        server.pid,
        timeout=20,
    )
    assert float(out.split()[1]) < 1
