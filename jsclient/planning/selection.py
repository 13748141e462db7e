"""The streams that a query reads: the names and patterns of the option `stream`, and the existing streams."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.settings import Refused
from jsclient.jetstream.api import model_base
from jsclient.jetstream.api.models import StreamInfo

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.planning.settings import PlanSettings

log: logging.Logger = logging.getLogger("jsclient.planning")

BUCKETS: Final = ("KV_", "OBJ_")  # streams of buckets: a pattern means them only if it begins so itself


class Selection:
    """The streams that the option `stream` means. Looking them up costs one request per page of 256, or per name."""

    def __init__(self, options: PlanSettings) -> None:
        self._options = options
        self.names: tuple[str, ...] = options.stream_names
        self._patterns = [(word, _compiled(word)) for word in options.stream_patterns]

    @property
    def single(self) -> bool:
        """True if the option means one stream, by its name."""
        return len(self.names) == 1 and not self._patterns

    @property
    def open(self) -> bool:
        """True if streams that appear later can belong to it."""
        return bool(self._patterns)

    def means(self, name: str) -> bool:
        return name in self.names or any(
            pattern.fullmatch(name) and (not name.startswith(BUCKETS) or word.startswith(BUCKETS))
            for word, pattern in self._patterns
        )

    def look(self, nc: Connection, known: Iterable[str] = (), complete: bool = False) -> dict[str, StreamInfo | None]:
        """The existing streams by name; None for a name of the option, or a `known` stream, that does not exist.

        In a cluster a leader may not answer in time. The client then asks one by one for unanswered streams: the named
        and `known` ones, or all of them if the answer has to be complete. It finds the others the next time.
        """
        found: dict[str, StreamInfo | None] = {}
        wanted = {*self.names, *known}
        if self._patterns:
            listed, absent = self._listed(nc)
            found.update({name: info for name, info in listed.items() if name in wanted or self.means(name)})
            if complete:
                wanted |= {name for name in absent if self.means(name)}
        for name in wanted - found.keys():
            found[name] = self._info(nc, name)
        return dict(sorted(found.items()))

    def _listed(self, nc: Connection) -> tuple[dict[str, StreamInfo], list[str]]:
        """All streams of the account by name, and the names of streams without information."""
        access = StreamAccess(nc, self._options)

        def ask() -> tuple[dict[str, StreamInfo], list[str]]:
            infos: dict[str, StreamInfo] = {}
            try:
                for plain in access.api.items("STREAM.LIST", "streams", timeout=access.patience()):
                    info = model_base.from_wire(plain, StreamInfo)
                    infos[info.config.name] = info
            except errors.ListingIncomplete as error:
                if not error.missing:
                    raise errors.RequestTimeout(str(error)) from error  # it changed meanwhile, so ask again
                return infos, list(error.missing)
            return infos, []

        return access.retrying("STREAM.LIST", ask)

    def _info(self, nc: Connection, name: str) -> StreamInfo | None:
        try:
            return StreamAccess(nc, self._options, name).info()
        except Refused as error:
            if error.token == "JETSTREAM_STREAM_NOT_FOUND":
                log.info("%s", error.message)
                return None
            raise


def _compiled(word: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, word.split("*"))))


def no_stream(options: PlanSettings, name: str) -> Refused:
    return options.refuse(
        "JETSTREAM_STREAM_NOT_FOUND",
        f"there is no stream {name!r}" + (" that matches" if "*" in name else "") + "; check its name and domain",
    )
