"""Answer the compatibility harness of NATS clients: `python -m tools.compat [--server URL]`.

The harness sends the steps of its tests as requests on `tests.object-store.*` and `tests.service.core`, looks at what
the client has done, and publishes a result of each test. This is the side of the client. The command prints each
result, and ends after the last one, with 1 if a test has failed. nats.go answers the same steps in its
`test/compat_test.go`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import threading
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import jsclient
from jsclient import Connection, Msg, objectstore, services
from jsclient.jetstream import JetStream, Placement
from jsclient.objectstore import ObjectMeta, ObjectStore, ObjectStoreConfig

WAIT: Final = 30.0
"""Seconds that a step waits for the harness to change an object."""

STEPS: Final = {"tests.service.core": 2}
"""Tests with more than one step."""

Plain = dict[str, Any]


# --- steps of the object store ------------------------------------------------------------------------------------


def create_default(js: JetStream, step: Plain) -> bytes:
    objectstore.create_object_store(js, bucket="test")
    return b""


def create_custom(js: JetStream, step: Plain) -> bytes:
    """Create a store with the settings of the step. Their names and units are as in nats.go."""
    given = {**step["config"]}
    replicas, age, placement = (given.pop(name, None) for name in ("num_replicas", "max_age", "placement"))
    config = ObjectStoreConfig(
        **given,
        replicas=replicas or 1,
        ttl=age / 1e9 if age else None,
        placement=Placement(**placement) if placement else None,
    )
    objectstore.create_object_store(js, config)
    return b""


def store_of(js: JetStream, step: Plain) -> ObjectStore:
    return objectstore.object_store(js, step["bucket"])


def get(js: JetStream, step: Plain) -> bytes:
    """The SHA-256 of an object, or of the object that a link leads to."""
    return hashlib.sha256(store_of(js, step).get_bytes(step["object"])).digest()


def put(js: JetStream, step: Plain) -> bytes:
    """Store the content of a URL."""
    with urllib.request.urlopen(step["url"], timeout=10) as answer:
        store_of(js, step).put(meta_of(step["config"]), answer.read())
    return b""


def update_metadata(js: JetStream, step: Plain) -> bytes:
    store_of(js, step).update_meta(step["object"], meta_of(step["config"]))
    return b""


def meta_of(config: Mapping[str, Any]) -> ObjectMeta:
    names = ("name", "description", "headers", "metadata")
    given = {name: config[name] for name in names if config.get(name) is not None}
    chunk_size = (config.get("options") or {}).get("max_chunk_size")
    return ObjectMeta(**given, **({"chunk_size": chunk_size} if chunk_size else {}))


def watch(js: JetStream, step: Plain) -> bytes:
    """The digests of the object that is stored and of its next change."""
    with store_of(js, step).watch(timeout=WAIT) as watcher:
        digests = [info.digest for info in watcher.initial()]
        digests.append(next(watcher).digest)
    return ",".join(digests).encode()


def watch_updates(js: JetStream, step: Plain) -> bytes:
    with store_of(js, step).watch(updates_only=True, timeout=WAIT) as watcher:
        return next(watcher).digest.encode()


def put_link(js: JetStream, step: Plain) -> bytes:
    store = store_of(js, step)
    store.add_link(step["link_name"], store.info(step["object"]))
    return b""


OBJECT_STORE: Final[dict[str, Callable[[JetStream, Plain], bytes]]] = {
    "default-bucket": create_default,
    "custom-bucket": create_custom,
    "get-object": get,
    "put-object": put,
    "update-metadata": update_metadata,
    "watch": watch,
    "watch-updates": watch_updates,
    "get-link": get,
    "put-link": put_link,
}


# --- steps of services --------------------------------------------------------------------------------------------


def echo(request: services.Request) -> None:
    request.respond(request.data)


def fail(request: services.Request) -> None:
    request.error(500, "handler error")


class ServiceSteps:
    """The first step starts a service, and the second one stops it."""

    def __init__(self, nc: Connection) -> None:
        self._nc = nc
        self._service: services.Service | None = None

    def __call__(self, js: JetStream, step: Plain) -> bytes:
        if self._service is None:
            self._service = self._start(step["config"])
        else:
            self._service.stop()
            self._service = None
        return b""

    def _start(self, given: Plain) -> services.Service:
        config = services.ServiceConfig(
            name=given["name"],
            version=given["version"],
            description=given.get("description") or "",
            metadata=given.get("metadata") or {},
            queue_group=queue_group(given),
            stats_handler=lambda endpoint: {"endpoint": endpoint.name},
        )
        service = services.add_service(self._nc, config)
        groups: dict[str, services.Group] = {"": service}
        for group in given.get("groups") or ():
            groups[group["name"]] = service.add_group(group["name"], queue_group=queue_group(group))
        for endpoint in given.get("endpoints") or ():
            groups[endpoint.get("group") or ""].add_endpoint(
                endpoint["name"],
                fail if endpoint["name"] == "faulty" else echo,
                subject=endpoint.get("subject") or None,
                metadata=endpoint.get("metadata"),
                queue_group=queue_group(endpoint),
            )
        return service


def queue_group(given: Plain) -> str | None:
    """An empty name inherits the group; only `queue_group_disabled` means none."""
    return "" if given.get("queue_group_disabled") else given.get("queue_group") or None


# --- the tests of the harness -------------------------------------------------------------------------------------


class Answers:
    """Answers the steps of all tests, each test in its own thread, until the harness has told the result of each."""

    def __init__(self, nc: Connection) -> None:
        js = JetStream(nc)
        steps = {f"tests.object-store.{name}": partial(step, js) for name, step in OBJECT_STORE.items()}
        steps["tests.service.core"] = partial(ServiceSteps(nc), js)
        self.results: dict[str, bool] = {}
        self._threads = [
            threading.Thread(target=self._answer, args=(test, nc.subscribe(f"{test}.>"), step), daemon=True)
            for test, step in steps.items()
        ]
        nc.flush()
        for thread in self._threads:
            thread.start()

    def _answer(self, test: str, messages: jsclient.Subscription, step: Callable[[Plain], bytes]) -> None:
        for number, message in enumerate(messages):
            if number == STEPS.get(test, 1) or not message.reply:  # the result, with the verdict in its subject
                self.results[test] = "fail" not in message.subject
                print(f"{test}: {'passed' if self.results[test] else 'failed'} ({message.subject})", flush=True)
                messages.close()
                return
            self._respond(message, step)

    def _respond(self, message: Msg, step: Callable[[Plain], bytes]) -> None:
        try:
            message.respond(step(json.loads(message.data or b"{}")))
        except Exception:  # the harness misses the answer, and calls the test failed
            print(f"no answer to the step on {message.subject}:", file=sys.stderr)
            traceback.print_exc()

    def wait(self) -> bool:
        """Wait for all results; True if no test has failed."""
        for thread in self._threads:
            thread.join()
        return len(self.results) == len(self._threads) and all(self.results.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--server", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), help="its URL")
    with jsclient.connect(parser.parse_args().server) as nc:
        return 0 if Answers(nc).wait() else 1


if __name__ == "__main__":
    sys.exit(main())
