"""Pools with handlers that get values: `WorkerPool(consumer.typed(Order), handle)`.

The value is decoded before the handler is called, so the handler never sees a message that cannot be decoded. Such a
message has the same outcome as if the handler had raised an exception. With `on_bad="raise"` this is DecodeFailed
(tried again, given up after `attempts`). With "reject" it is Reject (stored under `dead_letter`, then terminated). With
"skip" the message is only terminated, with an event "rejected" and a warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from jsclient import codecs, errors
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import TypedMsg, read
from jsclient.workers.outcomes import Outcome, Reject, Skipped, call_batch

if TYPE_CHECKING:
    from jsclient.workers.options import PoolOptions

log: logging.Logger = logging.getLogger("jsclient.workers")


def with_dead_letter(options: PoolOptions, values: Values[Any] | None) -> PoolOptions:
    """The options with the dead letter subject of `typed`. Raises ConfigError if the pool has another one."""
    if values is None or values.on_bad != "reject" or values.dead_letter == options.dead_letter:
        return options
    if options.dead_letter is not None:
        raise errors.ConfigError(
            f"a pool stores dead letters under one subject: typed() was given {values.dead_letter!r}, the pool "
            f"{options.dead_letter!r}. Give it once."
        )
    return attrs.evolve(options, dead_letter=values.dead_letter)


def typed_handler(handler: Callable[[Any], Any], values: Values[Any] | None, batches: bool) -> Callable[[Any], Any]:
    """The handler of the application, behind the decoding."""
    if values is None:
        return handler
    on_bad = values.on_bad

    def one(message: TypedMsg[Any]) -> Any:
        refusal = _read(message, on_bad)
        if refusal is not None:
            raise refusal from refusal.__cause__
        return handler(message)

    def many(batch: Sequence[TypedMsg[Any]]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(batch)
        good: list[int] = []
        for index, message in enumerate(batch):
            outcomes[index] = _read(message, on_bad)
            if outcomes[index] is None:
                good.append(index)
        if good:
            found = call_batch(handler, [batch[index] for index in good])
            for index, outcome in zip(good, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    return many if batches else one


def _read(message: Any, on_bad: codecs.OnBad) -> Exception | None:
    """Decode the value, from the stream if the message came without a payload. Returns the outcome of the message."""
    try:
        read(message)
        return None
    except errors.DecodeFailed as error:
        refusal = _refused(error, on_bad)
        if refusal is not error:
            refusal.__cause__ = error
        return refusal
    except errors.MessageNotFound as error:
        refusal = Reject(f"headers only, and the message is gone: {errors.brief(error)}")
        refusal.__cause__ = error
        return refusal
    except errors.PayloadMissing as error:
        return error


def _refused(error: errors.DecodeFailed, on_bad: codecs.OnBad) -> Exception:
    if on_bad == "raise":
        return error
    if on_bad == "reject":
        return Reject(errors.brief(error))
    log.warning("skipped: %s", error)
    return Skipped(errors.brief(error))
