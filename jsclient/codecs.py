"""Values instead of bytes: the one seam between what is sent and what programs work with.

    js = JetStream(nc, codec=codecs.JSON)
    js.publish("orders.new", Order(id=1, total=9.5))        # a msgspec Struct, dataclass, attrs class, dict ...
    for msg in consumer.typed(Order).fetch(10):
        print(msg.value.total)                              # an Order, checked against its fields

JSON and MSGPACK are built on msgspec. Anything else is an object with the two functions of `Codec`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, Final, Literal, Protocol, TypeVar, get_origin

import msgspec

from jsclient import first_use, handlers, hints
from jsclient.errors import ConfigError, DecodeFailed, EncodeFailed

__all__ = ["JSON", "MSGPACK", "Codec", "MsgspecCodec"]

T = TypeVar("T")

OnBad = Literal["raise", "skip", "reject"]
"""What becomes of a message that cannot be decoded; see `jsclient.jetstream.consuming.typed`."""

_RAW: Final = (bytes, str, bytearray, memoryview)


class Codec(Protocol):
    """Two functions. Both may raise whatever they like: it becomes the cause of EncodeFailed or DecodeFailed.

    One object serves many threads. `decode` gets the type that the program asked for.
    """

    def encode(self, value: Any, /) -> bytes:
        """The bytes of a value."""

    def decode(self, data: bytes, type: type[T], /) -> T:
        """The value in the bytes, of that type."""


hints.given(Codec)


class MsgspecCodec:
    """JSON or MessagePack by msgspec: Structs, dataclasses, attrs classes, TypedDicts, and all that they may hold.

    Fields that the type does not have are passed over (unless a Struct forbids them), so that a newer publisher and an
    older reader go together; a field that is missing, or of another type, is an error.

    Attributes:
        name: Under which it stands in this module.
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
        """What decodes this type and nothing else: made once, and a C function."""
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
    """Raises ConfigError for what has not the two functions."""
    if isinstance(codec, (type, ModuleType)) or not all(
        callable(getattr(codec, name, None)) for name in ("encode", "decode")
    ):
        raise ConfigError(f"a codec is an object with encode(value) and decode(data, type), not {codec!r:.80}")
    handlers.check(codec.encode, "encode of a codec")
    handlers.check(codec.decode, "decode of a codec")


def decoder(codec: Codec, type: type[T]) -> Callable[[bytes], T]:
    """What turns bytes into this type with this codec, and raises whatever the codec raises. Raises ConfigError for
    what is no type, or none that the codec knows."""
    if isinstance(type, (str, bytes)):
        raise ConfigError(f"values have a type, not {type!r:.80}")
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
    """The bytes of a value; raises EncodeFailed. Nothing is sent then."""
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
    """The value in the bytes; raises DecodeFailed, which knows where it came from."""
    try:
        return decoder(codec, type)(data)
    except ConfigError:
        raise
    except Exception as error:
        raise failed_message(error, data, type, subject, seq) from error


def failed(
    error: Exception, data: bytes, type: Any, where: str = "", subject: str = "", seq: int | None = None
) -> DecodeFailed:
    """What is raised where `error` was met; `where` the bytes are, for people."""
    return DecodeFailed(f"the {len(data)} bytes{where} are no {name_of(type)}: {error}", bytes(data), subject, seq)


def name_of(type: Any) -> str:
    """A type in a text: `Order`, `list[Order]`."""
    plain = isinstance(type, builtins.type) and get_origin(type) is None  # list[Order] is a type, too, in Python 3.10
    return type.__name__ if plain else repr(type)


def _where(subject: str, seq: int | None) -> str:
    return (f" of the message on {subject!r}" if subject else "") + (f", sequence {seq}," if seq is not None else "")


def failed_message(error: Exception, data: bytes, type: Any, subject: str, seq: int | None) -> DecodeFailed:
    """The same of a message."""
    return failed(error, data, type, _where(subject, seq), subject, seq)


def payload_of(codec: Codec | None, payload: Any) -> Any:
    """What is sent for a payload: bytes and text as they are, a value as the codec writes it. Without a codec it is
    left as it is: sending it refuses what is no payload."""
    return payload if codec is None or isinstance(payload, _RAW) else encode(codec, payload)


def from_json(data: bytes, subject: str = "", seq: int | None = None) -> Any:
    """What `json()` of messages and entries gives; raises DecodeFailed."""
    everything: Any = Any
    return decode(JSON, data, everything, subject=subject, seq=seq)


def _not_encoded(codec: Any, value: Any, error: Exception) -> EncodeFailed:
    return EncodeFailed(f"{codec!r} cannot encode {type(value).__name__}: {error}")
