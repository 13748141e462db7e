"""The rules for the names, subjects and queue groups of services (ADR-32)."""

from __future__ import annotations

import re
from typing import Final

from jsclient.errors import InvalidName

NAME: Final = re.compile(r"[A-Za-z0-9\-_]+")
SUBJECT: Final = re.compile(r"[^\s>]+(?:\.>)?|>")


def check_queue_group(group: str | None) -> None:
    if group and not SUBJECT.fullmatch(group):
        raise InvalidName(f"queue group {group!r} must have no spaces, and '>' only as its last character")
