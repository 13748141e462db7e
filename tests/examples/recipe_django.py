"""Django: publish after the database has committed.

So no one hears of an order that was rolled back. A process that dies between the commit
and the publish loses the message; if that must not happen, use an outbox.
"""

import django
from django.conf import settings
from django.db import transaction

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
)
django.setup()
OPTIONS = jsclient.ConnectOptions(servers="nats://127.0.0.1:4222", name="shop")


def place_order(number: str) -> None:
    with transaction.atomic():
        # Order.objects.create(number=number)
        transaction.on_commit(
            lambda: JetStream(jsclient.shared(OPTIONS)).publish(
                "django.orders", number, msg_id=number
            )
        )


if __name__ == "__main__":
    stream = JetStream(jsclient.shared(OPTIONS)).create_or_update_stream(
        StreamConfig(name="DJANGO", subjects=["django.>"])
    )
    place_order("7")
    assert stream.get_last_msg("django.orders").data == b"7"
