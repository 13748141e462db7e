"""Frames that go out on no other link than theirs: requests, pulls, SUB, PING. Owners re-issue them or fail them."""

from __future__ import annotations

from typing import Final

from protocol.frames import LargeFrame


class Unkept(bytes):
    """A frame that must not be sent again on another link."""

    __slots__ = ()


class UnkeptLarge(LargeFrame):
    """The same for a large frame."""

    __slots__ = ()


UNKEPT: Final = (Unkept, UnkeptLarge)
