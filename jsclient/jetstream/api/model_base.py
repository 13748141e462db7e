"""The common base of all JetStream models: seconds <-> ns, time stamps, encoding of set fields, and unknown fields.

At run time a model holds `Duration` and `Timestamp`. For a type checker, and in practice, they are `float` seconds and
`datetime`. `Seconds` is a duration that the application may also set as a timedelta. All remember exactly the value
that the server sent. So you can read a configuration, change one field and send it back, and all other fields are the
same.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from jsclient.durations import to_ns, to_seconds
from jsclient.errors import BadResponse, ConfigError
from jsclient.first_use import prepared
from jsclient.protocol.errors import BAD_JSON

if TYPE_CHECKING:
    Duration = float
    Seconds = float | dt.timedelta
    Delays = Sequence[float | dt.timedelta]
    Timestamp = dt.datetime
else:

    class Duration(float):
        """Seconds; `ns` is the exact number of nanoseconds on the wire."""

        __slots__ = ("ns",)

        def __new__(cls, seconds: float | dt.timedelta, ns: int | None = None) -> Duration:
            exact = to_ns(seconds) if ns is None else ns
            self = super().__new__(cls, to_seconds(exact) if isinstance(seconds, dt.timedelta) else seconds)
            self.ns = exact
            return self

        def __reduce__(self) -> tuple[Any, ...]:
            return Duration, (float(self), self.ns)

    class Timestamp(dt.datetime):
        """A timezone-aware point in time; `text` is what the server sent, with its nanoseconds."""

        text = ""

        def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
            return parse_time, (format_time(self),)

    Seconds = Duration
    Delays = list[Duration]


_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def parse_time(text: str) -> dt.datetime:
    """An RFC 3339 time of the server as an aware datetime. Nanoseconds are cut to microseconds, never rounded up."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    seconds, fraction, zone = found.groups()
    zone = "+00:00" if zone in "Zz" else zone
    microseconds = (fraction or ".")[1:7].ljust(6, "0")
    value: Any = Timestamp.fromisoformat(f"{seconds.replace(' ', 'T').upper()}.{microseconds}{zone}")
    if not TYPE_CHECKING:
        value.text = text
    return value  # type: ignore[no-any-return]


def format_time(value: dt.datetime) -> str:
    """RFC 3339 for the wire; a time that came from the server goes back unchanged."""
    return getattr(value, "text", "") or value.astimezone(dt.timezone.utc).isoformat().replace("+00:00", "Z")


def as_timestamp(value: dt.datetime, name: str = "time") -> dt.datetime:
    """Check that a user's datetime has a time zone; a naive one would silently be read in the wrong zone."""
    if isinstance(value, Timestamp) and not TYPE_CHECKING:
        return value
    if not isinstance(value, dt.datetime):
        raise ConfigError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ConfigError(f"{name} has no time zone: use datetime.now(timezone.utc) or .astimezone()")
    return Timestamp(
        *(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond),
        tzinfo=value.tzinfo,
        fold=value.fold,
    )


def as_duration(value: Any, name: str) -> float:
    """Seconds or timedelta of the user as a Duration."""
    if isinstance(value, bool) or not isinstance(value, (int, float, dt.timedelta)):
        raise ConfigError(f"{name} must be seconds (a number) or a timedelta, not {type(value).__name__}")
    try:
        duration: Any = Duration(value)  # type: ignore[arg-type]
    except ConfigError:
        raise ConfigError(f"{name} must be a number of seconds, of at most 292 years; got {value!r}") from None
    if duration and not duration.ns:
        raise ConfigError(f"{name} must be 0 or at least 1e-9 seconds; got {value!r}, which would be sent as 0")
    return duration  # type: ignore[no-any-return]


