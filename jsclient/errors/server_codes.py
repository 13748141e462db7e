"""One class per JetStream error code that a program may want to tell apart.

Codes without a class stay `ApiError` with `.err_code`; `advice` says what to do and is part of the text.
"""

from __future__ import annotations

import re

from jsclient.errors.jetstream import ApiError

_NUMBER = re.compile(r"(\d+)\s*$")


# --- account and system -------------------------------------------------------------------------------------


class AccountLimitExceeded(ApiError, err_code=(10002, 10026, 10027, 10028, 10047, 10120, 10122, 10113, 10023)):
    """A limit of the account or the server on streams, consumers, memory or storage."""

    advice = "see JetStream.account_info() for limits and use; delete something or ask for a larger limit"


class BadRequest(ApiError, err_code=(10003, 10025, 10038)):
    """The server could not read the request, or its fields exclude each other."""


class JetStreamTemporarilyUnavailable(ApiError, err_code=(10008, 10004, 10009, 10163, 10119, 10195, 10118, 10194)):
    """No leader at the moment, or the asset is offline."""

    advice = "try again in a few seconds; elections last 4 to 8 s"


class JetStreamNotEnabled(ApiError, err_code=10076):
    """The server runs without JetStream."""

    advice = "start nats-server with -js, or connect to a server (or domain) that has JetStream"


class JetStreamNotEnabledForAccount(ApiError, err_code=10039):
    """This user's account has no JetStream."""

    advice = "enable jetstream for the account, or use another user"


class NotClustered(ApiError, err_code=(10006, 10010, 10074)):
    """The operation (or num_replicas > 1) needs a clustered server."""

    advice = "use num_replicas=1 on a single server"


class NoSuitablePeers(ApiError, err_code=(10005, 10011)):
    """No servers fit the placement, tags or replica count."""


class PedanticError(ApiError, err_code=10157):
    """Strict mode: the server would have changed the configuration to make it valid."""


class TooManyRequests(ApiError, err_code=10167):
    """The server is overloaded and dropped the request."""

    advice = "back off and try again"


class ApiLevelRequired(ApiError, err_code=10185):
    """The request needs a newer server (Nats-Required-Api-Level)."""


# --- streams ------------------------------------------------------------------------------------------------


class StreamNotFound(ApiError, err_code=10059):
    """The stream does not exist (in this account and domain)."""

    advice = "check the name, the account and the domain, or create it"


class StreamNameInUse(ApiError, err_code=(10058, 10130)):
    """A stream of that name exists with another configuration."""

    advice = "use update_stream or create_or_update_stream to change it, or get_or_create_stream to take it as it is"


class SubjectOverlap(ApiError, err_code=10065):
    """Another stream of the account already takes some of these subjects."""

    advice = "see stream_name_by_subject; a subject may belong to one stream only"


class InvalidStreamConfig(
    ApiError,
    err_code=(10052, 10049, 10055, 10056, 10061, 10069, 10096, 10107, 10123, 10124, 10128, 10129, 10133, 10226),
):
    """The server refuses the stream's configuration or the change of it; the description has the reason."""


class MirrorOrSourceError(
    InvalidStreamConfig,
    err_code=(
        *(10021, 10022, 10024, 10029, 10030, 10031, 10032, 10033, 10034, 10045, 10046, 10140, 10141, 10142, 10143),
        *(10144, 10145, 10146, 10147, 10150, 10151, 10152, 10154, 10155, 10156, 10213, 10214, 10215, 10216, 10217),
    ),
):
    """The mirror, source or subject transform settings of the stream do not fit together."""


class StreamSealed(ApiError, err_code=10109):
    """The stream is sealed: nothing in it can be added, deleted or purged any more."""


class StreamDeleteFailed(ApiError, err_code=10050):
    """The stream could not be deleted."""


class PurgeFailed(ApiError, err_code=10110):
    """The purge was refused; "stream purge not permitted" means deny_purge is set."""


class MessageNotFound(ApiError, err_code=(10037, 10043)):
    """No such message: wrong sequence or subject, or it was deleted, expired or purged."""


class MessageDeleteFailed(ApiError, err_code=10057):
    """The message could not be deleted: it does not exist, or deny_delete is set."""


# --- publish ------------------------------------------------------------------------------------------------


class WrongLastSequence(ApiError, err_code=(10071, 10164)):
    """The expected last sequence (of the stream or the subject) is not the real one; nothing was stored.

    `last_sequence` is the real one where the server tells it (10164, while somebody else writes, does not), else None.
    """

    advice = "read the newest message and decide again"

    @property
    def last_sequence(self) -> int | None:
        found = _NUMBER.search(self.description)
        return int(found.group(1)) if found else None


