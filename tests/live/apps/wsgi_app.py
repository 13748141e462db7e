"""A WSGI application for gunicorn, also with `--preload`.

The options are made at import time, the connection in the view.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import jsclient
from jsclient.jetstream import JetStream

OPTIONS = jsclient.ConnectOptions(servers=os.environ["NATS_URL"])


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    # One connection per worker process, made at its first request.
    js = JetStream(jsclient.shared(OPTIONS))
    ack = js.publish("web.hits", str(os.getpid()))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(ack.seq).encode()]
