"""Makes a ConnectOptions from the options of the data source, in the process that connects."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jsclient.auth.secret import Secret
from jsclient.options import ConnectOptions, TLSOptions
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    from jsclient.spark.options import SparkOptions

SPARK_FILE: Final = "sparkfile:"


def local_file(path: str) -> str:
    """`sparkfile:NAME` is a file shipped with `spark.files` or `sc.addFile`; anything else is a path."""
    if not path.startswith(SPARK_FILE):
        return path
    from pyspark import SparkFiles

    return str(SparkFiles.get(path[len(SPARK_FILE) :]))


def connect_options(o: SparkOptions) -> ConnectOptions:
    """The options for `jsclient.connect`. Calls the credentials provider, so use it only to make a connection."""
    fields: dict[str, Any] = {"name": f"jsclient-spark-{os.getpid()}"}
    for name in ("inbox_prefix", "user", "password", "token"):
        if getattr(o, name) is not None:
            fields[name] = getattr(o, name)
    if o.nkey_secret is not None:
        fields["nkey_seed"] = o.nkey_secret
    if o.nkey_seed_file is not None:
        with open(local_file(o.nkey_seed_file)) as file:
            fields["nkey_seed"] = Secret(file.read().strip())
    if o.credentials_secret is not None:
        fields["credentials"] = o.credentials_secret.resolve().encode()
    if o.credentials_file is not None:
        fields["credentials"] = local_file(o.credentials_file)
    if o.credentials_provider is not None:
        fields.update(_provided(o.credentials_provider))
    tls = _tls(o)
    if tls is not None:
        fields["tls"] = tls
    return ConnectOptions(servers=tuple(url.reveal() for url in o.servers), **fields)


def _tls(o: SparkOptions) -> TLSOptions | None:
    files = (o.tls_ca_file, o.tls_cert_file, o.tls_key_file)
    if not any(files) and not o.tls_first:
        return None
    ca, cert, key = (None if path is None else local_file(path) for path in files)
    return TLSOptions(ca_file=ca, cert_file=cert, key_file=key, handshake_first=o.tls_first)


def _provided(provider: str) -> Mapping[str, Any]:
    """Call `module:function`, which returns fields of ConnectOptions such as `{"user": .., "password": ..}`."""
    module, _, function = provider.partition(":")
    try:
        result = getattr(importlib.import_module(module), function)()
    except Exception as error:
        # The text of the error may hold secrets from the vault, so only its class is passed on.
        raise JetStreamSparkError(
            "JETSTREAM_BAD_OPTION", f"credentialsProvider {provider!r} failed with {type(error).__name__}"
        ) from None
    if not isinstance(result, Mapping):
        raise JetStreamSparkError(
            "JETSTREAM_BAD_OPTION",
            f"credentialsProvider {provider!r} must return a dict of ConnectOptions fields, such as user and password",
        )
    return result
