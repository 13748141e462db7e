"""A mistake: a connection of the master process, used in a forked worker.

The worker must get an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.live.apps import wsgi_app

import jsclient

IN_MASTER = jsclient.connect(os.environ["NATS_URL"])


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] != "/inherited":
        return wsgi_app.app(environ, start_response)
    try:
        IN_MASTER.publish("web.x", b"")
        answer = "published"
    except jsclient.errors.ForkedConnection:
        answer = "ForkedConnection"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.encode()]
