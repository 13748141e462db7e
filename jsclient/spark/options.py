"""The options of the data source: names, defaults, checks. Nothing here touches the network or Spark.

Spark passes options as strings with lower-cased names. `parse` turns them into a frozen `SparkOptions`, which can be
pickled into tasks; every sensitive value is a `Secret`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import attrs

from jsclient.auth.secret import Secret
from jsclient.errors import ConfigError
from jsclient.spark import values
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.renamed import KAFKA, REMOVED
from jsclient.spark.secret import ServerUrl
from jsclient.spark.telling import tell
from jsclient.urls import split_urls

READ: Final = "R"
READ_STREAM: Final = "S"
WRITE: Final = "W"
WRITE_STREAM: Final = "T"
WAYS: Final = {READ: "read", READ_STREAM: "readStream", WRITE: "write", WRITE_STREAM: "writeStream"}

# Names that Spark itself adds to the options of a source or sink.
SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "__paths__"})


def _urls(value: str) -> tuple[ServerUrl, ...]:
    try:
        urls = split_urls(value)
    except ConfigError as error:
        raise values.Refused(f"must be a comma list of URLs: {error}") from None
    if not all(urls):  # without its passwords
        raise values.Refused("must be a comma list of URLs without empty items")
    return tuple(map(ServerUrl, urls))


@attrs.frozen
class Spec:
    """One option: its documented name, the ways that allow it, and the function that reads its text."""

    name: str
    ways: str
    parse: Callable[[str], Any]
    field: str


def _option(name: str, ways: str, parse: Callable[[str], Any], default: Any = None) -> Any:
    return attrs.field(default=default, metadata={"option": name, "ways": ways, "parse": parse})


@attrs.frozen(kw_only=True)
class SparkOptions:
    """Checked options of one use of the data source. Durations in seconds, sizes in bytes, times in ns.

    The table in jsclient/spark/README.md explains each of them. The letters mean R read, S readStream, W write, T
    writeStream.
    """

    servers: tuple[ServerUrl, ...] = _option("servers", "RSWT", _urls, ())
    stream: str = _option("stream", "RS", values.text, "")
    domain: str | None = _option("domain", "RSWT", values.text)
    api_prefix: str | None = _option("apiPrefix", "RSWT", values.text)
    inbox_prefix: str | None = _option("inboxPrefix", "RSWT", values.text)
    subjects: tuple[str, ...] = _option("subjects", "RS", values.names, ())

    starting_offsets: values.Position | None = _option("startingOffsets", "RS", values.position("earliest", "latest"))  # noqa: RUF009
    starting_timestamp: int | None = _option("startingTimestamp", "RS", values.moment)
    ending_offsets: values.Position = _option("endingOffsets", "R", values.position("latest"), "latest")  # noqa: RUF009
    ending_timestamp: int | None = _option("endingTimestamp", "R", values.moment)

    max_offsets_per_trigger: int | None = _option("maxOffsetsPerTrigger", "S", values.integer(1))
    max_bytes_per_trigger: int | None = _option("maxBytesPerTrigger", "S", values.size)

    min_partitions: int = _option("minPartitions", "RS", values.integer(1), 1)
    records_per_partition: int = _option("recordsPerPartition", "RS", values.integer(1), 100_000)
    partition_by: str = _option("partitionBy", "RS", values.choice("seq", "subject"), "seq")
    read_method: str = _option("readMethod", "RS", values.choice("auto", "consumer", "direct"), "auto")
    fail_on_data_loss: bool = _option("failOnDataLoss", "RS", values.boolean, True)
    value_format: str = _option("valueFormat", "RSWT", values.choice("binary", "json", "msgpack"), "binary")
    bad_records: str = _option("badRecords", "RS", values.choice("fail", "null", "dead-letter"), "fail")
    dead_letter_subject: str | None = _option("deadLetterSubject", "RS", values.text)
    read_options_changed: str = _option("readOptionsChanged", "S", values.choice("refuse", "accept"), "refuse")
    ack_mode: str = _option("ackMode", "S", values.choice("none", "purge"), "none")

    task_timeout: float | None = _option("taskTimeout", "RSWT", values.duration)
    reconnect_timeout: float = _option("reconnectTimeout", "RSWT", values.duration, 60.0)

    subject: str | None = _option("subject", "WT", values.text)
    delivery_semantics: str = _option(
        "deliverySemantics", "WT", values.choice("auto", "exactly-once", "window", "at-least-once"), "auto"
    )
    journal: str | None = _option("journal", "WT", values.text)
    publish_mode: str = _option("publishMode", "WT", values.choice("auto", "async", "fast"), "auto")

    credentials_file: str | None = _option("credentialsFile", "RSWT", values.text)
    nkey_seed_file: str | None = _option("nkeySeedFile", "RSWT", values.text)
    tls_ca_file: str | None = _option("tls.caFile", "RSWT", values.text)
    tls_cert_file: str | None = _option("tls.certFile", "RSWT", values.text)
    tls_key_file: str | None = _option("tls.keyFile", "RSWT", values.text)
    tls_first: bool = _option("tls.first", "RSWT", values.boolean, False)
    credentials_provider: str | None = _option("credentialsProvider", "RSWT", values.text)
    user: str | None = _option("user", "RSWT", values.text)
    password: Secret | None = _option("password", "RSWT", Secret)  # noqa: RUF009
    token: Secret | None = _option("token", "RSWT", Secret)  # noqa: RUF009
    nkey_secret: Secret | None = _option("nkeySecret", "RSWT", Secret)  # noqa: RUF009
    credentials_secret: Secret | None = _option("credentialsSecret", "RSWT", Secret)  # noqa: RUF009
    # Set by jsclient.spark.buckets. Messages that the head of a bucket has passed were replaced or have expired.
    compacted: bool = False

    @property
    def journal_bucket(self) -> str:
        """The bucket of the journal."""
        return self.journal or "spark_journal"

    def keeps_journal(self, streaming: bool) -> bool:
        """True if a writing task keeps a journal, provided that its user may have one."""
        return self.delivery_semantics == "exactly-once" or (self.delivery_semantics == "auto" and streaming)

    def target(self, name: str = "") -> str:
        """A name for the sink that stays the same while its options for subject, domain and prefix do."""
        text = "\0".join([name, self.subject or "", self.domain or "", self.api_prefix or ""])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The streams named in the option, each once."""
        return tuple(dict.fromkeys(word for word in _words(self.stream) if "*" not in word))

    @property
    def stream_patterns(self) -> tuple[str, ...]:
        return tuple(word for word in _words(self.stream) if "*" in word)

    def of(self, stream: str) -> SparkOptions:
        """The options of one of many streams."""
        start, end = self.starting_offsets, self.ending_offsets
        # Positions may also name streams that do not exist yet, next to a pattern.
        if isinstance(start, values.PerStream):
            start = start.of(stream)
        if isinstance(end, values.PerStream):
            end = end.of(stream) or "latest"
        return attrs.evolve(self, stream=stream, starting_offsets=start, ending_offsets=end)

    def secrets(self) -> list[str]:
        """All secret texts, for removing them from error messages of other code."""
        found = [part for url in self.servers for part in url.secrets()]
        fields = (self.password, self.token, self.nkey_secret, self.credentials_secret)
        found += [secret.reveal() for secret in fields if secret is not None]
        return [text for text in found if text and not text.startswith("env:")]

    # --- further members of a Settings, see jsclient/arrow/settings.py and jsclient/exactly/settings.py ------------

    consumers: ClassVar[str] = "spark"
    time_limit: ClassVar[str] = "taskTimeout"
    accept_loss: ClassVar[str] = "accept the loss with failOnDataLoss=false"

    def refuse(self, token: str, text: str) -> JetStreamSparkError:
        """The error that is raised if a range cannot be read."""
        return JetStreamSparkError(token, text)

    def note(self, text: str) -> None:
        """Log a warning about skipped messages although nothing failed."""
        tell(text)

    def reading(self, stream: str) -> SparkOptions:
        """The options for reading back a sink."""
        return attrs.evolve(self, stream=stream, fail_on_data_loss=True)

    def hide(self, text: str) -> str:
        """`text` with our secrets replaced by `***`."""
        for secret in sorted(self.secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _words(stream: str) -> list[str]:
    return [word.strip() for word in stream.split(",")]


SPECS: Final[dict[str, Spec]] = {
    field.metadata["option"].lower(): Spec(
        field.metadata["option"], field.metadata["ways"], field.metadata["parse"], field.name
    )
    for field in attrs.fields(SparkOptions)
    if "option" in field.metadata
}


def parse(given: Mapping[str, str], way: str) -> SparkOptions:
    """Check the options of one `way` (READ, READ_STREAM, WRITE or WRITE_STREAM) and return them typed.

    Raises JetStreamSparkError. The text names the option, and for an unknown one the nearest name.
    """
    options = {name.lower(): value for name, value in given.items()}
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in SPARKS_OWN or name in SPECS:
            spec = _spec(name, way)
            refuse_removed(f"{name}={value.strip().lower()}", "JETSTREAM_BAD_OPTION")
            fields[spec.field] = _value(spec, value)
    _take_path(fields, options, way)
    checked = SparkOptions(**fields)
    _check(checked, way)
    return checked


def _spec(name: str, way: str) -> Spec:
    spec = SPECS.get(name)
    if spec is None and (name in KAFKA or name.startswith("kafka")):
        text = KAFKA.get(name, "see Coming from Kafka in jsclient/spark/README.md")
        raise JetStreamSparkError("JETSTREAM_UNKNOWN_OPTION", f"{name!r} is an option of Kafka; {text}")
    refuse_removed(name, "JETSTREAM_UNKNOWN_OPTION")
    if spec is None:
        here = {lowered: known.name for lowered, known in SPECS.items() if way in known.ways}
        near = difflib.get_close_matches(name, here, n=1, cutoff=0.5)
        hint = f"did you mean {here[near[0]]!r}?" if near else f"known are: {', '.join(sorted(here.values()))}"
        raise JetStreamSparkError("JETSTREAM_UNKNOWN_OPTION", f"{name!r} is not an option of {WAYS[way]}; {hint}")
    if way not in spec.ways:
        usable = " and ".join(WAYS[letter] for letter in spec.ways)
        raise JetStreamSparkError(
            "JETSTREAM_UNKNOWN_OPTION", f"{spec.name!r} is an option of {usable}, not of {WAYS[way]}; leave it out"
        )
    return spec


def refuse_removed(given: str, token: str) -> None:
    """Raise if `given`, an option or `name=value`, was in an earlier version."""
    known = "nats.*" if given.startswith("nats.") else given
    if known in REMOVED:
        raise JetStreamSparkError(token, f"{given!r} was removed; {REMOVED[known]}")


def _value(spec: Spec, value: str) -> Any:
    try:
        return spec.parse(value)
    except ValueError as error:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"option {spec.name!r} {error}") from None


