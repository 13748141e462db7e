"""What a session asks of, and tells, the engine that owns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jsclient import errors
    from jsclient._engine.flusher import Flusher
    from jsclient._engine.link import Link
    from jsclient._engine.reading import Reading
    from jsclient._engine.server_errors import ServerErr
    from jsclient._engine.sinks import BaseSubscription
    from protocol.frames import Frame


class Owner(Protocol):
    """The engine, as its session sees it. The calls come on the thread that is named; none of them may wait."""

    @property
    def number(self) -> int:
        """Of the connection, for the names of threads."""

    @property
    def clock(self) -> Flusher: ...

    # --- asked --------------------------------------------------------------------------------------------

    @property
    def reply_sids(self) -> set[bytes]:
        """Subscriptions with messages that are not held to `max_payload`: answers of the server."""

    def messages_in(self) -> int:
        """Messages that have come so far."""

    def subscribed(self) -> list[BaseSubscription]:
        """All subscriptions that the server knows of."""

    def closed_error(self) -> errors.ConnectionClosed:
        """Why nothing works any more."""

    # --- reader thread ------------------------------------------------------------------------------------

    @property
    def dispatch(self) -> Callable[[list[Any], int], list[Any]]:
        """Takes the events of a chunk, and its bytes; returns those that are for the session."""

    def lends(self) -> bool:
        """The last chunk woke somebody, and nobody else waits for what comes next."""

    def nobody_waits(self) -> bool:
        """Nobody waits for what only the reader brings."""

    def count_borrowed(self, reading: Reading) -> None:
        """Add what callers have read themselves."""

    def operation_refused(self, err: ServerErr) -> None:
        """The server has refused an operation, and the link stays."""

    # --- connector or reader thread -------------------------------------------------------------------------

    def server_takes(self, max_payload: int, headers: bool) -> None:
        """The server has told what it takes."""

    def link_up(self, link: Link) -> None:
        """The link stands: subscribe everything, before anything that was kept, and go online."""

    def link_announced(self, first: bool) -> None:
        """It is the present one; the application may hear of it."""

    def link_gone(self, url: str, reason: BaseException | None) -> None:
        """There is no link from now on; without a reason because the connection is closed."""

    def link_lost(
        self, make: Callable[[], BaseException], reason: BaseException | None, withdrawn: list[Frame]
    ) -> None:
        """Calls that wait for an answer over the dead link learn it now. `withdrawn`: of these no byte was sent."""

    def link_left(self, withdrawn: list[Frame]) -> None:
        """The link is given up for one that stands already."""

    def connect_attempt_failed(self, url: str, error: BaseException, tell: bool, quiet: bool = False) -> None:
        """`tell`: the application shall hear of it. `quiet`: nor need the log warn."""

    def choice_failed(self, error: BaseException) -> None:
        """The application did not choose a server that can be dialled; the usual choice is made."""

    def servers_discovered(self, urls: list[str]) -> None: ...

    def server_left(self) -> None:
        """Another server of the cluster goes or is gone."""

    def lame_duck(self) -> None:
        """The server is about to stop."""

    def fail(self, error: BaseException) -> None:
        """There will be no other link: the connection ends."""
