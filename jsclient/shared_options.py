"""Options that many calls have and that mean the same in all of them: `help` of a class tells them once."""

from __future__ import annotations

from typing import Any, TypeVar

from protocol.described import described_like

T = TypeVar("T")

SHARED = {
    "timeout": (
        "Seconds for the whole call. None waits as long as it takes, 0 takes only what is there, a negative one\n"
        "raises ConfigError. Left out: the default of that kind of call (5 s for what a server answers). When it is\n"
        "over the call raises a TimeoutError of ours, or returns what there is if it says so."
    ),
    "cancel": "A Cancel: its `cancel()`, called elsewhere, ends the wait, and the call raises Cancelled. Default None.",
    "payload": (
        "The body: bytes, bytearray, memoryview or text (UTF-8). Default: empty. Larger than the server takes raises\n"
        "PayloadTooLarge, and nothing is sent."
    ),
    "headers": (
        "Headers, or a mapping of names to one text or several. Default None: no headers. What no header may contain\n"
        "raises InvalidHeader, and nothing is sent."
    ),
    "msg_id": (
        "The message id: within its duplicate window (2 minutes by default) a stream does not store a second message\n"
        "with the same id. Default None: no id."
    ),
    "config": "The configuration as one object. Default None: its fields are given as keywords.",
    "pedantic": "True: the server refuses what it would adjust in silence (server 2.11). Default False.",
    "drop_unknown": (
        "True: settings of a newer server that this client does not know are left out of what is sent. Default False:\n"
        "they go back as they came."
    ),
    "direct": (
        "True reads by direct get, which any replica answers, False from the leader. Default None: as the stream's\n"
        "`allow_direct` says."
    ),
    "pending_messages": "Messages that may wait for the handler; more are dropped, and SlowConsumer is told.",
    "pending_bytes": "Bytes that may wait for the handler; more are dropped, and SlowConsumer is told.",
    "on_bad": (
        'What becomes of a message that cannot be decoded. Default "raise": reading its `value` raises\n'
        "DecodeFailed. See `Consumer.typed` for the others."
    ),
    "direction": '"up" (from the client to the server), "down", or "both".',
    "reset": "True: the cut is an RST, which loses what was under way. Default False: a FIN.",
    "binary": "The nats-server to start. Default None: the one that `find_nats_server` finds.",
    "progress": "Called now and then with (done, total); total is None where it cannot be known. Default None.",
}


def with_shared_options(thing: T) -> T:
    """Decorator of a class or a function: `help` also tells what the options mean that all calls share."""
    if isinstance(thing, type):
        return described_like(shared=SHARED)(thing)
    function: Any = getattr(thing, "__wrapped__", thing)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = thing.__doc__ or ""
    told = [f"`{name}`: {SHARED[name]}" for name in names if name in SHARED and f"`{name}`" not in own]
    if told:
        thing.__doc__ = "\n\n    ".join([own.rstrip(), *(text.replace("\n", "\n    ") for text in told)]) + "\n"
    return thing
