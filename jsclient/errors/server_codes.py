"""One class per JetStream error code that a program may want to distinguish.

All codes of nats-server 2.15 have a class. Codes of newer servers give an `ApiError` with `.err_code`. `advice` tells
the user what to do and is part of the text.
"""

from __future__ import annotations

import re

from jsclient.errors.jetstream import ApiError

_NUMBER = re.compile(r"(\d+)\s*$")


# --- account and system -------------------------------------------------------------------------------------


class AccountLimitExceeded(ApiError, err_code=(10002, 10026, 10027, 10028, 10047, 10053, 10120, 10122, 10113, 10023)):
    """A limit of the account or the server on streams, consumers, memory or storage."""

    meaning = "The server did not do it."
    advice = "See JetStream.account_info() for limits and use; delete something, or ask for a larger limit."


class BadRequest(ApiError, err_code=(10003, 10025, 10038)):
    """The server could not read the request, or its fields exclude each other."""

    meaning = "The server did not do it."
    advice = "Correct the request; the description says what does not fit."


class JetStreamTemporarilyUnavailable(
    ApiError, err_code=(10008, 10004, 10007, 10009, 10163, 10119, 10195, 10118, 10194)
):
    """No leader at the moment, or the asset is offline."""

    meaning = "The server did not do it."
    advice = "Try again in a few seconds; elections last 4 to 8 s."


class JetStreamNotEnabled(ApiError, err_code=10076):
    """The server runs without JetStream."""

    meaning = "The server did not do it."
    advice = "Start nats-server with -js, or connect to a server (or domain) that has JetStream."


class JetStreamNotEnabledForAccount(ApiError, err_code=10039):
    """This user's account has no JetStream."""

    meaning = "The server did not do it."
    advice = "Enable jetstream for the account, or use another user."


class NotClustered(ApiError, err_code=(10006, 10010, 10074)):
    """The operation (or num_replicas > 1) needs a clustered server."""

    meaning = "The server did not do it."
    advice = "Use num_replicas=1 on a single server."


class NoSuitablePeers(ApiError, err_code=(10005, 10011)):
    """No servers fit the placement, tags or replica count."""

    meaning = "The server did not do it."
    advice = "Use fewer replicas or another placement, or add servers."


class AccountNotFound(ApiError, err_code=10035):
    """The server has no such account."""

    meaning = "The server did not do it."
    advice = "Check the name of the account."


class UnsupportedInCluster(ApiError, err_code=10036):
    """The operation works only on a server that is not clustered."""

    meaning = "The server did not do it."
    advice = "Leave the option out, or use a single server."


class PeerNotFound(ApiError, err_code=(10040, 10044)):
    """The cluster, or the group that holds the stream or consumer, has no server of that name."""

    meaning = "The server did not do it."
    advice = "Look at ClusterInfo.replicas, or at the servers of the cluster, for the names."


class ClusterChangeRefused(ApiError, err_code=(10075, 10202, 10224)):
    """The servers of a cluster, or of a stream, did not change: another change is under way, or no server fits."""

    meaning = "The servers are the same as before."
    advice = "Wait until the change under way is done, or add servers."


class ServerFailure(ApiError, err_code=(10041, 10048, 10051, 10104)):
    """The server failed inside (raft, assignment, storage); the description has the reason."""

    meaning = "Whether the server did it is not known."
    advice = "Look at the stream or consumer, and at the log of the server."


class SnapshotFailed(ApiError, err_code=(10015, 10042, 10062, 10064, 10072)):
    """A snapshot of a stream, or the restore of one, failed."""

    meaning = "The snapshot, or the restored stream, is not complete."
    advice = "Repeat it after the cause in the description is gone."


class TemplateRefused(ApiError, err_code=(10066, 10067, 10068, 10073)):
    """Stream templates are a feature of old servers, and this one does not support them."""

    meaning = "The server did not do it."
    advice = "Create the streams one by one."


class PedanticError(ApiError, err_code=10157):
    """Strict mode: the server would have changed the configuration to make it valid."""

    meaning = "The server did not do it."
    advice = "Set the fields as the description names them, or leave pedantic out."


class TooManyRequests(ApiError, err_code=10167):
    """The server is overloaded and dropped the request."""

    meaning = "The server did not do it."
    advice = "Wait a little and try again."


