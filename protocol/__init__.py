"""The NATS wire format: bytes <-> events. No socket, thread or clock anywhere in this package."""

from .acks import Acks
from .errors import (
    InvalidArgument,
    InvalidHeader,
    InvalidInfo,
    LimitExceeded,
    LineTooLong,
    MalformedHeaders,
    NamingError,
    ProtocolError,
    SubjectError,
)
from .events import Err, Event, Info, Msg, Ok, Ping, Pong
from .frames import (
    PING,
    PONG,
    Frame,
    LargeFrame,
    encode_connect,
    hpub,
    pub,
    pub_start,
    reply_of,
    sub,
    unsub,
)
from .headers import Headers, Status
from .info import ConnectInfo, ServerInfo, parse_version
from .parser import Parser
from .subjects import check_filter, check_name, check_queue, check_subject, has_wildcard, matches

__all__ = [
    "PING",
    "PONG",
    "Acks",
    "ConnectInfo",
    "Err",
    "Event",
    "Frame",
    "Headers",
    "Info",
    "InvalidArgument",
    "InvalidHeader",
    "InvalidInfo",
    "LargeFrame",
    "LimitExceeded",
    "LineTooLong",
    "MalformedHeaders",
    "Msg",
    "NamingError",
    "Ok",
    "Parser",
    "Ping",
    "Pong",
    "ProtocolError",
    "ServerInfo",
    "Status",
    "SubjectError",
    "check_filter",
    "check_name",
    "check_queue",
    "check_subject",
    "encode_connect",
    "has_wildcard",
    "hpub",
    "matches",
    "parse_version",
    "pub",
    "pub_start",
    "reply_of",
    "sub",
    "unsub",
]