def _take_path(fields: dict[str, Any], options: Mapping[str, str], way: str) -> None:
    """`load("ORDERS")` is a short form of option("stream", "ORDERS"), and `save("a.b")` of subject."""
    path = options.get("path")
    if not path:
        return
    field = "stream" if way in (READ, READ_STREAM) else "subject"
    if fields.setdefault(field, path) != path:
        raise JetStreamSparkError(
            "JETSTREAM_CONFLICTING_OPTIONS",
            f"the path {path!r} and the option {field!r} ({fields[field]!r}) name different things; give one of them",
        )


def _conflict(condition: object, text: str) -> None:
    if condition:
        raise JetStreamSparkError("JETSTREAM_CONFLICTING_OPTIONS", text)


def _bad(condition: object, text: str) -> None:
    if condition:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", text)


def _check(o: SparkOptions, way: str) -> None:
    reads = way in (READ, READ_STREAM)
    for name, value in (("servers", o.servers), ("stream", o.stream if reads else "-")):
        if not value:
            more = ', for example load("ORDERS")' if name == "stream" else ", for example nats://127.0.0.1:4222"
            raise JetStreamSparkError("JETSTREAM_MISSING_OPTION", f"{WAYS[way]} needs the option {name!r}{more}")
    _conflict(o.domain and o.api_prefix, "'domain' and 'apiPrefix' exclude each other; give one of them")
    _bad(o.task_timeout is not None and o.task_timeout <= 0, "'taskTimeout' must be more than 0s")
    _check_credentials(o)
    if reads:
        _check_reading(o, way)
    else:
        _conflict(
            o.journal and not o.keeps_journal(streaming=True), "'journal' needs deliverySemantics auto or exactly-once"
        )


