"""The JetStream data source for Spark, and helpers for code that runs on executors.

    df = spark.read.format("jetstream").option("servers", "nats://n1").load("ORDERS")

If jsclient is installed next to pyspark, Spark finds its three formats by itself; otherwise call `register(spark)`.
For `foreachBatch` use `batch_writer`. Inside `foreachPartition` and `mapInArrow` use `connection`, `publish_partition`,
`read_range` and `ack_partition`. The README.md of this folder explains everything.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from jsclient.spark.errors import JetStreamSparkError, from_spark

if TYPE_CHECKING:
    from jsclient.spark.datasource import JetStreamDataSource
    from jsclient.spark.foreach_batch import batch_writer
    from jsclient.spark.helpers import ack_partition, publish_partition, read_range
    from jsclient.spark.listener import JetStreamListener, lag, losses, rates
    from jsclient.spark.pool import close_idle, connection
    from jsclient.spark.preflight import CheckReport, CheckRow, check
    from jsclient.spark.privileges import permissions, required_permissions

__all__ = [
    "CheckReport",
    "CheckRow",
    "JetStreamDataSource",
    "JetStreamListener",
    "JetStreamSparkError",
    "ack_partition",
    "batch_writer",
    "check",
    "close_idle",
    "connection",
    "from_spark",
    "lag",
    "losses",
    "permissions",
    "publish_partition",
    "rates",
    "read_range",
    "register",
    "required_permissions",
]

# Loaded when first used: a task that only needs a connection loads neither pyarrow nor the data source.
_HOMES = {
    "JetStreamDataSource": "datasource",
    "batch_writer": "foreach_batch",
    "JetStreamListener": "listener",
    "lag": "listener",
    "losses": "listener",
    "rates": "listener",
    "connection": "pool",
    "close_idle": "pool",
    "CheckReport": "preflight",
    "CheckRow": "preflight",
    "check": "preflight",
    "permissions": "privileges",
    "required_permissions": "privileges",
    "publish_partition": "helpers",
    "read_range": "helpers",
    "ack_partition": "helpers",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'jsclient.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jsclient.spark.{home}"), name)


def register(spark: Any) -> None:
    """Register `jetstream`, `jetstream-kv` and `jetstream-objects` in a session that does not find them by itself.

    Spark looks through the folders of `sys.path` for them, once per session. It does not find an editable installation,
    a bare checkout, or code that was shipped as a zip.
    """
    from jsclient.spark.versions import SOURCES, require

    require(SOURCES, "a Python data source", "use batch_writer in foreachBatch, and the helpers")
    from jsclient.spark.datasource import JetStreamDataSource
    from jsclient.spark.kv import KeyValueDataSource
    from jsclient.spark.objects import ObjectsDataSource

    _share_zip(spark)
    for source in (JetStreamDataSource, KeyValueDataSource, ObjectsDataSource):
        try:
            spark.dataSource.register(source)
        except Exception as error:
            # PySpark 4.0 refuses to register a source again that it has found by itself.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise


def _share_zip(spark: Any) -> None:
    """Let the process of a streaming source find jsclient in a zip of `--py-files`, which Spark gives to tasks only."""
    archive = getattr(__spec__ and __spec__.loader, "archive", None)
    if archive is None:
        return
    try:
        environment = spark.sparkContext.environment
    except Exception:  # Spark Connect
        return
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    if archive not in paths:
        environment["PYTHONPATH"] = os.pathsep.join([path for path in paths if path] + [archive])
