"""Many confirmed acknowledgements at once: one round trip for a window of them instead of one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient._engine import Unkept
from jsclient.arrow.chunks import ChunkQueue
from jsclient.connection import engine_of
from jsclient.nuid import new_token
from jsclient.spark.errors import JetStreamSparkError
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.connection import Connection

CONFIRM_TIMEOUT: Final = 5.0
ATTEMPTS: Final = 3


def confirm_all(nc: Connection, replies: list[str]) -> int:
    """+ACK to every reply subject; returns their number when the server has answered all of them.

    An ack is idempotent, so what is not answered (a lost link, a busy server) is sent again.
    """
    if not replies:
        return 0
    queue = ChunkQueue()
    inbox = nc.new_inbox()
    skip = len(inbox) + 1
    subscription = engine_of(nc).open_sink(f"{inbox}.*", queue)
    open_ = {new_token(): reply for reply in replies}
    try:
        for _ in range(ATTEMPTS):
            frames = [
                engine_of(nc).encode(reply, b"+ACK", reply=f"{inbox}.{token.decode()}")
                for token, reply in open_.items()
            ]
            try:
                engine_of(nc).post_now(Unkept(b"".join(frames)))
            except errors.ConnectionLost:
                pass
            while open_:
                item = queue.next(CONFIRM_TIMEOUT)
                if item is None or item is LinkEvent.RECONNECTED:
                    break
                if isinstance(item, LinkEvent):
                    engine_of(nc).check_usable()
                    continue
                for message in item:
                    if message.status is None:
                        open_.pop(message.raw_subject[skip:], None)
            if not open_:
                return len(replies)
    finally:
        subscription.close()
    raise JetStreamSparkError(
        "JETSTREAM_PUBLISH_FAILED",
        f"{len(open_)} of {len(replies)} acknowledgements were not confirmed, the first on "
        f"{next(iter(open_.values()))!r}: the consumer is gone, or its leader is away. "
        "Those messages come again; run the task again",
    )