def _check_credentials(o: SparkOptions) -> None:
    signing = {
        "credentialsFile": o.credentials_file,
        "credentialsSecret": o.credentials_secret,
        "credentialsProvider": o.credentials_provider,
        "nkeySeedFile": o.nkey_seed_file,
        "nkeySecret": o.nkey_secret,
    }
    plain = {"token": o.token, "password": o.password}
    provided = {"credentialsProvider": o.credentials_provider, **plain}
    for ways in (signing, plain, provided):  # a token or password next to a signing key is for auth callout
        used = [name for name, value in ways.items() if value]
        _conflict(len(used) > 1, f"{' and '.join(used)} are different ways to log in; give one of them")
    _conflict(o.password and not o.user, "'password' needs 'user'")
    _bad(bool(o.tls_cert_file) != bool(o.tls_key_file), "'tls.certFile' and 'tls.keyFile' belong together")
    if o.credentials_provider is not None:
        module, colon, function = o.credentials_provider.partition(":")
        _bad(not (module and colon and function), "'credentialsProvider' must be module:function")


def _check_reading(o: SparkOptions, way: str) -> None:
    from jsclient.protocol import subjects

    _check_streams(o)
    for subject in o.subjects:
        try:
            subjects.check_filter(subject)
        except ValueError as error:
            raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"option 'subjects': {error}") from None
    for i, one in enumerate(o.subjects):
        for other in o.subjects[i + 1 :]:
            _bad(overlap(one, other), f"option 'subjects': {one!r} and {other!r} overlap")
    starts = _positions(o.starting_offsets)
    _bad(way == READ and "latest" in starts, "'startingOffsets' of read must be earliest or {\"seq\": n}")
    _conflict(
        o.ack_mode == "purge" and o.read_method == "consumer",
        "ackMode=purge reads by direct get; leave out readMethod=consumer",
    )
    late = any(start not in (None, "earliest") for start in starts) or o.starting_timestamp is not None
    _conflict(
        o.ack_mode == "purge" and late,
        "ackMode=purge removes everything below the committed offset, also what 'startingOffsets' or "
        "'startingTimestamp' left out at the beginning; begin at the earliest message",
    )
    _conflict(
        (o.bad_records == "dead-letter") != (o.dead_letter_subject is not None),
        "badRecords=dead-letter and 'deadLetterSubject' belong together",
    )
    _conflict(o.value_format == "binary" and o.bad_records != "fail", "'badRecords' needs valueFormat=json or msgpack")
    if o.dead_letter_subject is not None:
        try:
            subjects.check_subject(o.dead_letter_subject)
        except ValueError as error:
            raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"option 'deadLetterSubject': {error}") from None


