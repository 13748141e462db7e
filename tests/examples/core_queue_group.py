"""Core NATS: two workers of a queue group share requests, and one call collects many
replies."""

import jsclient

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    answered: list[str] = []

    def answer(msg: jsclient.Msg) -> None:
        answered.append(msg.subject)
        msg.respond(b"pong")

    with (
        nc.subscribe("ping.*", answer, queue="ponds"),
        nc.subscribe("ping.*", answer, queue="ponds"),
    ):
        for number in range(10):
            assert nc.request(f"ping.{number}", timeout=5).data == b"pong"
        assert len(answered) == 10  # each request went to one of the two

    with (
        nc.subscribe("census", lambda msg: msg.respond(b"a")),
        nc.subscribe("census", lambda msg: msg.respond(b"b")),
    ):
        replies = nc.request_many("census", timeout=5, max_messages=2)
        assert sorted(reply.data for reply in replies) == [b"a", b"b"]
