"""Requests to the JetStream API: subjects with prefix or domain, JSON bodies, typed errors, paging."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from jsclient import handlers, waiting
from jsclient.checks import FilterInSubject
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, FOREVER, Deadline, Patience, Timeout, resolve
from jsclient.errors import (
    ApiError,
    BadResponse,
    ConnectionLost,
    JetStreamTemporarilyUnavailable,
    JetStreamUnavailable,
    ListingIncomplete,
    NoResponders,
    RequestTimeout,
    api_error,
)
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.headers import readable

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.message import Msg

log: logging.Logger = logging.getLogger("jsclient.jetstream")

T = TypeVar("T")

API_TIMEOUT: Final = 5.0  # nats.go, nats.py, natsio and async-nats agree on it
RESEND_AFTER: Final = 0.85
"""Share of the timeout after which an unanswered read is sent once more.

An overloaded server drops its complete queue of API requests (10,000) without an answer, so further waiting would be in
vain. It is not earlier, because a cluster in which a server is missing answers a listing after 4 s.
"""

NO_LEADER: Final = 10008
RETRY_WAIT: Final = 0.25
"""Seconds between two attempts of a read while the cluster has no leader; elections last 4 to 8 s."""

SUBJECTS: Final = "state.subjects"
"""The listing whose pages hold an object instead of a list."""

MOST_KNOWN: Final = 3
"""Pages in a row without news. The server counts several subjects that are not UTF-8; in its answer they are one."""

RequestHook = Callable[[str, bytes], None]
ResponseHook = Callable[[str, bytes, Any], None]


class Api:
    """The JetStream API of one account as seen through one prefix; thread-safe, without state but its settings.

    `on_request(subject, payload)` and `on_response(subject, payload, headers)` run on the calling thread.
    """

    def __init__(
        self,
        nc: Connection,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float | None = API_TIMEOUT,
        on_request: RequestHook | None = None,
        on_response: ResponseHook | None = None,
    ) -> None:
        self.nc = nc
        self._engine = engine_of(self.nc)
        self.prefix: str = names.api_prefix(domain, prefix)
        self.timeout: float | None = resolve(timeout, API_TIMEOUT)
        self.is_imported: bool = prefix is not None and not self.prefix.startswith("$JS.")
        """True if the API seems to belong to another account: then an import decides what gets through."""
        self.passes_many = False
        """True if that import certainly passes several responses to one request (`response_type: stream`)."""
        self.on_request = on_request
        self.on_response = on_response

    def subject(self, operation: str) -> str:
        """The full subject of an operation such as `STREAM.INFO.ORDERS`."""
        if isinstance(operation, FilterInSubject):
            return FilterInSubject(self.prefix + operation)
        return self.prefix + operation

    # --- requests -------------------------------------------------------------------------------------------

    @overload
    def request(
        self, operation: str, body: Any = ..., *, timeout: Timeout = ..., read: bool = ..., every: float = ...
    ) -> dict[str, Any]: ...

    @overload
    def request(
        self,
        operation: str,
        body: Any = ...,
        response: type[T] = ...,
        *,
        timeout: Timeout = ...,
        read: bool = ...,
        every: float = ...,
    ) -> T: ...

    def request(
        self,
        operation: str,
        body: Any = None,
        response: Any = None,
        *,
        timeout: Timeout = DEFAULT,
        read: bool = False,
        every: float = 0.0,
    ) -> Any:
        """Send `body` (a model, a dict or None) and decode the answer, as a dict if no class is given.

        `read=True` marks operations without effect. They are sent again when the link or the server lost them, within
        the same timeout. If `every` is set, the request is sent again each `every` seconds until an answer comes; use
        it for urgent operations that may be done twice. Raises ApiError (by err_code), JetStreamUnavailable,
        RequestTimeout and BadResponse.

        A Deadline as timeout belongs to a call of several steps. Once it is over, nothing more is sent.
        """
        deadline = Deadline.of(timeout, self.timeout)
        while True:
            message = self.request_raw(operation, body, timeout=deadline, read=read, every=every)
            try:
                plain = check_error(message.data)
            except JetStreamTemporarilyUnavailable as error:
                # A cluster between two leaders answers with this error immediately.
                if not read or error.err_code != NO_LEADER or deadline.at_most(RETRY_WAIT) < RETRY_WAIT:
                    raise
                waiting.Gate().wait(RETRY_WAIT)
            else:
                return plain if response is None else model_base.from_wire(plain, response)

    def request_raw(
        self,
        operation: str,
        body: Any = None,
        *,
        timeout: Timeout = DEFAULT,
        read: bool = False,
        every: float = 0.0,
    ) -> Msg:
        """The answer as a message, without a look at errors in it."""
        subject, payload = self.subject(operation), model_base.encode(body)
        if isinstance(timeout, Deadline) and timeout.expired():
            raise RequestTimeout(f"no time was left to ask {subject!r}", sent=False)
        deadline = Deadline.of(timeout, self.timeout)
        _trace(self.on_request, subject, payload)
        message = self._read(subject, payload, deadline) if read else self._send(subject, payload, deadline, every)
        if self.on_response is not None:
            _trace(self.on_response, subject, message.data, readable(message))
        return message

    def _read(self, subject: str, payload: bytes, deadline: Deadline) -> Msg:
        """Ask; ask again over the next link if one was lost, and once more if no answer came in a part of the time."""
        part = deadline.at_most(FOREVER if deadline.at is not None else API_TIMEOUT)
        wait: Timeout = part * RESEND_AFTER * random.uniform(1.0, 1.1)
        while True:
            try:
                return self._send(subject, payload, wait)
            except ConnectionLost:
                if deadline.expired():
                    raise
            except RequestTimeout:
                if wait is deadline:
                    text = f"no reply from {subject!r} within {deadline.seconds:g} s, asked twice"
                    raise RequestTimeout(text) from None
                if deadline.expired():
                    raise
            wait = deadline

    def _send(self, subject: str, payload: bytes, timeout: Timeout, every: float = 0.0) -> Msg:
        try:
            return self._engine.request(subject, payload, timeout=timeout, every=every or None)
        except NoResponders as error:
            raise self.unavailable(subject) from error

    def unavailable(self, subject: str) -> JetStreamUnavailable:
        """The error for a subject without a listener, with the possible causes."""
        if self.prefix == "$JS.API.":
            hint = "the server or account has no JetStream, or its leader is away for the moment"
        else:
            hint = f"no such domain or import as {self.prefix[:-1]!r}, it does not export this, or its link is down"
        return JetStreamUnavailable(f"nobody answers on {subject!r}: {hint}", subject)

    # --- paging ---------------------------------------------------------------------------------------------

    def pages(
        self, operation: str, key: str, body: dict[str, Any] | None = None, *, timeout: Timeout = DEFAULT
    ) -> Iterator[dict[str, Any]]:
        """The pages of a listing, one by one; `key` names its list or object.

        The server's pages are 1,024 names, 256 infos or 100,000 subjects, in the order of their names. A deletion
        between two pages moves the rest forward. So the client requests each page to begin with a name that it has
        already; this proves that no name was skipped. If this does not succeed, it raises ListingIncomplete. `timeout`
        bounds the complete listing, without the caller's time between two pages. By default each page has the timeout
        of API calls.
        """
        resolve(timeout, self.timeout)
        return self._pages(operation, key, body, timeout)

    def _pages(
        self, operation: str, key: str, body: dict[str, Any] | None, timeout: Timeout
    ) -> Iterator[dict[str, Any]]:
        patience = Patience(timeout, self.timeout)
        offset, back, known = 0, 1, 0
        before: set[str] = set()  # the names of the page before
        while True:
            start = max(offset - back, 0)
            request = {**(body or {}), "offset": start} if start else body
            page = self.request(operation, request or None, timeout=patience.remaining(), read=True)
            _check_page(page, key)
            names, total = _names(page, key), page.get("total") or 0
            if before and before.isdisjoint(names) and start:
                back *= 8  # the names from before were deleted, so begin further in front
                continue
            more = start + len(names) < total
            known = known + 1 if more and names <= before else 0
            if (before and before.isdisjoint(names)) or (more and not names) or known > MOST_KNOWN:
                why = "it changes faster than it can be read, or subjects are no UTF-8"
                raise ListingIncomplete(f"{operation} has {total} names and no page with the next of them: {why}")
            _leave_out(page, key, before)
            with patience.paused():
                yield page
            if not more:
                return
            offset, back, before = start + len(names), 1, names

    def items(
        self, operation: str, key: str, body: dict[str, Any] | None = None, *, timeout: Timeout = DEFAULT
    ) -> Iterator[Any]:
        """The elements of a listing, page by page.

        In a cluster some servers may not answer in time. The other elements come first, then it raises
        ListingIncomplete.
        """
        return self._items(self.pages(operation, key, body, timeout=timeout), key)

    def _items(self, pages: Iterator[dict[str, Any]], key: str) -> Iterator[Any]:
        absent: set[str] = set()
        for page in pages:
            yield from _part(page, key) or ()
            absent |= _absent(page)
        if absent:
            raise ListingIncomplete(f"no answer about {', '.join(sorted(absent))}", sorted(absent))


def _check_page(page: dict[str, Any], key: str) -> None:
    """Raise BadResponse if this is not a page of such a listing."""
    part, total = _part(page, key), page.get("total") or 0
    fits = part is None or isinstance(part, dict if key == SUBJECTS else list)
    lists = all(isinstance(page.get(name) or [], (list, dict)) for name in ("missing", "offline"))
    if not fits or not lists or not isinstance(total, int) or not isinstance(page.get("state") or {}, dict):
        raise BadResponse(f"the answer is no page of a listing of {key}", str(page)[:512].encode())


def _names(page: dict[str, Any], key: str) -> set[str]:
    """The names of everything that a page counts."""
    return {_name(element) for element in _part(page, key) or ()} | _absent(page)


def _name(element: Any) -> str:
    """The name of an element of a listing: itself, or the name in its info."""
    if not isinstance(element, dict):
        return str(element)
    config = element.get("config")
    return str(element.get("name") or (config.get("name") if isinstance(config, dict) else "") or "")


def _leave_out(page: dict[str, Any], key: str, names: set[str]) -> None:
    """Remove the names of the page before from a page."""
    if not names:
        return
    *path, last = key.split(".")
    holder: Any = page
    for step in path:
        holder = holder.get(step) or {}
    part = holder.get(last)
    if isinstance(part, dict):
        holder[last] = {name: value for name, value in part.items() if name not in names}
    elif part:
        holder[last] = [element for element in part if _name(element) not in names]


def _absent(page: dict[str, Any]) -> set[str]:
    """The names that a page counts without their information: their leader did not answer, or they are offline."""
    return {str(name) for part in ("missing", "offline") for name in page.get(part) or ()}


def _part(page: dict[str, Any], key: str) -> Any:
    value: Any = page
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def check_error(payload: bytes) -> dict[str, Any]:
    """The JSON object of an answer; raises the typed error if it holds one."""
    plain = model_base.decode_json(payload)
    if not isinstance(plain, dict):
        raise BadResponse(f"the answer is not a JSON object: {payload[:80]!r}", payload)
    if plain.get("error"):
        raise error_of(plain["error"])
    return plain


def error_of(error: Any) -> ApiError:
    """The typed exception of an `error` object."""
    if not isinstance(error, dict):
        return ApiError(0, 0, str(error))
    code, err_code = error.get("code", 0), error.get("err_code", 0)
    return api_error(
        code if isinstance(code, int) else 0,
        err_code if isinstance(err_code, int) else 0,
        str(error.get("description", "")),
    )


def _trace(hook: Callable[..., None] | None, *args: Any) -> None:
    if hook is None:
        return
    try:
        handlers.ran(hook(*args))
    except Exception:
        log.exception("a trace hook failed")
