"""Recognizes PKCS#12 files, the format of browsers and Java key stores, which Python's ssl module cannot read."""

from __future__ import annotations

import os
import re
from typing import Final

from jsclient.errors import ConfigError

_START: Final = re.compile(rb"\x30(?:[\x00-\x80]|\x81.|\x82..|\x83...|\x84....)\x02\x01\x03", re.DOTALL)
"""A PKCS#12 file begins with a sequence and its version number 3. A certificate has another sequence there."""


def refuse(*files: str | os.PathLike[str] | None) -> None:
    """Raises ConfigError with the way out, if one of the files is a PKCS#12 file."""
    for file in files:
        if file is not None and _START.match(_head(file)):
            raise ConfigError(
                f"{os.fspath(file)} is a PKCS#12 file, and this client reads PEM files. Convert it "
                "with `openssl pkcs12 -in FILE -out client.pem`, then give client.pem as cert_file and the password "
                "of its key as key_password."
            )


def _head(file: str | os.PathLike[str]) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read(16)
    except OSError:
        return b""
