"""valueFormat: the columns of a schema that are decoded from the values, and messages that do not fit the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient import errors
from jsclient.arrow.documents import Bad, DocumentColumns, Message
from jsclient.arrow.formats import CORRUPT, Unsupported
from jsclient.exactly.sending import context
from jsclient.jetstream.dead_letters import REASON, SEQUENCE, STREAM, SUBJECT, domain_of, one_line, origin_id, store
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.protocol import Headers
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.schema import SOURCE_COLUMNS, TEXTS, schema_of
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions


def check_documents(schema: StructType, options: SparkOptions) -> None:
    """Raise JETSTREAM_SCHEMA_MISMATCH for a schema that documents cannot have."""
    inside = [field.name for field in schema.fields if is_inside(field)]
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" in inside and len(inside) > 1:
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH",
            f"the schema has a typed value and the columns {', '.join(inside)}; the document is either the "
            "value or the columns",
        )
    if (options.bad_records == "null") != ("_corrupt" in kinds) or kinds.get("_corrupt", "string") not in TEXTS:
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH",
            "badRecords=null and a column '_corrupt' (string or binary) belong together: it holds the values that do "
            "not fit the schema",
        )
    if not inside:
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH",
            f"valueFormat={options.value_format} needs the columns of the documents in .schema(), for example "
            "seq bigint, id bigint, name string",
        )
    documents_of(schema, options)


def documents_of(
    schema: StructType, options: SparkOptions, divert: DeadLetters | None = None
) -> DocumentColumns | None:
    """The decoder for the columns that lie inside of the values; None when there are none.

    Raises JETSTREAM_SCHEMA_MISMATCH for types that documents do not have. In a task with badRecords=dead-letter,
    `divert` takes the bad documents. The driver only checks the schema, so it passes none.
    """
    if options.value_format == "binary":
        return None
    fields = {field.name: field for field in schema_of(schema)}
    inside = [field.name for field in schema.fields if is_inside(field)]
    whole = "value" in inside
    corrupt = fields.get(CORRUPT)

    def refuse(text: str) -> Exception:
        more = "with badRecords=null it is in the column _corrupt, with badRecords=dead-letter stored elsewhere"
        return JetStreamSparkError("JETSTREAM_BAD_RECORD", f"{text}; {more}")

    try:
        return DocumentColumns(
            options.value_format,
            [fields[name] for name in inside],
            whole=whole,
            corrupt=None if corrupt is None else corrupt.type,
            refuse=refuse if options.bad_records == "fail" else None,
            divert=divert,
        )
    except Unsupported as error:
        raise JetStreamSparkError("JETSTREAM_SCHEMA_MISMATCH", f"{error}; read the value as binary") from None


def is_inside(field: Any) -> bool:
    """True if a field of a schema is decoded from the value."""
    if field.name == CORRUPT:
        return False
    return SOURCE_COLUMNS.get(field.name) is None or (
        field.name == "value" and field.dataType.simpleString() != "binary"
    )


class DeadLetters:
    """Stores messages that do not fit the schema on the dead-letter subject, before the rest of the batch goes out."""

    def __init__(self, nc: Connection, options: SparkOptions) -> None:
        self._options = options
        self._js = context(nc, options)
        self._count = 0

    def __call__(self, bad: list[Bad]) -> None:
        subject = self._options.dead_letter_subject or ""
        try:
            with AsyncPublisher(self._js, stall_wait=self._options.reconnect_timeout) as publisher:
                self._store(bad, subject, publisher)
        except errors.JsClientError as error:
            text = self._options.hide(f"{type(error).__name__}: {errors.brief(error)}")
            raise JetStreamSparkError(
                "JETSTREAM_PUBLISH_FAILED",
                f"bad records could not be stored on {subject!r} (deadLetterSubject): {text}; is there a "
                "stream for it?",
            ) from error
        self._count += len(bad)

    def _store(self, bad: list[Bad], subject: str, publisher: AsyncPublisher) -> None:
        sent = []
        for message, reason in bad:
            headers, id_ = _headers(message, reason), self._id(message)
            future = publisher.publish(subject, message.payload, headers=headers, msg_id=id_)
            sent.append((message, headers, id_, future))
        for message, headers, id_, future in sent:
            if future.result().duplicate:  # an earlier try of this task, or another message
                store(self._js, subject, message.payload, headers, id_)

    def _id(self, message: Message) -> str:
        """An id for storing a message once if its task is retried, within the window of the dead-letter stream."""
        return origin_id(domain_of(self._js), message.stream, "spark", message.seq, message.stored // 1000)

    def finish(self) -> None:
        if self._count:
            where = self._options.dead_letter_subject
            tell(f"{self._count} messages of stream {self._options.stream!r} fit no schema and are stored on {where!r}")


def _headers(message: Message, reason: str) -> Headers:
    """The headers of the message that may be published again, and headers with its origin."""
    try:
        given = [] if message.headers is None else Headers.decode(message.headers).sendable().items()
    except ValueError:
        given = []
    headers = Headers(pair for pair in given if not pair[0].startswith("Nats-"))
    headers[REASON] = one_line(reason)
    headers[SUBJECT] = one_line(message.subject.decode("utf-8", "replace"))
    headers[STREAM] = message.stream
    headers[SEQUENCE] = str(message.seq)
    return headers
