"""Asking a service with a value, and getting one."""

from __future__ import annotations

from typing import Any, TypeVar

from jsclient import codecs, kinds
from jsclient.cancel import Cancel
from jsclient.codecs import Codec
from jsclient.connection import Connection
from jsclient.durations import DEFAULT, Timeout
from jsclient.message import HeadersLike
from jsclient.services.request import check_response

T = TypeVar("T")


def call(
    nc: Connection,
    subject: str,
    value: Any = b"",
    *,
    decode: type[T],
    codec: Codec = codecs.JSON,
    headers: HeadersLike | None = None,
    timeout: Timeout = DEFAULT,
    cancel: Cancel | None = None,
) -> T:
    """Send a value (or bytes, or text, unchanged) as a request, and return the answer as a value of type `decode`.

    Raises ServiceError if the service answers with an error, DecodeFailed if the answer is of another type,
    EncodeFailed before anything is sent, and the errors of `Connection.request`.

    `codec` writes the request and reads the answer (JSON by default). `headers` go with the request. `timeout` is in
    seconds, for the whole call. `cancel` is a token that ends the wait.
    """
    kinds.check(Connection, nc=nc)
    if codec is not codecs.JSON:
        codecs.check(codec)
    codecs.decoder(codec, decode)  # a wrong type raises before anything is sent
    payload = codecs.payload_of(codec, value)
    reply = check_response(nc.request(subject, payload, headers=headers, timeout=timeout, cancel=cancel))
    return codecs.decode(codec, reply.data, decode, subject=subject)
