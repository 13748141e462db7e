"""A stream as the data source uses it: with all of its options, not only those of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsclient.arrow.access import StreamAccess

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions


class SparkAccess(StreamAccess):
    """StreamAccess that knows the options of Spark."""

    options: SparkOptions

    def __init__(self, nc: Connection, options: SparkOptions, stream: str = "") -> None:
        super().__init__(nc, options, stream)
