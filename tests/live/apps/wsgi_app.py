"""A WSGI application under `gunicorn --preload`: the module is imported in the master, the views run in forked workers.

The recipe: options at import time, `jsclient.shared(options)` in the view.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import jsclient
from jsclient.jetstream import JetStream

OPTIONS = jsclient.ConnectOptions(servers=os.environ["NATS_URL"])
# What not to do: this connection belongs to the master. It is here to show that a worker is told so.
IN_MASTER = jsclient.connect(OPTIONS)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/inherited":
        try:
            IN_MASTER.publish("web.x", b"")
            answer = "published"
        except jsclient.errors.ForkedConnection:
            answer = "ForkedConnection"
    else:
        ack = JetStream(jsclient.shared(OPTIONS)).publish("web.hits", str(os.getpid()))
        answer = str(ack.seq)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.encode()]