class ApiLevelRequired(ApiError, err_code=10185):
    """The request needs a newer server (Nats-Required-Api-Level)."""

    meaning = "The server did not do it."
    advice = "Use a newer server, or leave the feature out."


# --- streams ------------------------------------------------------------------------------------------------


class StreamNotFound(ApiError, err_code=10059):
    """The stream does not exist (in this account and domain)."""

    meaning = "The server did not do it."
    advice = "Check the name, the account and the domain, or create the stream."


class StreamNameInUse(ApiError, err_code=(10058, 10130)):
    """A stream of that name exists with another configuration."""

    meaning = "The stream that exists is unchanged."
    advice = "Use update_stream or create_or_update_stream to change it, or get_or_create_stream to take it as it is."


class SubjectOverlap(ApiError, err_code=10065):
    """Another stream of the account already has some of these subjects."""

    meaning = "The server did not do it."
    advice = "A subject belongs to one stream only: stream_name_by_subject() tells which has it."


class InvalidStreamConfig(
    ApiError,
    err_code=(10052, 10049, 10055, 10056, 10061, 10069, 10096, 10107, 10123, 10124, 10128, 10129, 10133, 10226),
):
    """The server refuses the stream's configuration or the change of it; the description has the reason."""

    meaning = "The stream is unchanged, or was not made."
    advice = "Correct what the description names."


class MirrorOrSourceError(
    InvalidStreamConfig,
    err_code=(
        10228,
        *(10021, 10022, 10024, 10029, 10030, 10031, 10032, 10033, 10034, 10045, 10046, 10140, 10141, 10142, 10143),
        *(10144, 10145, 10146, 10147, 10150, 10151, 10152, 10154, 10155, 10156, 10213, 10214, 10215, 10216, 10217),
    ),
):
    """The mirror, source or subject transform settings of the stream do not fit together."""

    meaning = "The stream is unchanged, or was not made."
    advice = "Correct the mirror, the sources or the transforms."


class StreamSealed(ApiError, err_code=10109):
    """The stream is sealed: nothing in it can be added, deleted or purged any more."""

    meaning = "The request changed nothing."
    advice = "Store into another stream: a seal cannot be taken off."


class StreamDeleteFailed(ApiError, err_code=10050):
    """The stream could not be deleted."""

    meaning = "The stream may be there still."
    advice = "Look at it, and delete it again."


class PurgeFailed(ApiError, err_code=10110):
    """The server refused the purge; "stream purge not permitted" means deny_purge is set."""

    meaning = "The messages may be there still."
    advice = "Look at the stream; deny_purge refuses every purge."


class MessageNotFound(ApiError, err_code=(10037, 10043)):
    """No such message: wrong sequence or subject, or it was deleted, expired or purged."""

    meaning = "There is nothing to read."
    advice = "It was deleted, expired or purged, or never stored: check sequence and subject."


class TooManySubjects(ApiError, err_code=10117):
    """The stream has more subjects than one answer may name."""

    meaning = "There is no answer."
    advice = "Ask with a narrower subjects_filter."


class MinLastSequenceNotReached(ApiError, err_code=10180):
    """The replica that answers is behind the least sequence that the request names."""

    meaning = "There is no answer."
    advice = "Ask again after a moment."


class MessageDeleteFailed(ApiError, err_code=10057):
    """The message could not be deleted: it is missing, or deny_delete is set."""

    meaning = "A message that was there may be there still."
    advice = "Check the sequence; deny_delete refuses every deletion."


# --- publish ------------------------------------------------------------------------------------------------


class StreamSequenceMismatch(ApiError, err_code=10063):
    """The leader of a clustered stream was about to store under another sequence than it had counted."""

    meaning = "The server stored nothing of this request."
    advice = "Publish again after a moment; the cluster settles such a mismatch itself."


class WrongLastSequence(ApiError, err_code=(10071, 10164)):
    """The expected last sequence (of the stream or the subject) is wrong; nothing was stored.

    `last_sequence` is the real one if the server reports it, else None. Error 10164, during another client's write,
    does not report it.
    """

    meaning = "Nothing was stored."
    advice = "Read the newest message and decide again."

    @property
    def last_sequence(self) -> int | None:
        """The real last sequence; None if the server does not report it."""
        found = _NUMBER.search(self.description)
        return int(found.group(1)) if found else None