def _check_streams(o: SparkOptions) -> None:
    words = _words(o.stream)
    for word in words:
        ok = word and not any(c in word for c in ".>/\\ \t\r\n")
        what = "is not a name of a stream, or a pattern with * (no dots, slashes or blanks)"
        _bad(not ok, f"{word!r} {what}" if word else f"option 'stream': {o.stream!r} has an empty name")
    many = len(words) > 1 or "*" in o.stream
    for option, position in (("startingOffsets", o.starting_offsets), ("endingOffsets", o.ending_offsets)):
        _bad(
            many and isinstance(position, int),
            f'{option!r} is a sequence, and sequences are those of one stream; say {{"NAME": {{"seq": n}}}} for each',
        )
        if isinstance(position, values.PerStream) and not o.stream_patterns:
            for name, _ in position:
                _bad(
                    name not in (*words, "*"), f"{option!r} names {name!r}, which is not among the streams {o.stream!r}"
                )


def _positions(given: values.Position | None) -> list[str | int | None]:
    return [each for _, each in given] if isinstance(given, values.PerStream) else [given]


def overlap(one: str, other: str) -> bool:
    """True if some subject matches both filters."""
    a, b = one.split("."), other.split(".")
    for left, right in zip(a, b, strict=False):
        if left == ">" or right == ">":
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(a) == len(b)
