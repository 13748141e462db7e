"""The engine of a connection with all its parts: the layers of the library see only `jsclient._engine.Engine`."""

from __future__ import annotations

from typing import cast

import jsclient
from jsclient._engine.engine import LiveEngine
from jsclient.connection import engine_of


def live_engine(nc: jsclient.Connection) -> LiveEngine:
    return cast(LiveEngine, engine_of(nc))
