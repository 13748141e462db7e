"""The entry point that Spark knows: `format("jetstream")`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from jsclient.spark import options as known
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.schema import SOURCE_DDL
from jsclient.spark.versions import STREAMING_READ, require


class Given(dict[str, str]):
    """The options as Spark gave them; shows only their names, because some values are secrets."""

    def __repr__(self) -> str:
        return f"<options {', '.join(sorted(self))}>"

    __str__ = __repr__


class JetStreamDataSource(DataSource):
    """Reads and writes, in batches and as a stream. jsclient/spark/README.md lists the options and their defaults."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options: Any = Given({name.lower(): value for name, value in options.items()})
        """For layers."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`: "jetstream"."""
        return "jetstream"

    def schema(self) -> str:
        """The columns of a read as DDL, for Spark."""
        return SOURCE_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch read. Spark calls it for `spark.read`."""
        from jsclient.spark.reader import JetStreamReader

        return JetStreamReader(known.parse(self.options, known.READ), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query. Spark calls it for `spark.readStream`."""
        require_streaming_read()
        from jsclient.spark.stream import JetStreamStreamReader

        return JetStreamStreamReader(known.parse(self.options, known.READ_STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch write. Spark calls it for `df.write`."""
        from jsclient.spark.sinks import StreamSink
        from jsclient.spark.writer import SinkWriter

        refuse_overwrite(overwrite, 'write.mode("overwrite")')
        return SinkWriter(StreamSink(known.parse(self.options, known.WRITE)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query. Spark calls it for `df.writeStream`."""
        from jsclient.spark.sinks import StreamSink
        from jsclient.spark.writer import SinkStreamWriter

        refuse_overwrite(overwrite, 'outputMode("complete")')
        return SinkStreamWriter(StreamSink(known.parse(self.options, known.WRITE_STREAM)), schema)


def require_streaming_read() -> None:
    require(STREAMING_READ, "readStream", "read in batches, or upgrade; writeStream and batch_writer work here")


def refuse_overwrite(overwrite: bool, what: str) -> None:
    if overwrite:
        raise JetStreamSparkError(
            "JETSTREAM_OVERWRITE_UNSUPPORTED",
            f"{what} would have to purge the stream, which is never done in silence; use append, or purge by hand",
        )
