"""A Celery application with prefork workers.

The task calls `jsclient.shared(options)`; importing this module does nothing.
"""

from __future__ import annotations

import os

from celery import Celery

import jsclient
from jsclient.jetstream import JetStream

OPTIONS = jsclient.ConnectOptions(servers=os.environ["NATS_URL"])
folder = os.environ["CELERY_FOLDER"]
app = Celery("tests", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.update(
    broker_transport_options={
        "data_folder_in": f"{folder}/queue",
        "data_folder_out": f"{folder}/queue",
        "control_folder": f"{folder}/control",
    },
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task
def store(text: str) -> tuple[int, int]:
    ack = JetStream(jsclient.shared(OPTIONS)).publish("tasks.done", text)
    return os.getpid(), ack.seq