class WrongLastMsgId(ApiError, err_code=10070):
    """The expected last message id is wrong; nothing was stored."""

    meaning = "Nothing was stored."
    advice = "Look which message came last, and decide again."

    @property
    def last_msg_id(self) -> str:
        """The real last message id; "" if there is none."""
        return self.description.partition(": ")[2]


class StreamMismatch(ApiError, err_code=10060):
    """The subject belongs to another stream than the one expected; nothing was stored."""

    meaning = "Nothing was stored."
    advice = "Correct the subject, or the stream that is expected."


class DuplicateInProcess(ApiError, err_code=10158):
    """A message with the same id is being stored at this moment (clustered stream)."""

    meaning = "Another copy of the message is being stored."
    advice = "Publish it again after a moment: the answer is then an ack with duplicate=True."


class StoreFailed(ApiError, err_code=10077):
    """The stream did not accept the message because it is full (discard "new")."""

    meaning = "Nothing was stored."
    advice = "Remove messages first, or raise the stream's limit."


class MessageTooLarge(ApiError, err_code=(10054, 10097)):
    """The message is larger than the stream's max_msg_size, or its headers exceed 64 KiB."""

    meaning = "Nothing was stored."
    advice = "Split it, use an object store, or raise max_msg_size; headers have at most 64 KiB."


class RollupFailed(ApiError, err_code=10111):
    """The server refused the rollup. The stream needs allow_rollup_hdrs, and must not deny purge."""

    meaning = "Nothing was stored."
    advice = "Set allow_rollup_hdrs on the stream; it must not have deny_purge."


class PublishHeaderRefused(ApiError, err_code=(10193, 10227)):
    """A header of the message needs another one, or may be set only by servers."""

    meaning = "Nothing was stored."
    advice = "Remove the header that the description names, or add the one that is missing."


class MessageTtlRefused(ApiError, err_code=(10165, 10166)):
    """The message's TTL is invalid, or the stream has not set allow_msg_ttl."""

    meaning = "Nothing was stored."
    advice = "Set allow_msg_ttl on the stream, or correct the time to live."


class CounterRefused(ApiError, err_code=(10168, 10169, 10170, 10171, 10172, 10173)):
    """The server refused the counter publish, or a counter stream got an ordinary message."""

    meaning = "Nothing was stored."
    advice = "Publish with incr= to streams with allow_msg_counter, and only there."


class ScheduleRefused(ApiError, err_code=(10186, 10187, 10188, 10189, 10190, 10191, 10192, 10203, 10212, 10223)):
    """The message schedule is invalid, or the stream has not set allow_msg_schedules."""

    meaning = "Nothing was stored."
    advice = "Set allow_msg_schedules on the stream, or correct the schedule."


class BatchRefused(
    ApiError,
    err_code=(
        *(10174, 10175, 10177, 10179, 10198, 10199, 10200, 10201, 10210),
        *(10205, 10206, 10207, 10208, 10209, 10211),
    ),
):
    """The server refused a batch publish; for an atomic batch nothing of it is stored."""

    meaning = "Nothing of an atomic batch is stored."
    advice = "Correct what the description names, and publish the batch again."


class BatchIncomplete(BatchRefused, err_code=10176):
    """The batch was abandoned by the server (a gap, a limit, or 10 s without a message)."""

    meaning = "Nothing of an atomic batch is stored."
    advice = "Publish the whole batch again, in less than 10 s between two messages."


# --- consumers ----------------------------------------------------------------------------------------------


class ConsumerNotFound(ApiError, err_code=10014):
    """The consumer does not exist on this stream (deleted, or an ephemeral one that was idle for too long)."""

    meaning = "The server did not do it."
    advice = "Check the name, or create the consumer; an ephemeral one goes after its inactive_threshold."


class ConsumerExists(ApiError, err_code=(10148, 10105, 10106)):
    """A consumer of that name exists with another configuration."""

    meaning = "The consumer that exists is unchanged."
    advice = (
        "Use update_consumer or create_or_update_consumer to change it, or get_or_create_consumer to take it as it is."
    )


class ConsumerNameInUse(ConsumerExists, err_code=10013):
    """A consumer of that name exists and does not allow the request."""


