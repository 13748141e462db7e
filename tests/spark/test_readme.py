"""The examples of the Spark chapter and of the site that need Spark run as they stand, against a private server."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import tutorials

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.keyvalue import KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.spark import register
from jsclient.testing import NatsServer, free_port, wait_until

from .clusters import daemon, listening, spark_home
from .conftest import settings

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python spark\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["jsclient/spark/README.md", "tools/docs/pages/json-types.md", "tools/docs/pages/spark-deployment.md"]
EXAMPLES = [
    pytest.param(code, id=f"{Path(page).stem}-{number}")
    for page in PAGES
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")), 1)
]
RECIPES = ROOT / "tools" / "docs" / "pages" / "spark-recipes.md"
OUTPUT = re.compile(r"^```output\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST, *PARTS = RECIPES.read_text(encoding="utf-8").split("\n## ")
(PREPARATION,) = BLOCK.findall(FIRST)
STREAMS = {"ORDERS": "orders.>", "ORDERS_EU": "eu.>", "TOTALS": "totals.>", "ARCHIVE": "archive.>", "MAIL": "mail.>"}


@pytest.fixture
def prepared(server: NatsServer) -> Iterator[JetStream]:
    """The streams and buckets that the examples name, with a little in each."""
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for name, subject in STREAMS.items():
            js.create_or_update_stream(StreamConfig(name=name, subjects=[subject]))
            for number in range(5):
                js.publish(subject.replace(">", f"new.{number}"), b'{"id": 1, "price": 2.5, "tags": ["a"]}')
        settings = keyvalue.create_or_update_key_value(js, KeyValueConfig(bucket="settings", history=5))
        settings["eu.color"] = b"blue"
        images = objectstore.create_or_update_object_store(js, ObjectStoreConfig(bucket="images"))
        images.put("logo", b"logo")
        yield js
        for name in list(js.stream_names()):
            js.delete_stream(name)


def test_every_page_with_spark_is_here() -> None:
    found = [path for folder in ("jsclient", "tools") for path in sorted((ROOT / folder).rglob("*.md"))]
    with_spark = [str(path.relative_to(ROOT)) for path in found if BLOCK.search(path.read_text(encoding="utf-8"))]
    assert sorted(with_spark) == sorted([*PAGES, str(RECIPES.relative_to(ROOT))])


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("code", EXAMPLES)
def test_it_runs(code: str, spark: Any, server: NatsServer, tmp_path: Path) -> None:
    register(spark)
    source = spark.read.format("jetstream").option("servers", server.url)
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "jsclient": jsclient, "pa": pa}
    if "bucket" in code:
        names["df"] = spark.read.format("jetstream-kv").options(servers=server.url, bucket="settings").load()
    elif "foreachPartition" in code:
        names["df"] = source.load("ORDERS").selectExpr("value")
    if "awaitTermination" in code:
        names["query"] = (
            spark.readStream.format("jetstream").option("servers", server.url)
            .option("startingOffsets", "earliest").load("ORDERS")
            .writeStream.foreachBatch(lambda frame, number: frame.selectExpr("raise_error('planned')").collect())
            .option("checkpointLocation", str(tmp_path / "failing")).start()
        )  # fmt: skip
    code = code.replace("nats://127.0.0.1:4222", server.url).replace("/data/", f"{tmp_path}/")
    try:
        exec(compile(code, "example", "exec"), names)
        query = names.get("query")
        if query is not None and query.isActive:
            query.processAllAvailable()
        for frame in (value for value in list(names.values()) if type(value).__name__ == "DataFrame"):
            assert frame.columns
            if not frame.isStreaming:
                frame.collect()
    finally:
        for query in spark.streams.active:
            query.stop()


@pytest.fixture
def emptied(server: NatsServer) -> Iterator[NatsServer]:
    """Executors keep the journal open, so it stays."""
    yield server
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for name in set(js.stream_names()) - {"KV_spark_journal"}:
            js.delete_stream(name)


@pytest.mark.parametrize("recipe", [part for part in PARTS if BLOCK.search(part)], ids=lambda part: part.split("\n")[0])
def test_a_recipe(recipe: str, spark: Any, emptied: NatsServer, tmp_path: Path) -> None:
    (code,) = BLOCK.findall(recipe)
    (expected,) = OUTPUT.findall(recipe)
    code = f"{PREPARATION}{code}".replace(tutorials.USUAL, emptied.url).replace("/data/", f"{tmp_path}/")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "recipe", "exec"), {"__name__": "__main__", "spark": spark})
    finally:
        for query in spark.streams.active:
            query.stop()
    tutorials.check(recipe.split("\n")[0], expected, printed.getvalue())


@pytest.mark.spark_modes
@pytest.mark.usefixtures("spark_environment")
def test_the_recipe_for_connect(emptied: NatsServer, tmp_path: Path) -> None:
    assert len(PARTS) == 10
    exec(PREPARATION.replace(tutorials.USUAL, emptied.url))
    port = free_port()
    given = {**settings(tmp_path), "spark.connect.grpc.binding.port": str(port)}
    confs = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    page = tmp_path / "page.md"
    page.write_text(RECIPES.read_text(encoding="utf-8").replace("sc://localhost:15002", f"sc://127.0.0.1:{port}"))
    path = os.pathsep.join([str(spark_home() / "bin"), os.environ["PATH"]])
    with daemon(tmp_path, "sh", str(ROOT / "tools" / "deploy" / "connect.sh"), "local[2]", *confs, PATH=path):
        wait_until(lambda: listening(port), 120, "the Connect server to listen")
        tutorials.follow(page, tmp_path, emptied)
