"""The part of a JetStream object that publishing uses."""

from __future__ import annotations

from typing import Generic

from jsclient.codecs import Codec
from jsclient.connection import Connection
from jsclient.jetstream.api.capabilities import Capabilities
from jsclient.jetstream.api.requests import Api
from jsclient.jetstream.publishing.options import HeaderCheck, V
from jsclient.jetstream.publishing.streams import Streams


class PublishingBase(Generic[V]):
    """A JetStream object as its batches and publishers know it. `V` is what its codec takes next to bytes and text."""

    nc: Connection
    api: Api
    """For layers."""
    capabilities: Capabilities
    """For layers."""
    codec: Codec | None
    publish_timeout: float | None
    header_check: HeaderCheck
    """For layers."""
    publish_streams: Streams
    """For layers."""
