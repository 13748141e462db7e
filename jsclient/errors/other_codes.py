"""The codes of nats-server 2.15 that need no class: programs compare `err_code`, and people read these texts."""

from __future__ import annotations

from jsclient.errors.jetstream import ApiError, CodeText
from jsclient.errors.server_codes import BatchRefused, InvalidConsumerConfig, InvalidStreamConfig

NOT_STORED = "Nothing was stored."

#: (class, codes, what they say). The class is the nearest one that programs distinguish.
TABLE: tuple[tuple[type[ApiError], tuple[int, ...], CodeText], ...] = (
    (ApiError, (10005, 10011), CodeText(
        "NoSuitablePeers", "No servers fit the placement, tags or replica count.",
        "Use fewer replicas or another placement, or add servers.",
    )),
    (ApiError, (10035,), CodeText("AccountNotFound", "The server has no such account.")),
    (ApiError, (10036,), CodeText("UnsupportedInCluster", "The operation needs a server that is not clustered.")),
    (ApiError, (10075, 10202, 10224), CodeText(
        "ClusterChangeRefused", "The servers of a cluster, or of a stream, did not change.",
        "Wait until the change under way is done, or add servers.",
    )),
    (ApiError, (10041, 10048, 10051, 10104), CodeText(
        "ServerFailure", "The server failed inside (raft, assignment, storage); the description has the reason.",
        "Look at the log of the server.",
        "It is not known whether the server did it.",
    )),
    (ApiError, (10015, 10042, 10062, 10064, 10072), CodeText(
        "SnapshotFailed", "A snapshot of a stream, or the restore of one, failed.",
        meaning="The snapshot, or the restored stream, is not complete.",
    )),
    (ApiError, (10066, 10067, 10068, 10073), CodeText(
        "TemplateRefused", "Stream templates are a feature of old servers.", "Create the streams one by one.",
    )),
    (ApiError, (10185,), CodeText("ApiLevelRequired", "The request needs a newer server.")),
    (InvalidStreamConfig, (10065,), CodeText(
        "SubjectOverlap", "Another stream of the account already has some of these subjects.",
        "A subject belongs to one stream only: stream_name_by_subject() finds it.",
    )),
    (InvalidStreamConfig, (
        *(10021, 10022, 10024, 10029, 10030, 10031, 10032, 10033, 10034, 10045, 10046, 10140, 10141, 10142, 10143),
        *(10144, 10145, 10146, 10147, 10150, 10151, 10152, 10154, 10155, 10156, 10213, 10214, 10215, 10216, 10217),
        10228,
    ), CodeText("MirrorOrSourceError", "The mirror, source or subject transform settings do not fit together.")),
    (ApiError, (10109,), CodeText(
        "StreamSealed", "The stream is sealed: nothing in it can be added, deleted or purged any more.",
        "Store into another stream: a seal cannot be taken off.",
        "The request changed nothing.",
    )),
    (ApiError, (10050,), CodeText("StreamDeleteFailed", "The stream could not be deleted.")),
    (ApiError, (10117,), CodeText(
        "TooManySubjects", "The stream has more subjects than one answer may name.", "Pass a narrower subjects_filter.",
    )),
    (ApiError, (10180,), CodeText(
        "MinLastSequenceNotReached", "The replica that answers is behind the sequence that the request names.",
        "Try again after a moment.",
    )),
    (ApiError, (10063,), CodeText(
        "StreamSequenceMismatch", "The leader was about to store under another sequence than it had counted.",
        "Publish again after a moment; the cluster settles such a mismatch itself.",
        NOT_STORED,
    )),
    (ApiError, (10111,), CodeText(
        "RollupFailed", "The server refused the rollup.",
        "Set allow_rollup_hdrs on the stream; it must not have deny_purge.",
        NOT_STORED,
    )),
    (ApiError, (10193, 10227), CodeText(
        "PublishHeaderRefused", "A header needs another one, or may be set only by servers.", meaning=NOT_STORED,
    )),
    (ApiError, (10168, 10169, 10170, 10171, 10172, 10173), CodeText(
        "CounterRefused", "The server refused the counter publish, or a counter stream got an ordinary message.",
        "Publish with incr= to streams with allow_msg_counter, and only there.",
        NOT_STORED,
    )),
    (BatchRefused, (10176,), CodeText(
        "BatchIncomplete", "The server gave the batch up: a gap, a limit, or 10 s without a message.",
        "Publish the complete batch again, in less than 10 s between two messages.",
    )),
    (InvalidConsumerConfig, (10159, 10160, 10161, 10162, 10196, 10197), CodeText(
        "PriorityGroupError", "The priority group or policy is invalid, or does not exist on the consumer.",
        "Name one of the consumer's priority_groups, and options that fit its priority_policy.",
    )),
    (ApiError, (10225,), CodeText(
        "StreamIdentityMismatch", "The stream was deleted and created again since the request named it.",
    )),
)  # fmt: skip

for _kind, _codes, _text in TABLE:
    for _code in _codes:
        ApiError.registry[_code] = _kind
        ApiError.texts[_code] = _text

__all__: list[str] = []
