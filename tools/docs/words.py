"""The words under which a reader looks for a page: they become entries of the index, and the search finds these first.

A key is a page of the site, with the heading of the section below it where a part of the page is meant.
"""

from __future__ import annotations

import re

WORDS = {
    "start.md": "install, installation, first steps, getting started, hello world, quickstart",
    "connecting.md": "tls, websocket, nkey, jwt, credentials, password, token, proxy",
    "connecting.md#Rotate credentials": "rotate, rotation, expired credentials",
    "connecting.md#Connect before the server is up": "retry connect, server down, lazy connect",
    "connecting.md#Reconnecting": "reconnect, back-off of reconnects, failover",
    "connecting.md#Timeouts": "timeout, deadline",
    "core.md": "pub/sub, subscribe, wildcard",
    "core.md#Queue groups": "queue group, load balancing",
    "core.md#Request and reply": "request, reply, rpc",
    "jetstream.md#Publish": "publish, deduplication, duplicate, msg_id, batch publish",
    "jetstream.md#Take messages": "fetch, pull consumer, push consumer, ordered consumer, consume, replay",
    "jetstream.md#What an ack means": "ack, nak, acknowledge, redelivery, ack_wait, max_deliver",
    "jetstream.md#Values instead of bytes": "json, msgpack, serialization, decode",
    "jetstream.md#Leaders and replicas": "cluster, replica, leader",
    "keyvalue.md": "kv, key-value, watch, settings",
    "keyvalue.md#Compare-and-set with a retry loop": "optimistic locking, compare-and-set, cas, conflict, revision",
    "objectstore.md": "file, upload, download, large file, object store",
    "objectstore.md#Show the progress of a large object": "progress",
    "workers.md": "worker, retry, back-off, concurrency, thread pool",
    "workers.md#Dead letters": "dead letter, dlq, poison message",
    "groups.md": "partition, ordering, order by key, consumer group, rebalance",
    "coordination.md": "lock, leader election, semaphore, lease, fencing",
    "services.md": "service, micro, endpoint",
    "backup.md": "backup, restore, snapshot",
    "arrow.md": "arrow, dataframe, parquet",
    "spark.md": "spark, pyspark, structured streaming",
    "spark-job.md": "spark tutorial, audit",
    "dataframe-once.md": "write a dataframe, exactly once in spark",
    "settings.md": "options, settings, configuration",
    "spark-recipes.md": "windowed counts, upsert, backfill, migrate a checkpoint, leaf domain",
    "spark-guarantees.md": "checkpoint, journal",
    "spark-deployment.md": "spark cluster, yarn, databricks, emr, dataproc, spark connect",
    "testing.md": "pytest, mock, fixture, test server",
    "patterns.md#Exactly-once processing": "exactly once, exactly-once, idempotent, idempotence",
    "patterns.md#Outbox": "outbox, transaction, database",
    "patterns.md#Scheduled jobs": "schedule, cron, delayed message, delay",
    "recipes.md": "flask, django, fastapi, notebook, jupyter",
    "recipes.md#A day of a stream in pandas, polars or DuckDB": "pandas, polars, duckdb",
    "operations.md": "monitoring, health check, production",
    "operations.md#Logging": "logging, log",
    "operations.md#Metrics and traces": "metrics, prometheus, opentelemetry, tracing",
    "operations.md#Stopping": "shutdown, sigterm, drain, graceful shutdown",
    "operations.md#Run it under systemd, Kubernetes, gunicorn or Celery": "deploy, deployment, systemd, kubernetes, "
    "docker, gunicorn, celery",
    "errors.md": "exception, error, unknown outcome",
    "threads.md": "thread, thread-safe, asyncio, async",
    "threads.md#Fork": "fork, multiprocessing",
    "servers.md": "version, compatibility, windows, platform",
    "security.md#Least privilege": "permission, least privilege, authorization",
    "performance.md": "performance, benchmark, speed, latency",
    "performance.md#Measure your own throughput": "throughput, bench",
    "troubleshooting.md": "troubleshooting, problem, debug, help",
    "troubleshooting.md#A consumer is stuck": "stuck, hang, consumer stuck",
    "troubleshooting.md#Messages arrive twice": "twice, duplicates, redelivered",
    "troubleshooting.md#Nothing arrives": "nothing arrives, no messages",
    "troubleshooting.md#No responders, no stream": "no responders, stream not found",
    "troubleshooting.md#Slow consumer": "slow consumer",
    "from-nats-py.md": "nats-py, migration",
    "from-kafka.md": "kafka, offset, topic",
    "glossary.md": "glossary, terms",
    "contributing.md": "contribute, development, make",
}


class NoHeading(Exception):
    """A key names a section that its page does not have."""


def with_words(page: str, text: str) -> str:
    """The page with an entry of the index below each heading that the table names."""
    for key, words in WORDS.items():
        place, _, section = key.partition("#")
        if place == page:
            heading = rf"## {re.escape(section)}" if section else "# .*"
            entries = ", ".join(f"! {word.strip()}" for word in words.split(","))
            entry = f"\n```{{index}} {entries}\n```\n"
            found = re.search(rf"^{heading}$", text, re.M)
            if found is None:
                raise NoHeading(f"{page} has no heading {section or '#'!r}")
            text = f"{text[: found.end()]}\n{entry}{text[found.end() :]}"
    return text
