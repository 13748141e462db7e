"""`format("jetstream-objects")`: the objects of a store, as Spark's `binaryFile` shows files."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from jsclient import errors
from jsclient.exactly.sending import context
from jsclient.spark import buckets
from jsclient.spark import options as known
from jsclient.spark.buckets import BucketOptions, check_columns, named_errors
from jsclient.spark.datasource import Given
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.pool import lease
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from jsclient.objectstore.models import ObjectInfo
    from jsclient.objectstore.store import ObjectStore

COLUMNS: Final = {
    "name": ("string",),
    "modified": ("timestamp",),
    "length": ("bigint",),
    "digest": ("string",),
    "content": ("binary",),
}
PARTITION_BYTES: Final = 64 << 20
PARTITION_OBJECTS: Final = 10_000


class ObjectsDataSource(DataSource):
    """Options and columns: jsclient/spark/README.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options: Any = Given({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        return "jetstream-objects"

    def schema(self) -> str:
        return ", ".join(f"{name} {kinds[0]}" for name, kinds in COLUMNS.items() if name != "content")

    def reader(self, schema: StructType) -> DataSourceReader:
        return ObjectsReader(buckets.parse(self.options, known.READ, "OBJ_", set(), {"failondataloss"}), schema)


class ObjectsPartition(InputPartition):
    """Rows without content. They are the result, or they name the objects that a task must fetch."""

    def __init__(self, number: int, rows: list[tuple[Any, ...]]) -> None:
        super().__init__(number)
        self.rows = rows


class ObjectsReader(DataSourceReader):
    """The objects that exist when the query is planned. The tasks fetch the contents if the query needs them."""

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns: list[str] = check_columns(schema, COLUMNS)

    def partitions(self) -> Sequence[InputPartition]:
        with named_errors(self.options.stream, "JETSTREAM_READ_FAILED", f"object store {self.options.bucket!r}"):
            with lease(self.options.stream) as nc:
                found = {info.name: info for info in self._store(nc).list() if not info.is_link}
        parts: list[list[tuple[Any, ...]]] = [[]]
        size = 0
        for info in found.values():
            if parts[-1] and (size + info.size > PARTITION_BYTES or len(parts[-1]) >= PARTITION_OBJECTS):
                parts.append([])
                size = 0
            parts[-1].append(_row(info))
            size += info.size if "content" in self.columns else 0
        return [ObjectsPartition(number, rows) for number, rows in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, ObjectsPartition):
            return
        if "content" not in self.columns:
            yield from (self._pick(dict(zip(COLUMNS, row, strict=False))) for row in partition.rows)
            return
        with named_errors(self.options.stream, "JETSTREAM_READ_FAILED", f"object store {self.options.bucket!r}"):
            with lease(self.options.stream) as nc:
                store = self._store(nc)
                for name, *_ in partition.rows:
                    row = self._fetch(store, name)
                    if row is not None:
                        yield self._pick(row)

    def _fetch(self, store: ObjectStore, name: str) -> dict[str, Any] | None:
        """The complete object as it is now, with its digest checked. None if it is gone and failOnDataLoss=false."""
        try:
            with store.get(name) as reader:
                content = reader.read()
                return {**dict(zip(COLUMNS, _row(reader.info), strict=False)), "content": content}
        except errors.ObjectNotFound as error:
            text = f"object {name!r} of store {self.options.bucket!r} was deleted after the query was planned"
            if self.options.stream.fail_on_data_loss:
                raise JetStreamSparkError(
                    "JETSTREAM_DATA_LOSS", f"{text}; leave such objects out with failOnDataLoss=false"
                ) from error
            tell(f"going on, because failOnDataLoss=false: {text}")
            return None

    def _pick(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.columns)

    def _store(self, nc: Any) -> ObjectStore:
        from jsclient.objectstore.manager import object_store

        return object_store(context(nc, self.options.stream), self.options.bucket)


def _row(info: ObjectInfo) -> tuple[Any, ...]:
    return info.name, info.mtime, info.size, info.digest
