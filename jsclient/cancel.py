"""A token that ends waiting calls without closing the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jsclient import errors


class Cancel:
    """Ends waits from another thread or a signal handler: `consumer.fetch(10, cancel=token)`, then `token.cancel()`.

    You can give one token to many calls. After `cancel()`, waiting calls raise Cancelled, and so does every later call
    with the token. You cannot reset a token, so make a new one.
    """

    __slots__ = ("__weakref__", "_cancelled", "_wakes")

    def __init__(self) -> None:
        self._cancelled = False
        self._wakes: dict[object, Callable[[], Any]] = {}  # of waiting calls; each step with it is one call into C

    def cancel(self) -> None:
        """End all calls that have this token. It takes no lock, does not wait, and may be called more than once."""
        self._cancelled = True  # first: a thread that enters a wait checks it afterwards
        for wake in list(self._wakes.values()):
            wake()

    @property
    def cancelled(self) -> bool:
        """True once `cancel()` was called."""
        return self._cancelled

    def check(self) -> None:
        """Raises Cancelled if it was cancelled."""
        if self._cancelled:
            raise self.error()

    def error(self) -> errors.Cancelled:
        """The exception that calls with this token raise."""
        return errors.Cancelled("the call was cancelled by its token")

    def enter(self, key: object, wake: Callable[[], Any]) -> None:
        """For layers: `cancel` calls `wake` from now on; if it was called before, `wake` runs immediately."""
        self._wakes[key] = wake
        if self._cancelled:
            wake()

    def leave(self, key: object) -> None:
        """For layers: the wait is over."""
        self._wakes.pop(key, None)

    @contextmanager
    def ends(self, wake: Callable[[], Any]) -> Iterator[None]:
        """For layers: `wake` ends the wait in the block."""
        key = object()
        try:
            self.enter(key, wake)
            yield
        finally:
            self.leave(key)

    def __repr__(self) -> str:
        return f"<Cancel, {'cancelled' if self._cancelled else 'open'}>"


def check_cancel(token: object) -> None:
    """Raises ConfigError for an argument `cancel` of another type."""
    if not isinstance(token, Cancel):
        raise errors.ConfigError(f"cancel must be a Cancel or None, not {type(token).__name__}")
