"""Values instead of bytes: the only place that converts between the values of programs and the bytes of messages.

    js = JetStream(nc, codec=codecs.JSON)
    js.publish("orders.new", Order(id=1, total=9.5))        # a msgspec Struct, dataclass, attrs class, dict ...
    for msg in consumer.typed(Order).fetch(10):
        print(msg.value.total)                              # an Order, checked against its fields

JSON and MSGPACK are built on msgspec. For other formats, pass an object with the two functions of `Codec`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, Final, Literal, Protocol, TypeVar, get_origin

import msgspec

from jsclient import first_use, handlers
from jsclient.errors import ConfigError, DecodeFailed, EncodeFailed

__all__ = ["JSON", "MSGPACK", "Codec", "MsgspecCodec"]

T = TypeVar("T")

OnBad = Literal["raise", "skip", "reject"]
"""The handling of a message that cannot be decoded; see `jsclient.jetstream.consuming.typed`."""

_RAW: Final = (bytes, str, bytearray, memoryview)


class Codec(Protocol):
    """Two functions. Both may raise any exception; it becomes the cause of EncodeFailed or DecodeFailed.

    One object serves many threads. `decode` gets the type that the program asked for.
    """

    def encode(self, value: Any, /) -> bytes:
        """The bytes of a value."""

    def decode(self, data: bytes, type: type[T], /) -> T:
        """The value in the bytes, of that type."""


class MsgspecCodec:
    """JSON or MessagePack by msgspec, for Structs, dataclasses, attrs classes, TypedDicts, and all types in them.

    It ignores fields that the type does not have, unless a Struct forbids them. So an older reader can read messages of
    a newer publisher. A missing field, or a field of another type, is an error.

    Attributes:
        name: Its name in this module.
    """

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module
        self._encode: Callable[[Any], bytes] = module.Encoder().encode

    def encode(self, value: Any, /) -> bytes:
        """The bytes of a value; raises EncodeFailed."""
        try:
            return self._encode(value)
        except Exception as error:
            raise _not_encoded(self, value, error) from error

    def decode(self, data: bytes, type: type[T], /) -> T:
        """The value in the bytes; raises DecodeFailed."""
        return decode(self, data, type)

    def decoder(self, type: type[T], /) -> Callable[[bytes], T]:
        """A function that decodes only this type. It is made once, and runs in C."""
        decode: Callable[[bytes], T] = first_use.decoder(self._module, type).decode
        return decode

    def __repr__(self) -> str:
        return f"jsclient.codecs.{self.name}"

    def __reduce__(self) -> str:
        return self.name


JSON: Final = MsgspecCodec("JSON", msgspec.json)
"""JSON text in UTF-8."""

MSGPACK: Final = MsgspecCodec("MSGPACK", msgspec.msgpack)
"""MessagePack: smaller than JSON, and quicker to read."""


def check(codec: Any) -> None:
    """Raises ConfigError for an object without the two functions."""
    if isinstance(codec, (type, ModuleType)) or not all(
        callable(getattr(codec, name, None)) for name in ("encode", "decode")
    ):
        raise ConfigError(f"a codec is an object with encode(value) and decode(data, type), not {codec!r:.80}")
    handlers.check(codec.encode, "encode of a codec")
    handlers.check(codec.decode, "decode of a codec")


def decoder(codec: Codec, type: type[T]) -> Callable[[bytes], T]:
    """A function that turns bytes into this type with this codec; it raises the codec's own errors.

    Raises ConfigError for something other than a type, or for a type that the codec does not support.
    """
    if type is None or isinstance(type, (str, bytes)):
        raise ConfigError(f"type must be the type of the values, not {type!r:.80}")
    made: Callable[[bytes], T]
    try:
        made = _decoder(codec, type) if _is_hashable(codec, type) else _make(codec, type)
    except TypeError as error:
        raise ConfigError(f"{codec!r} cannot decode {type!r:.80}: {error}") from error
    return made


def _is_hashable(*things: Any) -> bool:
    try:
        hash(things)
    except TypeError:
        return False
    return True


def _make(codec: Codec, type: Any) -> Callable[[bytes], Any]:
    make = getattr(codec, "decoder", None)
    return partial(_decode_with, codec.decode, type) if make is None else make(type)


_decoder: Final[Any] = lru_cache(maxsize=512)(_make)


def _decode_with(decode: Callable[[bytes, Any], Any], type: Any, data: bytes) -> Any:
    return decode(data, type)


def encode(codec: Codec, value: Any) -> bytes:
    """The bytes of a value. Raises EncodeFailed; then nothing is sent."""
    try:
        data = codec.encode(value)
    except EncodeFailed:
        raise
    except Exception as error:
        raise _not_encoded(codec, value, error) from error
    if not isinstance(data, bytes):
        raise EncodeFailed(f"{codec!r} made {type(data).__name__} of {type(value).__name__}, not bytes")
    return data


def decode(codec: Codec, data: bytes, type: type[T], *, subject: str = "", seq: int | None = None) -> T:
    """The value in the bytes; raises DecodeFailed, which names their origin."""
    try:
        return decoder(codec, type)(data)
    except ConfigError:
        raise
    except Exception as error:
        raise failed_message(error, data, type, subject, seq) from error


def failed(
    error: Exception, data: bytes, type: Any, where: str = "", subject: str = "", seq: int | None = None
) -> DecodeFailed:
    """The DecodeFailed for an `error`; `where` tells people the place of the bytes."""
    return DecodeFailed(f"the {len(data)} bytes{where} are no {name_of(type)}: {error}", bytes(data), subject, seq)


def name_of(type: Any) -> str:
    """The name of a type for a text: `Order`, `list[Order]`."""
    plain = isinstance(type, builtins.type) and get_origin(type) is None  # list[Order] is a type, too, in Python 3.10
    return type.__name__ if plain else repr(type)


def _where(subject: str, seq: int | None) -> str:
    return (f" of the message on {subject!r}" if subject else "") + (f", sequence {seq}," if seq is not None else "")


def failed_message(error: Exception, data: bytes, type: Any, subject: str, seq: int | None) -> DecodeFailed:
    """The same for a message."""
    return failed(error, data, type, _where(subject, seq), subject, seq)


def payload_of(codec: Codec | None, payload: Any) -> Any:
    """The bytes or text to send for a payload.

    Bytes and text stay unchanged, and the codec encodes any other value. Without a codec all payloads stay unchanged;
    sending refuses invalid ones.
    """
    return payload if codec is None or isinstance(payload, _RAW) else encode(codec, payload)


def from_json(data: bytes, subject: str = "", seq: int | None = None) -> Any:
    """The result of `json()` of messages and entries; raises DecodeFailed."""
    everything: Any = Any
    return decode(JSON, data, everything, subject=subject, seq=seq)


def _not_encoded(codec: Any, value: Any, error: Exception) -> EncodeFailed:
    return EncodeFailed(f"{codec!r} cannot encode {type(value).__name__}: {error}")