class ConsumerDoesNotExist(ConsumerNotFound, err_code=10149):
    """`update_consumer` of a consumer that does not exist."""

    meaning = "The server did not do it."
    advice = "Use create_consumer or create_or_update_consumer."


class InvalidConsumerConfig(
    ApiError,
    err_code=(
        *(10012, 10016, 10017, 10018, 10019, 10020, 10078, 10079, 10080, 10081, 10082, 10083, 10084, 10085, 10086),
        *(10087, 10088, 10089, 10090, 10091, 10092, 10094, 10095, 10102, 10103, 10108, 10112, 10114, 10115, 10116),
        *(10121, 10125, 10126, 10127, 10132, 10134, 10135, 10153, 10178, 10181, 10182, 10183, 10184),
        *(10218, 10219, 10220, 10221, 10222),
    ),
):
    """The server refuses the consumer's configuration or the change of it; the description has the reason."""

    meaning = "The consumer is unchanged, or was not made."
    advice = "Correct what the description names."


class ConsumerFilterError(InvalidConsumerConfig, err_code=(10093, 10131, 10136, 10137, 10138, 10139)):
    """The consumer's filters overlap each other, are empty, or do not fit the stream's subjects."""

    meaning = "The consumer is unchanged, or was not made."
    advice = "Correct filter_subjects: they must fit the stream, and not overlap."


class WorkQueueConsumerError(InvalidConsumerConfig, err_code=(10098, 10099, 10100, 10101)):
    """A work-queue stream allows explicit acks, deliver "all" and filters that do not overlap between consumers."""

    meaning = "The consumer is unchanged, or was not made."
    advice = 'Use explicit acks, deliver_policy "all" and filters that no other consumer has.'


class PriorityGroupError(InvalidConsumerConfig, err_code=(10159, 10160, 10161, 10162, 10196, 10197)):
    """The priority group or policy is invalid, or does not exist on the consumer."""

    meaning = "The server did not do it."
    advice = "Name one of the consumer's priority_groups, and options that fit its priority_policy."


class InvalidConsumerReset(ApiError, err_code=10204):
    """The consumer cannot be reset there, because its deliver policy does not allow it or the sequence is too small."""

    meaning = "The consumer is unchanged."
    advice = "Choose a sequence that its deliver policy allows."


class StreamIdentityMismatch(ApiError, err_code=10225):
    """The stream is not the one expected any more (deleted and created again)."""

    meaning = "The server did not do it."
    advice = "Look at the new stream, and decide again."


__all__ = [
    "AccountLimitExceeded",
    "BadRequest",
    "JetStreamTemporarilyUnavailable",
    "JetStreamNotEnabled",
    "JetStreamNotEnabledForAccount",
    "NotClustered",
    "NoSuitablePeers",
    "AccountNotFound",
    "UnsupportedInCluster",
    "PeerNotFound",
    "ClusterChangeRefused",
    "ServerFailure",
    "SnapshotFailed",
    "TemplateRefused",
    "PedanticError",
    "TooManyRequests",
    "ApiLevelRequired",
    "StreamNotFound",
    "StreamNameInUse",
    "SubjectOverlap",
    "InvalidStreamConfig",
    "MirrorOrSourceError",
    "StreamSealed",
    "StreamDeleteFailed",
    "PurgeFailed",
    "MessageNotFound",
    "TooManySubjects",
    "MinLastSequenceNotReached",
    "MessageDeleteFailed",
    "StreamSequenceMismatch",
    "WrongLastSequence",
    "WrongLastMsgId",
    "StreamMismatch",
    "DuplicateInProcess",
    "StoreFailed",
    "MessageTooLarge",
    "RollupFailed",
    "PublishHeaderRefused",
    "MessageTtlRefused",
    "CounterRefused",
    "ScheduleRefused",
    "BatchRefused",
    "BatchIncomplete",
    "ConsumerNotFound",
    "ConsumerExists",
    "ConsumerNameInUse",
    "ConsumerDoesNotExist",
    "InvalidConsumerConfig",
    "ConsumerFilterError",
    "WorkQueueConsumerError",
    "PriorityGroupError",
    "InvalidConsumerReset",
    "StreamIdentityMismatch",
]

for _name in __all__:
    # They are public in jsclient.errors, and tracebacks and pickles use that name.
    globals()[_name].__module__ = "jsclient.errors"
