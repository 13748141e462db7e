"""The hooks of the application: `on_error` and `on_event`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from jsclient import handlers

log: logging.Logger = logging.getLogger("jsclient.jetstream.consume")

ErrorHook = Callable[[Exception], Any] | Callable[[Exception, Any], Any]
"""The type of `on_error`: a function of the error, or of the error and the message that it is about."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def error_hook(hook: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The hook as a function of error and message (None by default), even if it does not take the message.

    It takes the message if it requires two arguments, or accepts any number of them.
    """
    if hook is None:
        return None
    try:
        arguments = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):  # it is written in C and has no signature
        return lambda error, message=None: hook(error)
    needed = [one for one in arguments if one.kind in _POSITIONAL and one.default is one.empty]
    if len(needed) == 2 or any(one.kind is one.VAR_POSITIONAL for one in arguments):
        return lambda error, message=None: hook(error, message)
    return lambda error, message=None: hook(error)


def call_hook(hook: Callable[..., Any], *values: Any) -> None:
    """Call a hook of the application; its exceptions must not end the reading."""
    try:
        handlers.ran(hook(*values))
    except Exception:
        log.exception("a hook of the application failed")
