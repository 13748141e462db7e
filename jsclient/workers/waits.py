"""Checks that a pool can work on a consumer, and finds the time for which the server waits for its acks."""

from __future__ import annotations

from typing import Any, Final

import attrs

from jsclient import errors
from jsclient.durations import seconds_of
from jsclient.jetstream import Consumer
from jsclient.jetstream.consuming.typed import values_in
from jsclient.jetstream.without_payload import refuse_headers_only
from jsclient.workers.options import PoolOptions

DEFAULT_ACK_WAIT: Final = 30.0
"""The server's own default, if the consumer's configuration cannot be read."""


@attrs.frozen
class Waits:
    """The server's wait for an ack, per delivery; the consumer's own back-off, and its limit of one pull."""

    ack: tuple[float, ...]
    backoff: tuple[float, ...]
    max_batch: int = 0


def waits_of(consumer: Consumer[Any], options: PoolOptions) -> Waits:
    """The waits in the consumer's configuration. Raises ConfigError if a pool cannot work on the consumer."""
    info = consumer.cached_info
    if info is None:
        try:
            info = consumer.info()
        except (errors.TimedOut, errors.PermissionViolation, errors.NoResponders) as error:
            if options.ack_wait is None:
                raise errors.ConfigError(
                    f"the configuration of {consumer} cannot be read ({errors.brief(error)}): give ack_wait="
                ) from error
            return Waits((options.ack_wait,), ())
    config = info.config
    if config.ack_policy != "explicit":
        raise errors.ConfigError(f"a pool needs ack policy explicit, {consumer} has {config.ack_policy!r}")
    if values_in(consumer) is not None:
        refuse_headers_only(config.headers_only, consumer)
    if options.attempts is not None and (config.max_deliver or -1) != -1:
        raise errors.ConfigError(
            f"attempts is counted by the pool: {consumer} must have max_deliver=-1, not {config.max_deliver}; "
            "with a limit of the server's, a message is lost if its worker is killed during its last delivery"
        )
    groups = config.priority_groups or []
    if (groups or options.group) and options.group not in groups:
        known = f"group= must be one of {', '.join(groups)}" if groups else "it has no priority groups: leave group out"
        raise errors.ConfigError(f"group {options.group!r} does not fit {consumer}: {known}")
    backoff = tuple(seconds_of(delay) for delay in config.backoff or ())
    ack_wait = seconds_of(options.ack_wait or config.ack_wait or DEFAULT_ACK_WAIT)
    return Waits(backoff or (ack_wait,), backoff, config.max_batch or 0)
