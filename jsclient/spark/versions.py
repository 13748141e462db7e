"""The PySpark that runs here. Sources and sinks need 4.0, streaming reads 4.2; `foreachBatch` code and helpers 3.5."""

from __future__ import annotations

from typing import Final

from jsclient.spark.errors import JetStreamSparkError

SOURCES: Final = (4, 0)
STREAMING_READ: Final = (4, 2)


def running() -> tuple[str, tuple[int, int]]:
    """The version as text, and its first two numbers."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return pyspark.__version__, (int(major), int(minor))


def require(release: tuple[int, int], what: str, instead: str) -> None:
    """Raise JETSTREAM_SPARK_TOO_OLD if this PySpark is older than `release`."""
    text, found = running()
    if found < release:
        raise JetStreamSparkError(
            "JETSTREAM_SPARK_TOO_OLD",
            f"{what} needs PySpark {release[0]}.{release[1]} or later, and this is PySpark {text}; {instead}",
        )
