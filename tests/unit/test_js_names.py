"""The table "nats.go -> jsclient" names only what exists, and everything of nats.go's interfaces is in it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import jsclient.jetstream
from jsclient import errors
from jsclient.jetstream.publishing.options import PublishOptions

README = Path(jsclient.jetstream.__file__).with_name("README.md").read_text(encoding="utf-8")
METHODS, ERRORS = README.split("## nats.go -> jsclient")[1].split("## Errors of nats.go")

GO_METHODS = re.findall(
    r"\w+",
    """
    AccountInfo Publish PublishMsg PublishAsync PublishMsgAsync PublishAsyncPending PublishAsyncComplete
    CleanupPublisher CreateStream UpdateStream CreateOrUpdateStream Stream StreamNameBySubject DeleteStream
    ListStreams StreamNames
    CreateOrUpdateConsumer CreateConsumer UpdateConsumer OrderedConsumer Consumer DeleteConsumer PauseConsumer
    ResumeConsumer CreateOrUpdatePushConsumer CreatePushConsumer UpdatePushConsumer PushConsumer UnpinConsumer
    ResetConsumer Info CachedInfo Purge GetMsg GetLastMsgForSubject DeleteMsg SecureDeleteMsg ListConsumers
    ConsumerNames Fetch FetchBytes FetchNoWait Next Messages Consume Stop Drain Closed Metadata Data Headers Subject
    Reply Ack
    DoubleAck Nak NakWithDelay InProgress Term TermWithReason Ok Err Msg
""",
)

GO_ERRORS = re.findall(
    r"\w+",
    """
    InvalidJSAck MsgAlreadyAckd NoStreamResponse NotJSMessage MsgNotBound MsgNoReply MsgDeleteUnsuccessful
    HandlerRequired EndOfData NoHeartbeat TooManyStalledMsgs InvalidOption MsgIteratorClosed AsyncPublishReplySubjectSet
    ConsumerHasActiveSubscription ConsumerNameAlreadyInUse ConsumerDeleted ConsumerLeadershipChanged MaxBytesExceeded
    NoMessages OrderedConsumerReset OrderConsumerUsedAsFetch OrderConsumerUsedAsConsume
    OrderedConsumerConcurrentRequests
    OrderedConsumerNotCreated StreamNameRequired InvalidStreamName InvalidConsumerName InvalidSubject
""",
)


def rows(table: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| (`.+?) \| (.+?) \|$", table, re.MULTILINE)


def test_every_method_named_exists() -> None:
    found = re.findall(r"`([A-Z]\w+)\.(\w+)`", METHODS.split("| here |")[1])
    ours = [(cls, name) for cls, name in found if hasattr(jsclient.jetstream, cls) and name[0].islower()]
    assert len(ours) > 60
    missing = [f"{cls}.{name}" for cls, name in ours if not hasattr(getattr(jsclient.jetstream, cls), name)]
    assert missing == []


INSTANCES = {"js": "JetStream", "stream": "Stream", "batch": "Batch"}


def test_every_attribute_named_exists() -> None:
    """`batch.error`, `js.nc` and the like: set in `__init__` where the class itself has none of that name."""
    found = re.findall(r"`(js|stream|batch)\.(\w+)", " ".join(ours for _, ours in rows(METHODS)))
    assert len(found) > 3
    for name, attribute in found:
        cls = getattr(jsclient.jetstream, INSTANCES[name])
        assert hasattr(cls, attribute) or f"self.{attribute} = " in inspect.getsource(cls.__init__), (name, attribute)


def test_every_argument_named_exists() -> None:
    publish = {*inspect.signature(jsclient.jetstream.JetStream.publish).parameters, *PublishOptions.__annotations__}
    for theirs, ours in rows(METHODS):
        for cls, arguments in re.findall(r"`(JetStream)\(nc, (.*?)\)`", ours):
            known = set(inspect.signature(getattr(jsclient.jetstream, cls)).parameters)
            assert set(re.findall(r"(\w+)=", arguments)) <= known
        if "WithMsgID" in theirs:
            assert set(re.findall(r"`(\w+)=`", ours)) <= publish
        for cls, name, argument in re.findall(r"`(JetStreamMsg)\.(\w+)` \(`(\w+)=?`\)", ours):
            assert argument in inspect.signature(getattr(getattr(jsclient.jetstream, cls), name)).parameters


def test_every_error_named_exists() -> None:
    named = {name for _, ours in rows(ERRORS) for name in re.findall(r"`([A-Z]\w+)`", ours)} - {"OrderedRead"}
    assert len(named) > 35
    assert [name for name in named if not hasattr(errors, name)] == []


def test_everything_of_nats_go_is_in_the_tables() -> None:
    methods = " ".join(theirs for theirs, _ in rows(METHODS))
    assert [name for name in GO_METHODS if not re.search(rf"\b{name}\b", methods)] == []
    theirs = " ".join(theirs for theirs, _ in rows(ERRORS))
    assert [name for name in GO_ERRORS if f"Err{name}" not in theirs] == []


def test_every_error_is_documented_pickles_and_has_advice_where_it_names_a_code() -> None:
    import pickle

    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [cls for cls in classes if issubclass(cls, errors.JsClientError)]
    assert all(cls.__doc__ for cls in ours)
    for cls in ours:
        copy = pickle.loads(pickle.dumps(cls("text")))
        assert (type(copy), copy.args) == (cls, cls("text").args)
    for code, cls in errors.ApiError.registry.items():
        error = errors.api_error(400, code, "text")
        assert type(error) is cls
        assert pickle.loads(pickle.dumps(error)).err_code == code
        assert f"err_code {code}" in str(error)