class WrongLastMsgId(ApiError, err_code=10070):
    """The expected last message id is not the real one; nothing was stored."""

    @property
    def last_msg_id(self) -> str:
        return self.description.partition(": ")[2]


class StreamMismatch(ApiError, err_code=10060):
    """The subject belongs to another stream than the one expected; nothing was stored."""


class DuplicateInProcess(ApiError, err_code=10158):
    """A message with the same id is being stored at this moment (clustered stream)."""

    advice = "publish it again after a moment: the answer will then be an ack with duplicate=True"


class StoreFailed(ApiError, err_code=10077):
    """The stream did not take the message: with discard "new" it is full."""

    advice = "messages must be removed first, or the limit raised"


class MessageTooLarge(ApiError, err_code=(10054, 10097)):
    """The message is larger than the stream's max_msg_size, or its headers exceed 64 KiB."""


class RollupFailed(ApiError, err_code=10111):
    """The rollup was refused: the stream needs allow_rollup_hdrs, and must not deny purge."""


class MessageTtlRefused(ApiError, err_code=(10165, 10166)):
    """The message's TTL is invalid, or the stream has not set allow_msg_ttl."""


class CounterRefused(ApiError, err_code=(10168, 10169, 10170, 10171, 10172, 10173)):
    """The counter publish was refused, or a counter stream got an ordinary message."""


class ScheduleRefused(ApiError, err_code=(10186, 10187, 10188, 10189, 10190, 10191, 10192, 10203, 10212, 10223)):
    """The message schedule is invalid, or the stream has not set allow_msg_schedules."""


class BatchRefused(
    ApiError,
    err_code=(
        *(10174, 10175, 10177, 10179, 10198, 10199, 10200, 10201, 10210),
        *(10205, 10206, 10207, 10208, 10209, 10211),
    ),
):
    """The server refused a batch publish; for an atomic batch nothing of it is stored."""


class BatchIncomplete(BatchRefused, err_code=10176):
    """The batch was abandoned by the server (a gap, a limit, or 10 s without a message)."""


# --- consumers ----------------------------------------------------------------------------------------------


class ConsumerNotFound(ApiError, err_code=10014):
    """The consumer does not exist on this stream (deleted, or an ephemeral one that was idle for too long)."""


class ConsumerExists(ApiError, err_code=(10148, 10105, 10106)):
    """A consumer of that name exists with another configuration."""

    advice = (
        "use update_consumer or create_or_update_consumer to change it, or get_or_create_consumer to take it as it is"
    )


class ConsumerNameInUse(ConsumerExists, err_code=10013):
    """A consumer of that name exists and does not allow what was asked."""


class ConsumerDoesNotExist(ConsumerNotFound, err_code=10149):
    """`update_consumer` of a consumer that does not exist."""

    advice = "use create_consumer or create_or_update_consumer"


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


class ConsumerFilterError(InvalidConsumerConfig, err_code=(10093, 10131, 10136, 10137, 10138, 10139)):
    """The consumer's filters overlap each other, are empty, or do not fit the stream's subjects."""


class WorkQueueConsumerError(InvalidConsumerConfig, err_code=(10098, 10099, 10100, 10101)):
    """A work-queue stream allows explicit acks, deliver "all" and filters that do not overlap between consumers."""


class PriorityGroupError(InvalidConsumerConfig, err_code=(10159, 10160, 10161, 10162, 10196, 10197)):
    """The priority group or policy is invalid, or does not exist on the consumer."""


class InvalidConsumerReset(ApiError, err_code=10204):
    """The consumer cannot be reset there: its deliver policy does not allow it, or the sequence is too small."""


class StreamIdentityMismatch(ApiError, err_code=10225):
    """The stream is not the one expected any more (deleted and created again)."""


__all__ = [
    "AccountLimitExceeded",
    "BadRequest",
    "JetStreamTemporarilyUnavailable",
    "JetStreamNotEnabled",
    "JetStreamNotEnabledForAccount",
    "NotClustered",
    "NoSuitablePeers",
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
    "MessageDeleteFailed",
    "WrongLastSequence",
    "WrongLastMsgId",
    "StreamMismatch",
    "DuplicateInProcess",
    "StoreFailed",
    "MessageTooLarge",
    "RollupFailed",
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
    # They are public in jsclient.errors, and named so in tracebacks and pickles.
    globals()[_name].__module__ = "jsclient.errors"
