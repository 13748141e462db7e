"""A logging handler: log records as messages. It never blocks the program that logs."""

import logging

import jsclient
from jsclient.jetstream import JetStream, StreamConfig


class NatsHandler(logging.Handler):
    def __init__(self, nc: jsclient.Connection, subject: str) -> None:
        super().__init__()
        self.nc, self.subject = nc, subject

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # A core publish only puts the record into a buffer: without a link, up to
            # `pending_buffer` bytes.
            self.nc.publish(
                f"{self.subject}.{record.levelname.lower()}", self.format(record)
            )
        except Exception:
            self.handleError(record)


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    stream = JetStream(nc).create_or_update_stream(
        StreamConfig(name="LOGS", subjects=["logs.>"], max_age=86400)
    )
    log = logging.getLogger("shop")
    log.addHandler(NatsHandler(nc, "logs.shop"))
    # Keep the logger `jsclient` away from this handler: it would log its own publishes.
    log.propagate = False
    log.warning("out of books")
    nc.flush()
    assert stream.get_last_msg("logs.shop.warning").data == b"out of books"
