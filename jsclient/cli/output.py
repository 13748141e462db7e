"""How results are printed: lines and tables for people, JSON lines with `--json` for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jsclient.jetstream import wire


def complain(text: str) -> None:
    print(f"jsclient: {text}", file=sys.stderr)


def line(text: str) -> None:
    print(text, flush=True)


def record(value: Any) -> None:
    """One JSON line."""
    line(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return payload_text(bytes(value))
    return msgspec.to_builtins(value, str_keys=True)


def struct_record(value: msgspec.Struct) -> None:
    """A wire struct as the server sends it: names and nanoseconds of the wire."""
    line(wire.encode(value).decode())


def payload_text(payload: bytes) -> str | dict[str, str]:
    """UTF-8 as text; anything else as {"base64": ...}, so that JSON output loses nothing."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def message_record(message: Any, **more: Any) -> dict[str, Any]:
    headers = message.headers
    return {
        "subject": message.subject,
        **({"headers": headers.to_dict()} if headers else {}),
        "data": payload_text(message.data),
        **more,
    }


def print_message(message: Any, as_json: bool, raw: bool, **more: Any) -> None:
    """One message: `--raw` its payload alone, `--json` a JSON line, else subject, headers and payload."""
    if raw:
        sys.stdout.buffer.write(message.data + b"\n")
        sys.stdout.buffer.flush()
    elif as_json:
        record(message_record(message, **more))
    else:
        extra = "".join(f" {key}={value}" for key, value in more.items())
        line(f"[{message.subject}{extra}]")
        for name, value in message.headers.items() if message.headers else ():
            line(f"{name}: {value}")
        sys.stdout.flush()
        sys.stdout.buffer.write(message.data + b"\n")
        sys.stdout.buffer.flush()


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns of text; figures to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(row[i].replace(",", "").isdigit() for row in cells) for i in range(len(titles))]
    widths = [max(len(title), *(len(row[i]) for row in cells), 0) for i, title in enumerate(titles)]
    for row in [list(titles), *cells]:
        parts = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)]
        line("  ".join(parts).rstrip())
