"""An outbox: one transaction stores the order and its message; a relay publishes it
later.

The relay may die at any point and begin again. The id of the row is the message id, so
the stream stores each message once if the relay is back within the duplicate window.
"""

import sqlite3

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
db.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, subject TEXT, body TEXT)")


def place_order(item: str) -> None:
    with db:
        order = db.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
        db.execute(
            "INSERT INTO outbox (subject, body) VALUES (?, ?)",
            (f"shop.order.{order}", item),
        )


def relay(js: JetStream) -> None:
    for row, subject, body in db.execute(
        "SELECT id, subject, body FROM outbox ORDER BY id"
    ).fetchall():
        js.publish(
            subject, body, msg_id=f"shop-{row}"
        )  # returns when it is stored, or raises
        with db:
            db.execute("DELETE FROM outbox WHERE id = ?", (row,))


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="SHOP", subjects=["shop.>"], duplicate_window=600)
    )
    place_order("book")
    place_order("pen")
    relay(js)
    assert stream.info().state.messages == 2
    assert db.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
