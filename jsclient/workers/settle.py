"""The outcome of a message after its handler: ack, retry, dead letter. Runs in the worker threads."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, handlers
from jsclient.jetstream import dead_letters
from jsclient.jetstream.consuming.double_ack import double_ack_many
from jsclient.jetstream.missing_payloads import fill
from jsclient.workers import later
from jsclient.workers.history import History, Known, key_of
from jsclient.workers.options import FORGIVEN, REASONS_KEPT, RETRY_DELAY
from jsclient.workers.outcomes import Outcome, Reject, Retry, Skipped, puts_off, reason_of

if TYPE_CHECKING:
    from jsclient.jetstream import JetStreamMsg
    from jsclient.workers.host import Core
    from jsclient.workers.parts import Worker
    from jsclient.workers.progress import Held

log: logging.Logger = logging.getLogger("jsclient.workers")

BY_HANDLER: Final = -1.0
"""Instead of a delay: see Settler.run_keyed."""


class Settler:
    """Turns outcomes into acks. An ack that cannot be sent is logged: the message is redelivered after ack_wait."""

    def __init__(self, pool: Core, consumer_backoff: Sequence[float]) -> None:
        self._pool = pool
        options = pool.options
        self._options = options
        self._backoff = tuple(options.backoff or consumer_backoff or (RETRY_DELAY,))
        self._gave_up_unseen = False
        self._later = options.later if options.later and later.usable(pool.consumer, options.later) else ""
        self._history = History(exact=options.retries is not None)
        self._unstored: dict[Any, str] = {}  # reasons of dead letters that could not be stored yet
        self.plain: bool = not (options.manual or options.confirm or options.on_event)
        """True if a handled message is acked without further work."""

    # --- one message ------------------------------------------------------------------------------------

    def handled(self, worker: Worker, message: JetStreamMsg, seconds: float) -> None:
        worker.counters.handled += 1
        self._history.forget(message)
        try:
            if self.plain:
                message.ack()
                return
            if self._options.confirm and not self._options.manual:
                message.double_ack()
            elif not self._options.manual:
                message.ack()
        except errors.JsClientError as error:
            self.not_acked(message, error)
        self._pool.event("handled", message, None, seconds)

    @staticmethod
    def not_acked(message: JetStreamMsg, error: errors.JsClientError) -> None:
        """Log a failed ack, unless the handler has acked."""
        if not isinstance(error, errors.MsgAlreadyAcked):
            log.warning("the ack of %r was not sent or not confirmed: %s", message, error, exc_info=error)

    def failed(
        self, worker: Worker, message: JetStreamMsg, error: BaseException, deliveries: int, seconds: float
    ) -> None:
        """The handler raised: retry or give up."""
        known = self._history.note(message, error)
        before = later.tries_before(message) if self._later else Known()
        asked = known.asked + before.asked
        failed = (known.failed if self._history.exact else deliveries) + before.failed
        deliveries += before.failed + before.asked
        if self.gives_up(error, failed, asked, deliveries):
            if not self.give_up(worker, message, error, deliveries):
                self._quietly(message, lambda: message.nak(self._backoff[-1]))
            return
        self._note_failure(worker, message, error, seconds)
        delay = self.delay(error, deliveries)
        wait = self._later and delay >= self._options.later_from
        if not (wait and self._store_for_later(message, delay, Known(failed, asked))):
            self._quietly(message, lambda: message.nak(delay))

    def _store_for_later(self, message: JetStreamMsg, delay: float, tries: Known) -> bool:
        """Store it again for later, and ack it here. False if it may not have been stored."""
        if message.is_acked:
            return True  # the handler has settled it already
        try:
            later.store(self._pool.consumer, self._later, message, delay, tries)
        except errors.JsClientError as error:
            log.warning(
                "%r is not known to be stored for later, it is delayed by a nak: %s", message, error, exc_info=error
            )
            return False
        self._history.forget(message)
        self._quietly(message, message.ack)
        return True

    def _note_failure(self, worker: Worker, message: JetStreamMsg, error: BaseException, seconds: float) -> None:
        if isinstance(error, errors.PayloadMissing):
            log.warning("%r is tried again later: %s", message, error)
        if puts_off(error):
            self._pool.event("retried", message, error, seconds)
            return
        worker.counters.failed += 1
        log.warning("the handler failed on %r: %s", message, reason_of(error), exc_info=error)
        self._pool.event("failed", message, error, seconds)

    def gives_up(self, error: BaseException, failed: int, asked: int, deliveries: int) -> bool:
        """`failed` and `asked` count the tries with this outcome, including this one. `deliveries` also counts tries in
        other processes, and bounds the total."""
        attempts, retries = self._options.attempts, self._options.retries_allowed
        if isinstance(error, (Reject, errors.PayloadMissing)):
            return isinstance(error, Reject)
        if isinstance(error, Retry) and retries is not None and asked > retries:
            return True
        if attempts is None or retries is None:
            return False
        return (failed >= attempts and not puts_off(error)) or deliveries >= attempts + retries

    def delay(self, error: BaseException, deliveries: int) -> float:
        """Seconds until the next try: the handler's own, else the back-off entry of this delivery."""
        if isinstance(error, Retry) and error.delay is not None:
            return error.delay
        spread = self._options.jitter
        return self._backoff[min(deliveries, len(self._backoff)) - 1] * random.uniform(1 - spread, 1 + spread)

    def give_up(
        self, worker: Worker, message: JetStreamMsg, error: BaseException, deliveries: int, reason: str = ""
    ) -> bool:
        """Dead letter, then term; False if the dead letter could not be stored: the message must be redelivered."""
        reason = reason or reason_of(error)
        rejected = isinstance(error, Reject)
        if rejected:
            worker.counters.rejected += 1
        else:
            worker.counters.failed += 1
            log.warning("%r is given up at delivery %d: %s", message, deliveries, reason, exc_info=error)
        if message.is_acked:
            self._pool.event("rejected" if rejected else "failed", message, error)
            return True  # the handler has settled it already
        dead = self._options.dead_letter is not None and not isinstance(error, Skipped)
        if dead and not self._store(message, reason, deliveries):
            self._pool.event("failed", message, error)
            return False
        if dead:
            worker.counters.dead += 1
        self._history.forget(message)
        self._quietly(message, lambda: self._term(message, reason))
        self._pool.event("dead" if dead else "rejected", message, error)
        return True

    def is_spent(self, message: JetStreamMsg, deliveries: int) -> bool:
        """True if the message is given up without another try."""
        if self._unstored and key_of(message) in self._unstored:
            return True
        attempts, retries = self._options.attempts, self._options.retries_allowed
        if attempts is None or self._gave_up_unseen:
            return False
        allowed = attempts + FORGIVEN + (retries or 0 if self._history.exact else 0)
        if deliveries - self._history.asked(message) <= allowed:
            return False
        # One in the life of a process: the others may only have been prefetched each time that this one killed it.
        self._gave_up_unseen = True
        return True

    def is_suspect(self, message: JetStreamMsg, deliveries: int) -> bool:
        """True if its earlier deliveries ended without an outcome: it may have killed its workers."""
        attempts = self._options.attempts
        return attempts is not None and deliveries - self._history.asked(message) > attempts

    def exhausted(self, worker: Worker, message: JetStreamMsg, deliveries: int) -> None:
        """Give the message up without running it again. Either its dead letter could not be stored last time, or its
        worker died with it again and again: far more than `attempts` deliveries had no outcome."""
        if not self._give_up_spent(worker, message, deliveries):
            self._quietly(message, lambda: message.nak(self._backoff[-1]))

    def _give_up_spent(self, worker: Worker, message: JetStreamMsg, deliveries: int) -> bool:
        error = RuntimeError(f"delivered {deliveries} times without an outcome")
        return self.give_up(worker, message, error, deliveries, self._unstored.get(key_of(message), ""))

    def _store(self, message: JetStreamMsg, reason: str, deliveries: int) -> bool:
        assert self._options.dead_letter is not None
        key = key_of(message)
        try:
            dead_letters.publish(self._pool.consumer.js, self._options.dead_letter, message, reason, deliveries)
        except errors.JsClientError as error:
            log.error(
                "the dead letter of %r is not known to be stored, it will be tried again: %s",
                message,
                error,
                exc_info=error,
            )
            if len(self._unstored) < REASONS_KEPT:
                self._unstored[key] = reason
            return False
        self._unstored.pop(key, None)
        return True

    @staticmethod
    def _term(message: JetStreamMsg, reason: str) -> None:
        try:
            message.term(reason)
        except errors.NotSupported:  # below 2.10.4
            message.term()

    @staticmethod
    def ack_again(message: JetStreamMsg) -> None:
        """It was handled here, and its ack was lost."""
        try:
            message.ack()
        except errors.JsClientError as error:
            log.info("%r was handled before, and is not acked yet: %s", message, error)

    def give_back(self, message: JetStreamMsg) -> None:
        """Not started: let another worker have it now."""
        self._quietly(message, message.nak)

    @staticmethod
    def _quietly(message: JetStreamMsg, action: Callable[[], Any]) -> None:
        try:
            action()
        except errors.MsgAlreadyAcked:
            pass
        except errors.JsClientError as error:
            log.warning("%r was not settled, it comes again after ack_wait: %s", message, error, exc_info=error)

    # --- order by key -----------------------------------------------------------------------------------

    def run_keyed(self, worker: Worker, message: JetStreamMsg, deliveries: int, held: Held) -> float | None:
        """Call the handler. Returns None if the message is finished, else the seconds until it is tried again here.

        `held` counts the failed tries in this process, in addition to the `deliveries` that the server counts.
        BY_HANDLER: the handler has settled the message; perhaps it has returned it to the server.
        """
        if self.is_spent(message, deliveries):
            return None if self._give_up_spent(worker, message, deliveries) else self._backoff[-1]
        started = time.monotonic()
        error: BaseException | None = None
        try:
            handlers.ran(self._pool.handler(message))
        except BaseException as raised:
            error = raised
        seconds = time.monotonic() - started
        self._pool.count(worker, seconds, message)
        by_handler = self._options.manual or message.is_acked
        if error is None:
            self.handled(worker, message, seconds)
            return BY_HANDLER if by_handler else None
        if message.is_acked:
            self._note_failure(worker, message, error, seconds)
            return BY_HANDLER
        if isinstance(error, errors.PayloadMissing):
            error = self._with_payload(message, error)
        tries = deliveries + held.retries + self._history.asked(message)
        asked = self._history.note(message, error).asked
        failed = held.retries + (1 if self._history.exact else deliveries)
        delay = self.delay(error, tries)
        if self.gives_up(error, failed, asked, tries):
            if self.give_up(worker, message, error, tries):
                return None
            delay = self._backoff[-1]
        else:
            self._note_failure(worker, message, error, seconds)
        if not puts_off(error):
            held.retries += 1
        return delay

    def _with_payload(self, message: JetStreamMsg, error: errors.PayloadMissing) -> Exception:
        """Read the payload for the next try of the same message. Returns the error of the last try."""
        try:
            fill(self._pool.consumer.js, message)
        except errors.MessageNotFound:
            return Reject("it came without its payload, and the stream has it no more")
        except errors.JsClientError as trouble:
            log.info("the payload of %r could not be read: %s", message, trouble)
        return error

    # --- batches ----------------------------------------------------------------------------------------

    def settle_batch(
        self,
        worker: Worker,
        batch: list[JetStreamMsg],
        outcomes: list[Outcome],
        seconds: float,
        deliveries: Callable[[Worker, JetStreamMsg], int],
    ) -> None:
        good = [message for message, outcome in zip(batch, outcomes, strict=True) if outcome is None]
        if self._options.confirm and good:
            self._confirm(worker, good, seconds)
        else:
            for message in good:
                self.handled(worker, message, seconds)
        for message, outcome in zip(batch, outcomes, strict=True):
            if outcome is not None:
                self.failed(worker, message, outcome, deliveries(worker, message), seconds)

    def _confirm(self, worker: Worker, good: list[JetStreamMsg], seconds: float) -> None:
        worker.counters.handled += len(good)
        for message in good:
            self._history.forget(message)
        try:
            result = double_ack_many(good)
        except errors.JsClientError as error:
            log.warning("the acks of a batch were not sent: %s", error, exc_info=error)
            return
        if result.unconfirmed:
            log.warning("%d acks of a batch were not confirmed: those may come again", len(result.unconfirmed))
        for message in good:
            self._pool.event("handled", message, None, seconds)
