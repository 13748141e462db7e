"""The internals of a Connection: connecting, reading, sending and waiting. Not part of the public API.

The layers above (JetStream, buckets, services, workers, Spark) use `Engine` and the other names in `__all__`. They get
an engine from `jsclient.connection.engine_of`. import-linter checks that they import nothing else from here. In a
forked child every use of an engine raises ForkedConnection.
"""

from jsclient._connection.drainable import SLICE, Drainable, Drainables, wait_for
from jsclient._connection.engine import Engine
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.sender import LargeLinkFrame, LinkFrame
from jsclient._connection.sinks import Inbox, MessageSink, ReplySink

__all__ = [
    "SLICE",
    "Engine",
    "Inbox",
    "Mailbox",
    "MessageSink",
    "ReplySink",
    "Drainable",
    "Drainables",
    "LinkFrame",
    "LargeLinkFrame",
    "wait_for",
]
