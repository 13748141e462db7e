"""Requests of the system account (`$SYS.REQ...`): to all servers, to one, and the few that change something."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from jsclient import errors, kinds
from jsclient.connection import Connection
from jsclient.durations import DEFAULT, Deadline, Timeout, plain_or_none, resolve
from jsclient.jetstream.api import model_base, names
from jsclient.system.gathering import Answer, Gathered, Refusal, decode_event, servers_known_to, sort_answer
from jsclient.system.models import Connections, Health, JetStreamState
from jsclient.system.models_server import ServerStats, Variables
from jsclient.system.options import AskDict, ConnectionsDict, JetStreamUseDict, check_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


log: logging.Logger = logging.getLogger("jsclient.system")

SYSTEM_TIMEOUT: Final = 2.0
"""Seconds for all servers to answer. A cluster of three on one machine takes a millisecond."""

_ALL: Final = "$SYS.REQ.SERVER.PING"
_ONE: Final = "$SYS.REQ.SERVER"


class Events:
    """An iterator of (subject, event as a dict). See SystemClient.events. Raises BadResponse for a malformed event, and
    continues after it."""

    def __init__(self, nc: Connection, subject: str, timeout: float | None) -> None:
        self._timeout = timeout
        self._subscription = nc.subscribe(subject)
        nc.flush()  # events from here on are received

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> tuple[str, dict[str, Any]]:
        try:
            message = self._subscription.next(self._timeout)
        except errors.TimedOut:
            raise StopIteration from None
        return message.subject, decode_event(message.data)

    def close(self) -> None:
        self._subscription.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SystemClient:
    """Requests and commands for a user of the system account. Thread-safe. It sends nothing until you call it.

    Each request goes to all servers, or to one server that `server` names by id or name. It returns a Gathered with the
    answers, the errors of single servers, and the names of silent servers. Each server counts the servers of its
    cluster, so the client recognizes a complete set of answers and returns immediately.

    Keyword `options` go into the request unchanged, such as `connections(acc="APP", state=1)`. Without permissions on
    the system account the server does not answer: you get NoResponders or an empty, incomplete Gathered.

    Attributes:
        nc: The connection, of a user of the system account.
        timeout: Seconds for a call without its own timeout.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.

    Further options:
        ask: see `AskDict`.
        connections: see `ConnectionsDict`.
        jetstream: see `JetStreamUseDict`.
    """

    def __init__(self, nc: Connection, *, timeout: float | dt.timedelta | None = SYSTEM_TIMEOUT) -> None:
        kinds.check(Connection, nc=nc)
        kinds.check(float, dt.timedelta, None, timeout=timeout)
        self.nc = nc
        self.timeout: float | None = plain_or_none(timeout)

    # --- asking -------------------------------------------------------------------------------------------

    def servers(self, *, timeout: Timeout = DEFAULT) -> Gathered[ServerStats]:
        """Every server with its statistics: CPU, memory, connections, slow consumers, JetStream.

        Raises NoResponders for a user without rights on the system account.
        """
        return self._servers(Deadline.of(timeout, self.timeout))

    def _servers(self, deadline: Deadline) -> Gathered[ServerStats]:
        found: dict[str, Answer[ServerStats]] = {}
        refused: dict[str, Refusal] = {}
        expected = 1
        for one in self._answers("STATSZ", b"", deadline, ServerStats, "statsz"):
            if isinstance(one, Refusal):
                refused[one.id] = one
            else:
                found[one.id] = one
                expected = max(expected, servers_known_to(one.data))
            if len(found) + len(refused) >= expected:
                break
        unknown = max(0, expected - len(found) - len(refused))
        return Gathered(_by_name(found), tuple(refused.values()), (), unknown)

    def _answers(
        self, endpoint: str, body: bytes, deadline: Deadline, kind: Any, key: Literal["data", "statsz"] = "data"
    ) -> Iterator[Answer[Any] | Refusal]:
        """The answers of servers. Strangers can answer, too: the client logs anything else and leaves it out."""
        for message in self.nc.request_many(f"{_ALL}.{endpoint}", body, timeout=deadline.remaining()):
            try:
                yield sort_answer(message.data, kind, key)
            except errors.BadResponse as error:
                log.warning("%s", errors.brief(error))

    def ask(
        self, endpoint: str, *, server: str = "", timeout: Timeout = DEFAULT, **options: Unpack[AskDict]
    ) -> Gathered[dict[str, Any]]:
        """Request an endpoint by its name: "VARZ", "CONNZ", "JSZ", "ROUTEZ", "LEAFZ", "GATEWAYZ", "SUBSZ", "RAFTZ" ...

        An endpoint that a server does not have (RAFTZ on 2.9) is an error of that server, of code 503.
        """
        return self._ask(endpoint, dict, server, timeout, options)

    def _ask(self, endpoint: str, kind: Any, server: str, timeout: Timeout, options: Any) -> Gathered[Any]:
        names.check_name(endpoint, "endpoint")
        kinds.check(str, server=server)
        check_options(options)
        deadline = Deadline.of(timeout, self.timeout)
        roster = self._servers(deadline)
        body = model_base.encode(options or None)
        if server:
            return self._ask_one(self._find(roster, server), endpoint, body, deadline, kind)
        found: dict[str, Answer[Any]] = {}
        refused: dict[str, Refusal] = {}
        try:
            for one in self._answers(endpoint, body, deadline, kind):
                (refused if isinstance(one, Refusal) else found)[one.id] = one  # type: ignore[assignment]
                if len(found) + len(refused) >= len(roster) + roster.unknown:
                    break
        except errors.NoResponders:
            refusals = (Refusal(one.id, one.name, 503, f"has no {endpoint}") for one in roster)
            return Gathered((), tuple(refusals), (), roster.unknown)
        missing = tuple(one.name for one in roster if one.id not in found and one.id not in refused)
        return Gathered(_by_name(found), tuple(refused.values()), missing, roster.unknown)

    def _ask_one(
        self, target: Answer[Any], endpoint: str, body: bytes, deadline: Deadline, kind: Any = dict
    ) -> Gathered[Any]:
        try:
            reply = self.nc.request(f"{_ONE}.{target.id}.{endpoint}", body, timeout=deadline.remaining())
        except errors.NoResponders:
            return Gathered((), (Refusal(target.id, target.name, 503, f"has no {endpoint}"),))
        except errors.RequestTimeout:
            return Gathered((), (), (target.name,))
        one = sort_answer(reply.data, kind)
        return Gathered((), (one,)) if isinstance(one, Refusal) else Gathered((one,))

    @staticmethod
    def _find(roster: Gathered[ServerStats], server: str) -> Answer[ServerStats]:
        found = [one for one in roster if server in (one.id, one.name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(sorted(one.name for one in roster)) or "none"
        if not found and not roster.complete:
            raise errors.TimedOut(
                f"whether there is a server {server!r} is not known: not all have answered in time (known: {known}). "
                "Give it more time."
            )
        raise errors.ConfigError(
            f"{len(found)} servers are called {server!r} (known: {known}); give the id of one"
            if found
            else f"there is no server {server!r} (known: {known})"
        )

    def variables(self, *, server: str = "", timeout: Timeout = DEFAULT) -> Gathered[Variables]:
        """VARZ: version, limits, rates, uptime of each server."""
        return self._ask("VARZ", Variables, server, timeout, {})

    def connections(
        self, *, server: str = "", timeout: Timeout = DEFAULT, **options: Unpack[ConnectionsDict]
    ) -> Gathered[Connections]:
        """CONNZ: client connections, up to `limit` (1,024) per server. `acc` and `user` need `auth=True`."""
        return self._ask("CONNZ", Connections, server, timeout, options)

    def jetstream(
        self, *, server: str = "", timeout: Timeout = DEFAULT, **options: Unpack[JetStreamUseDict]
    ) -> Gathered[JetStreamState]:
        """JSZ: JetStream of each server. `accounts=True, streams=True, consumer=True` for details.

        In a cluster each replica reports its copy. `stream_leader_only=True` gives every stream once.
        """
        return self._ask("JSZ", JetStreamState, server, timeout, options)

    def health(
        self, *, account: str = "", stream: str = "", consumer: str = "", server: str = "", timeout: Timeout = DEFAULT
    ) -> Gathered[Health]:
        """HEALTHZ: healthy servers are answers; unhealthy ones are `errors` with the reason.

        A server before 2.10 ignores account, stream and consumer, and answers "ok" even if the stream does not exist.
        If you give one of these options, such a server becomes an error with code 501, "unknown".
        """
        kinds.check(str, account=account, stream=stream, consumer=consumer)
        if (stream or consumer) and not account:
            raise errors.ConfigError("name the account of the stream: health(account=..., stream=...)")
        options: Any = {
            key: value for key, value in (("account", account), ("stream", stream), ("consumer", consumer)) if value
        }
        gathered: Gathered[Health] = self._ask("HEALTHZ", Health, server, timeout, options)
        healthy, ill = [], list(gathered.errors)
        for one in gathered:
            if options and _version(one.version) < (2, 10):
                ill.append(
                    Refusal(one.id, one.name, 501, "unknown: before 2.10 a server does not look at streams", one.data)
                )
            elif one.data.get("status") != "ok":
                code = one.data.get("status_code")
                code = code if isinstance(code, int) else 503
                ill.append(
                    Refusal(one.id, one.name, code, str(one.data.get("error", one.data.get("status"))), one.data)
                )
            else:
                healthy.append(one)
        return Gathered(tuple(healthy), tuple(ill), gathered.missing, gathered.unknown)

    def events(self, subject: str = "$SYS.ACCOUNT.*.*", *, timeout: Timeout = None) -> Events:
        """(subject, event) for each event from now on: by default clients that connect and disconnect.

        Others: "$SYS.SERVER.*.LAMEDUCK", "$SYS.SERVER.*.SHUTDOWN", "$SYS.SERVER.*.CLIENT.AUTH.ERR". The iteration
        ends after `timeout` seconds without an event (None: never). Use it in a `with`, or call `close()`.
        """
        return Events(self.nc, subject, resolve(timeout, None))

    # --- doing --------------------------------------------------------------------------------------------

    def kick(self, cid: int, server: str, *, timeout: Timeout = DEFAULT) -> None:
        """Cut a client off (server 2.10). A well-behaved one connects again. ServerError: there is none."""
        kinds.check(int, cid=cid)
        self._order(server, "KICK", {"cid": cid}, timeout)

    def ask_to_move(self, cid: int, server: str, *, timeout: Timeout = DEFAULT) -> None:
        """Tell one client that its server is in lame duck mode (server 2.10): it moves if there is another server."""
        kinds.check(int, cid=cid)
        self._order(server, "LDM", {"cid": cid}, timeout)

    def reload(self, server: str, *, timeout: Timeout = DEFAULT) -> None:
        """Make a server read its configuration again (server 2.10)."""
        self._order(server, "RELOAD", {}, timeout)

    def _order(self, server: str, verb: str, body: dict[str, Any], timeout: Timeout) -> None:
        kinds.check(str, server=server)
        deadline = Deadline.of(timeout, self.timeout)
        target = self._find(self._servers(deadline), server)
        payload = model_base.encode(body or None)
        gathered = self._ask_one(target, verb, payload, deadline)
        if gathered.errors:
            refusal = gathered.errors[0]
            raise errors.ServerError(f"{refusal.name} refused {verb}: {refusal.code} {refusal.description}")
        if gathered.missing:
            raise errors.UnknownOutcome(f"{target.name} did not answer {verb}")


def _by_name(found: dict[str, Answer[Any]]) -> tuple[Answer[Any], ...]:
    return tuple(sorted(found.values(), key=lambda one: (one.name, one.id)))


def _version(text: str) -> tuple[int, ...]:
    numbers = text.partition("-")[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in numbers)
