"""The HTTP endpoint of a worker service: `/healthz` and `/readyz` for probes, `/metrics` for Prometheus.

`/healthz` asks whether to restart the service: 503 only if its parent process hangs. A child that restarts, or a lost
link, heals without that. `/readyz` asks whether it works on messages now.
"""

from __future__ import annotations

import json
import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from jsclient.errors import ConfigError, NoThread
from jsclient.threads import Thread, start_all
from jsclient.workers.metrics import text_of

if TYPE_CHECKING:
    from jsclient.workers.supervisor import Supervisor

log: logging.Logger = logging.getLogger("jsclient.workers")

REQUEST_TIMEOUT: Final = 10.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            Thread("jsclient-worker-http-request", self.process_request_thread, request, client_address).start()
        except (
            NoThread,
            MemoryError,
        ):  # no thread for it: answer the probe here, one at a time
            self.process_request_thread(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.info("a request of %s was not answered: %s", client_address, sys.exc_info()[1])


class Endpoint:
    """Serves on `address` (host:port, or a port on all interfaces) from a separate thread until `close`."""

    def __init__(self, supervisor: Supervisor, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise ConfigError(f"--http is HOST:PORT or PORT, not {address!r}")

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT

            def do_GET(self) -> None:
                status, kind, body = answer(supervisor, self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """A probe every second is nothing to log."""

        self._server = _Server((host.strip("[]"), int(port)), Handler)
        self.port: int = self._server.server_port
        try:
            start_all([Thread("jsclient-worker-http", self._server.serve_forever)], f"the endpoint for {address}")
        except BaseException:
            self._server.server_close()
            raise

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(supervisor: Supervisor, path: str) -> tuple[int, str, bytes]:
    """(status, content type, body) of a request."""
    if path in ("/healthz", "/health", "/readyz"):
        good = supervisor.ready if path == "/readyz" else supervisor.alive
        state = {
            "alive": supervisor.alive,
            "ready": supervisor.ready,
            "healthy": supervisor.healthy,
            "restarts": supervisor.restarts,
            "processes": [{**labels, **figures} for labels, figures in supervisor.figures()],
        }
        return (200 if good else 503), "application/json", json.dumps(state).encode()
    if path == "/metrics":
        try:
            return 200, "text/plain; version=0.0.4", text_of(supervisor.figures())
        except ConfigError as error:
            return 501, "text/plain", f"{error}\n".encode()
    return 404, "text/plain", b"/healthz, /readyz, /metrics\n"
