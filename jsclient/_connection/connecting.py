"""A separate thread tries one server at a time until a link is up or there is no point in continuing."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, handlers, waiting
from jsclient._connection import lame_duck
from jsclient._connection.events import ConnectionEvent
from jsclient._connection.link import Link, discard, open_link
from jsclient._connection.servers import BACKOFF_MAX, ServerPool
from jsclient.durations import Deadline, check_timeout
from jsclient.options import Choose, ConnectOptions
from jsclient.threads import Thread, start_all
from jsclient.urls import Server

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient._connection.session import Session
    from jsclient._transport import Transport

log = logging.getLogger("jsclient.connection")

AUTH_ERROR_SPACING: Final = 2.0
"""Seconds between two refusals of the same credentials that count as two: a server that restarts may refuse first."""

ABANDON_AFTER: Final = 0.5
"""Seconds that close() gives a connecting thread."""

LATE: Final = 0.1
"""Seconds that connect() gives its connector thread, beyond all timeouts, to report why there is no link."""

NO_THREAD_PAUSE: Final = 0.5
"""Seconds until the next try when the system has no thread left to reconnect with."""


class Connector:
    """Makes the links of a Session: the first, and another after each loss. The thread hands over a link that is up,
    and ends."""

    def __init__(self, engine: Engine, options: ConnectOptions, session: Session) -> None:
        self._engine = engine
        self._options = options
        self._session = session
        self._closing = session.closing
        self.pool: ServerPool = ServerPool(
            options.servers,
            randomize=options.randomize,
            max_attempts=options.reconnect.max_attempts,
            ignore_discovered=options.ignore_discovered,
            delay_hook=options.reconnect.delay,
        )
        self._authenticator = options.authenticator()
        self.hurry: waiting.Gate = waiting.Gate()  # ends the delay before the next attempt
        self.ever_connected: bool = False
        self._was_secure = False  # a link used TLS: then all later ones do
        self._made = 0  # threads
        self._thread: Thread | None = None
        self._dialling: Transport | None = None
        self._auth_digest: Any = None
        self._auth_refused: tuple[Any, float, int] = (None, 0.0, 0)

    def start(self) -> None:
        """Connect for the first time; waits for it unless `retry_on_failed_connect`. Ctrl-C abandons the attempt.

        Every server of the list gets `connect_timeout`, which bounds the complete wait.
        """
        result: waiting.Ticket[BaseException | None] = waiting.Ticket()
        self.spawn(result)
        if self._options.retry_on_failed_connect:
            return
        limit = self._options.connect_timeout * len(self.pool)
        try:
            error = waiting.get(result, Deadline(limit + LATE).remaining())
        except queue.Empty:
            self._thread = None  # close() shall not wait for it either; a link that it makes later is dropped
            raise errors.ConnectFailed(
                f"not connected within {limit:g} s: a callable of the options (credentials, socket_factory, headers) "
                "has not returned"
            ) from None
        if error is not None:
            raise error

    def leave(self, link: Link) -> None:
        """The server of `link` is a lame duck and there are others: connect to one of them, then give up this link."""
        link.leaving = True
        self._engine.clock.call_later(random.uniform(0.0, lame_duck.SPREAD), lambda: self.spawn(old=link))

    def spawn(self, result: waiting.Ticket[BaseException | None] | None = None, old: Link | None = None) -> None:
        """Dial on a new thread. The link takes the place of `old`, if there is one."""
        if self._closing.is_set():
            return
        self._made += 1
        name = f"jsclient-connect-{self._engine.number}-{self._made}"
        try:
            thread = Thread(name, self._run, result, old)
            start_all([thread], "a connection")
        except (errors.NoThread, MemoryError) as error:
            if result is not None:
                raise
            self._engine.clock.call_later(NO_THREAD_PAUSE, lambda: self.spawn(old=old))
            log.error(
                "no thread to reconnect with, trying again in %g s: %s",
                NO_THREAD_PAUSE,
                errors.brief(error),
                exc_info=error,
            )
            return
        self._thread = thread  # not before: close() joins it, from any thread

    def _run(self, result: waiting.Ticket[BaseException | None] | None, old: Link | None) -> None:
        heard = result is not None and not self._options.retry_on_failed_connect
        try:
            error = self._dial_until_up(heard, old)
        except BaseException as unexpected:  # a hook of the user may raise anything
            error = unexpected
            if isinstance(error, MemoryError) and not heard and not self._closing.is_set():
                self._engine.clock.call_later(NO_THREAD_PAUSE, lambda: self.spawn(old=old))  # that passes
                error = None
            log.exception("connecting failed")
        if old is not None:
            old.leaving = False
            return  # the server ends the old link itself in the end, and that counts as any other loss
        if result is not None:
            result.put(error)
        if error is not None and not heard and not self._closing.is_set():
            self._engine.shutdown.fail(error)

    def _dial_until_up(self, once: bool, old: Link | None) -> BaseException | None:
        """Try servers until a link is up (None) or there is no point in continuing (the reason)."""
        session = self._session
        attempts: list[tuple[str, str]] = []
        failures: list[BaseException] = []
        limit = len(self.pool) if once else None
        met_lame_duck = False  # the application may choose it again and again
        while not self._closing.is_set() and (old is None or lame_duck.may_leave(session, old)):
            server, pause = self._next_server(others=old is not None, as_usual=met_lame_duck)
            met_lame_duck = False
            if server is None:
                return self._gave_up(attempts, failures)
            if self.hurry.wait(self._delay() if pause is None else pause):
                self.hurry.clear()  # first: close() sets the other one before
            if self._closing.is_set():
                break
            try:
                link = self._open(server)
                if link.info.ldm and (self._knows_better(server) or old is not None):
                    discard(link.stream)
                    met_lame_duck = True
                    continue
            except Exception as error:
                if once and not isinstance(error, (errors.JsClientError, OSError)):
                    return error  # a callable of the user: the caller of connect sees it as it is
                session.last_error = error
                self.pool.failed(server)
                attempts = [*attempts[-50:], (server.url, errors.brief(error))]
                failures = [*failures[-50:], error]
                # After the first connect, wrong options are temporary: a file being replaced, a variable not yet set.
                wrong_options = isinstance(error, errors.ConfigError) and not self.ever_connected
                last = old is None and (wrong_options or self._refused_for_good(error))
                quiet = once or self._closing.is_set()
                self._engine.events.outage.attempt_failed(server.url, error, quiet)
                if not (quiet or last or old is not None):  # else something else reports it
                    self._engine.events.tell(ConnectionEvent("error", error), error, None)
                if last:
                    return error
                if limit is not None and len(failures) >= limit:
                    return self._gave_up(attempts, failures)
            else:
                if old is None:
                    session.adopt(link)
                else:
                    lame_duck.replace(session, old, link)
                return None
        return errors.ConnectionClosed("the connection was closed while it was being made")

    def _next_server(self, others: bool = False, as_usual: bool = False) -> tuple[Server | None, float | None]:
        """The server to connect to now, and the seconds to wait before that (None for the usual pause).

        The application chooses the server, or else (`as_usual`) the pool does. `others`: not the server in use.
        """
        choose = self._options.reconnect.choose
        if choose is not None and self.ever_connected and not as_usual and len(self.pool):
            try:
                chosen = self._chosen(choose, others)
            except Exception as error:  # the user's hook: no reason to give the connection up
                log.exception("the choose hook of the reconnect policy failed")
                self._engine.events.tell(ConnectionEvent("error", error), error, None)
            else:
                if chosen is not None:
                    return chosen
        return self.pool.next(time.monotonic()), None

    def _chosen(self, choose: Choose, others: bool) -> tuple[Server, float | None] | None:
        choices = self.pool.choices(others)
        answer = handlers.ran(choose(choices, self._session.info))
        if answer is None:
            return None
        url, pause = (answer, None) if isinstance(answer, str) else answer
        check_timeout(pause, "the pause that choose returns")
        server = self.pool.choose(url, time.monotonic()) if any(url == choice.url for choice in choices) else None
        if server is None:
            raise errors.ConfigError(f"choose returned {url!r:.200}, which is none of the servers that it was given")
        return server, pause

    def _delay(self) -> float:
        try:
            return self.pool.delay(time.monotonic())
        except Exception:  # the user's hook: no reason to give the connection up
            log.exception("the delay hook of the reconnect policy failed")
            return BACKOFF_MAX

    def _knows_better(self, server: Server) -> bool:
        """`server` is shutting down, too; True when there are others that are not, as far as we know."""
        self.pool.lame_duck(server)
        return self.pool.has_alternative()

    def _open(self, server: Server) -> Link:
        return open_link(
            server,
            self._options,
            self._authenticator,
            abandoned=self._closing,
            must_encrypt=self._was_secure,
            on_stream=self._note_stream,
            on_digest=self._note_credentials,
        )

    def _note_stream(self, stream: Transport) -> None:
        self._dialling = stream
        if self._closing.is_set():
            stream.shutdown()

    def _note_credentials(self, digest: Any) -> None:
        self._auth_digest = digest

    def _gave_up(self, attempts: list[tuple[str, str]], failures: list[BaseException]) -> BaseException:
        if len({type(failure) for failure in failures}) == 1 and len(failures) == 1:
            return failures[0]
        told = "; ".join(f"{url}: {reason}" for url, reason in attempts[:10]) or "no servers are left in the pool"
        kinds = {type(failure) for failure in failures}
        if failures and all(issubclass(kind, errors.AuthError) for kind in kinds):
            return type(failures[-1])(*failures[-1].args)
        return errors.ConnectFailed(f"no server could be reached: {told}", attempts)

    def _refused_for_good(self, error: BaseException) -> bool:
        """True if servers refused the same credentials again after a while: to try on would only fill their log."""
        limit = self._options.auth_error_limit
        if not isinstance(error, errors.AuthError) or isinstance(error, errors.AuthTimeout):
            self._auth_refused = (None, 0.0, 0)
            return False
        digest, when, count = self._auth_refused
        now = time.monotonic()
        if count == 0 or digest != self._auth_digest:
            self._auth_refused = (self._auth_digest, now, 1)
        elif now - when >= AUTH_ERROR_SPACING:
            self._auth_refused = (digest, now, count + 1)
        return limit is not None and self._auth_refused[2] >= max(limit, 1)

    def connected(self, link: Link) -> None:
        """The session has adopted this link, which is up."""
        self.ever_connected = True
        self._auth_refused = (None, 0.0, 0)
        self._was_secure = self._was_secure or link.stream.secure
        self.hurry.clear()
        self.pool.connected(link.server, time.monotonic())

    def abandon(self) -> None:
        """The connection closes: do not let a silent server hold the thread for `connect_timeout`."""
        if self._dialling is not None:
            self._dialling.shutdown()

    def join(self) -> None:
        """Wait a moment for the thread, if it is not the current one; a link that it makes later is dropped."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(ABANDON_AFTER)