class Wire(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Base of the wire models: keyword-only, immutable, and only set fields are sent.

    Change a field with `config.replace(max_msgs=10)`.
    """

    _kinds: ClassVar[dict[str, tuple[str, Any]] | None] = None

    def __post_init__(self) -> None:
        for name, (kind, _) in kinds(type(self)).items():
            value = getattr(self, name)
            if value is None:
                continue
            if kind == "time":
                # The server's zero time is year 1 and means "not set".
                stamp = as_timestamp(value, name)
                msgspec.structs.force_setattr(self, name, None if stamp.year == 1 else stamp)
            elif kind == "duration" and (TYPE_CHECKING or not isinstance(value, Duration)):
                msgspec.structs.force_setattr(self, name, as_duration(value, name))
            elif kind == "durations":
                if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                    raise ConfigError(f"{name} must be a list of seconds, not {type(value).__name__}")
                msgspec.structs.force_setattr(
                    self, name, [v if type(v) is Duration else as_duration(v, name) for v in value]
                )

    def replace(self: W, **changes: Any) -> W:
        """A copy with these fields changed; a field of another name raises ConfigError."""
        wrong = sorted(set(changes) - set(self.__struct_fields__))
        if wrong:
            raise ConfigError(f"{type(self).__name__} has no field {', '.join(wrong)}")
        return msgspec.structs.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that goes over the wire: durations as nanoseconds, only fields that are set."""
        plain: dict[str, Any] = to_wire(self)
        return plain


class OpenWire(Wire, kw_only=True, frozen=True):
    """Base of models for which a newer server may have more fields: infos, and configurations with their parts. The
    client sends the fields in `extra` of a configuration back to the server unchanged.

    Attributes:
        extra: Fields of a newer server by their names on the wire, as they came. None if there are none.
    """

    extra: dict[str, Any] | None = None


W = TypeVar("W", bound=Wire)
T = TypeVar("T")


def kinds(cls: type[Wire]) -> dict[str, tuple[str, Any]]:
    """Fields that need more than msgspec: name -> ("time" | "duration" | "durations" | "wire" | "wires", class)."""
    known: dict[str, tuple[str, Any]] | None = cls.__dict__.get("_kinds")
    if known is None:
        hints = get_type_hints(cls)
        known = {f: kind for f in cls.__struct_fields__ if (kind := _kind(hints[f])) is not None}
        cls._kinds = known
    return known


def _kind(hint: Any) -> tuple[str, Any] | None:
    for option in get_args(hint) or (hint,):
        if option is Duration:
            return ("durations" if get_origin(hint) is list else "duration"), None
        if option is Timestamp:
            return "time", None
        if get_origin(option) is list or get_origin(option) is dict:
            inner = _kind(get_args(option)[-1])
            if inner is not None:
                return {"duration": "durations", "wire": "wires"}.get(inner[0], inner[0]), inner[1]
        elif isinstance(option, type) and issubclass(option, Wire):
            return ("wires" if get_origin(hint) in (list, dict) else "wire"), option
    return None


# --- encoding -----------------------------------------------------------------------------------------------


def _encode_hook(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return format_time(value)
    if not TYPE_CHECKING and isinstance(value, Duration):
        return value.ns
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"cannot send {type(value).__name__}")


def to_wire(value: Any) -> Any:
    """A model, or a dict with models, as plain JSON types; unset fields (None) are left out."""
    plain = msgspec.to_builtins(value, enc_hook=_encode_hook)
    if isinstance(value, dict):
        for name, part in value.items():
            if isinstance(part, Wire):
                _spread(part, plain[name])
    elif isinstance(value, Wire):
        _spread(value, plain)
    return plain


def _spread(value: Wire, plain: dict[str, Any]) -> None:
    """Put the unknown fields that a model keeps back in their places."""
    if isinstance(value, OpenWire) and value.extra:
        for name, part in plain.pop("extra").items():
            plain.setdefault(name, part)
    for name, (kind, _) in kinds(type(value)).items():
        part = getattr(value, name)
        if part is None or name not in plain:
            continue
        if kind == "wire":
            _spread(part, plain[name])
        elif kind == "wires" and isinstance(part, dict):
            for key in part:
                _spread(part[key], plain[name][key])
        elif kind == "wires":
            for element, into in zip(part, plain[name], strict=True):
                _spread(element, into)


def unknown_names(value: Wire, prefix: str = "") -> Iterator[str]:
    """Dotted names of all unknown fields that a model keeps."""
    if isinstance(value, OpenWire):
        yield from (prefix + name for name in value.extra or ())
    for name, (kind, _) in kinds(type(value)).items():
        part = getattr(value, name)
        if kind == "wire" and part is not None:
            yield from unknown_names(part, f"{prefix}{name}.")
        elif kind == "wires" and part is not None:
            named = part.items() if isinstance(part, dict) else enumerate(part)
            for key, element in named:
                yield from unknown_names(element, f"{prefix}{name}[{key}].")


def without_unknown(value: W) -> W:
    """A copy of a model without the unknown fields."""
    changes: dict[str, Any] = {"extra": None} if isinstance(value, OpenWire) else {}
    for name, (kind, _) in kinds(type(value)).items():
        part = getattr(value, name)
        if kind == "wire" and part is not None:
            changes[name] = without_unknown(part)
        elif kind == "wires" and isinstance(part, dict):
            changes[name] = {key: without_unknown(element) for key, element in part.items()}
        elif kind == "wires" and part is not None:
            changes[name] = [without_unknown(element) for element in part]
    return value.replace(**changes)


def encode(value: Any) -> bytes:
    """The JSON body of a request: a model, a plain dict, or empty. ConfigError for text that JSON cannot hold."""
    try:
        return b"" if value is None else msgspec.json.encode(to_wire(value))
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the text {error.object!r} is not UTF-8, and requests to JetStream are JSON, which holds nothing else; "
            "use another name, or a wildcard in its place"
        ) from None
    except (OverflowError, TypeError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from None


# --- decoding -----------------------------------------------------------------------------------------------


def decode_hook(kind: type, value: Any) -> Any:
    """For msgspec: times and durations, as servers write them."""
    if kind is Timestamp:
        return parse_time(value)
    if kind is Duration and isinstance(value, int):
        return Duration(to_seconds(value), value)  # type: ignore[call-arg]
    raise ValueError(f"expected {kind.__name__}, got {value!r}")


def decode_json(raw: bytes) -> Any:
    """JSON to plain types; anything else is a BadResponse."""
    try:
        return msgspec.json.decode(raw)
    except BAD_JSON as error:
        raise BadResponse(f"the answer is not JSON ({error}): {raw[:80]!r}", raw) from error


def from_wire(plain: Any, cls: type[T]) -> T:
    """Plain JSON types to a model; infos and configurations keep unknown fields in `extra`, others ignore them."""
    if isinstance(cls, type) and issubclass(cls, Wire):
        _keep_unknown(cls, plain)
    try:
        return msgspec.convert(plain, prepared(cls), dec_hook=decode_hook)
    except (msgspec.ValidationError, ConfigError) as error:
        raise BadResponse(f"the answer does not fit {cls.__name__}: {error}", str(plain)[:512].encode()) from error


def decode(raw: bytes, cls: type[T]) -> T:
    return from_wire(decode_json(raw), cls)


def _keep_unknown(cls: type[Wire], plain: Any) -> None:
    if not isinstance(plain, dict):
        return
    if issubclass(cls, OpenWire):
        known = set(cls.__struct_fields__) - {"extra"}
        unknown = {name: plain.pop(name) for name in plain.keys() - known}
        unknown.pop("type", None)  # the name of the answer, which every answer has
        if unknown:
            plain["extra"] = unknown
    for name, (kind, inner) in kinds(cls).items():
        part = plain.get(name)
        if kind == "wire":
            _keep_unknown(inner, part)
        elif kind == "wires":
            for element in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
                _keep_unknown(inner, element)


def given(kind: type[T], config: T | None, fields: Mapping[str, Any]) -> T:
    """The configuration of a call that was given either an object or its fields."""
    if config is None:
        try:
            return kind(**fields)
        except TypeError as error:
            raise ConfigError(f"{error}: give the fields of {kind.__name__}, or one itself") from None
    if fields:
        raise ConfigError(f"give a {kind.__name__} or single fields, not both: {', '.join(fields)}")
    if not isinstance(config, kind):
        raise ConfigError(f"a {kind.__name__} is wanted, or its fields by name, not {config!r:.80}")
    return config
