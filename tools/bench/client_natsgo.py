"""The workloads on nats.go: a small Go program, compiled below .tools with what Debian packs: Go and nats.go itself.

Shown beside the others, not gated. `program()` says why when it cannot be had.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.bench import compiled
from tools.bench.compiled import Unavailable
from tools.private_apt import AptError, fetch_packages

SOURCE = Path(__file__).with_suffix(".go")
FOLDER = compiled.FOLDER / "natsgo"
RELEASE = "trixie"
"""Debian 13: the first with the package `jetstream` of nats.go. Neither Go nor sources depend on the machine's own."""

PACKAGES = [
    "golang-1.24-go",
    "golang-1.24-src",
    "golang-github-nats-io-go-nats-dev",
    "golang-github-nats-io-nkeys-dev",
    "golang-github-nats-io-nuid-dev",
    "golang-github-klauspost-compress-dev",
    "golang-golang-x-crypto-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev",
]


def program() -> Path:
    """The compiled client; made at first use, about a minute. Raises Unavailable."""
    made = FOLDER / "client"
    if compiled.is_current(made, SOURCE):
        return made
    tree = _packages()
    goroot = tree / "usr/lib/go-1.24"
    env = {
        **os.environ,
        "GO111MODULE": "off",
        "GOROOT": str(goroot),
        "GOPATH": str(tree / "usr/share/gocode"),
        "GOCACHE": str(FOLDER / "cache"),
        "CGO_ENABLED": "0",
    }
    compiled.build([str(goroot / "bin/go"), "build", "-o", str(made), str(SOURCE)], env)
    return made


def _packages() -> Path:
    tree = FOLDER / "tree"
    if not tree.exists():
        compiled.suite()
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=FOLDER) as work:
                fetch_packages(RELEASE, PACKAGES, Path(work)).rename(tree)
        except (AptError, OSError) as error:
            raise Unavailable(f"Go and nats.go cannot be fetched: {error}") from None
    return tree


def run(case: dict[str, Any]) -> str:
    return compiled.run(program(), case)


core_publish = core_subscribe = request = publish_sync = publish_async = run
fetch = messages = consume = ordered = kv_get = kv_put = object_put = object_get = run
threads_publish = threads_request = threads_double_ack = run


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    print(run({**told, "url": sys.argv[1]}))
