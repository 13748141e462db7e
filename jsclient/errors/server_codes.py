"""One class per JetStream error code that a program may want to distinguish.

The other codes of nats-server 2.15 are in `other_codes.py`. Codes of newer servers give an `ApiError` with `err_code`.
"""

from __future__ import annotations

import re

from jsclient.errors.jetstream import ApiError

_NUMBER = re.compile(r"(\d+)\s*$")


# --- account and system -------------------------------------------------------------------------------------


class AccountLimitExceeded(ApiError, err_code=(10002, 10026, 10027, 10028, 10047, 10053, 10120, 10122, 10113, 10023)):
    """A limit of the account or the server on streams, consumers, memory or storage."""

    advice = "See JetStream.account_info() for limits and use; delete something, or ask for a larger limit."


class BadRequest(ApiError, err_code=(10003, 10025, 10038)):
    """The server could not read the request, or its fields exclude each other."""


class JetStreamTemporarilyUnavailable(
    ApiError, err_code=(10008, 10004, 10007, 10009, 10163, 10119, 10195, 10118, 10194)
):
    """No leader at the moment, or the asset is offline."""

    advice = "Try again in a few seconds; elections last 4 to 8 s."


class JetStreamNotEnabled(ApiError, err_code=10076):
    """The server runs without JetStream."""

    advice = "Start nats-server with -js, or connect to a server (or domain) that has JetStream."


class JetStreamNotEnabledForAccount(ApiError, err_code=10039):
    """This user's account has no JetStream."""

    advice = "Enable jetstream for the account, or use another user."


class NotClustered(ApiError, err_code=(10006, 10010, 10074)):
    """The operation (or num_replicas > 1) needs a clustered server."""

    advice = "Use num_replicas=1 on a single server."


class PeerNotFound(ApiError, err_code=(10040, 10044)):
    """The cluster, or the group that holds the stream or consumer, has no server of that name."""

    advice = "Look at ClusterInfo.replicas, or at the servers of the cluster, for the names."


class PedanticError(ApiError, err_code=10157):
    """Strict mode: the server would have changed the configuration to make it valid."""

    advice = "Set the fields as the description names them, or leave pedantic out."


class TooManyRequests(ApiError, err_code=10167):
    """The server is overloaded and dropped the request."""


# --- streams ------------------------------------------------------------------------------------------------


class StreamNotFound(ApiError, err_code=10059):
    """The stream does not exist (in this account and domain)."""

    advice = "Check the name, the account and the domain, or create the stream."


class StreamNameInUse(ApiError, err_code=(10058, 10130)):
    """A stream of that name exists with another configuration."""

    meaning = "The stream that exists is unchanged."
    advice = "Use update_stream or create_or_update_stream to change it, or get_or_create_stream to take it as it is."


class InvalidStreamConfig(
    ApiError,
    err_code=(10052, 10049, 10055, 10056, 10061, 10069, 10096, 10107, 10123, 10124, 10128, 10129, 10133, 10226),
):
    """The server refuses the stream's configuration or the change of it; the description has the reason."""

    meaning = "The stream is unchanged, or was not made."


class PurgeFailed(ApiError, err_code=10110):
    """The server refused the purge; "stream purge not permitted" means deny_purge is set."""

    meaning = "The messages may be there still."
    advice = "Look at the stream; deny_purge refuses every purge."


class MessageNotFound(ApiError, err_code=(10037, 10043)):
    """No such message: wrong sequence or subject, or it was deleted, expired or purged."""

    advice = "It was deleted, expired or purged, or never stored: check sequence and subject."


class MessageDeleteFailed(ApiError, err_code=10057):
    """The message could not be deleted: it is missing, or deny_delete is set."""

    meaning = "A message that was there may be there still."
    advice = "Check the sequence; deny_delete refuses every deletion."


# --- publish ------------------------------------------------------------------------------------------------


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


class MessageTtlRefused(ApiError, err_code=(10165, 10166)):
    """The message's TTL is invalid, or the stream has not set allow_msg_ttl."""

    meaning = "Nothing was stored."
    advice = "Set allow_msg_ttl on the stream, or correct the time to live."


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


# --- consumers ----------------------------------------------------------------------------------------------


class ConsumerNotFound(ApiError, err_code=10014):
    """The consumer does not exist on this stream (deleted, or an ephemeral one that was idle for too long)."""

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


class ConsumerFilterError(InvalidConsumerConfig, err_code=(10093, 10131, 10136, 10137, 10138, 10139)):
    """The consumer's filters overlap each other, are empty, or do not fit the stream's subjects."""

    meaning = "The consumer is unchanged, or was not made."
    advice = "Correct filter_subjects: they must fit the stream, and not overlap."


class WorkQueueConsumerError(InvalidConsumerConfig, err_code=(10098, 10099, 10100, 10101)):
    """A work-queue stream allows explicit acks, deliver "all" and filters that do not overlap between consumers."""

    meaning = "The consumer is unchanged, or was not made."
    advice = 'Use explicit acks, deliver_policy "all" and filters that no other consumer has.'


class InvalidConsumerReset(ApiError, err_code=10204):
    """The consumer cannot be reset there, because its deliver policy does not allow it or the sequence is too small."""

    meaning = "The consumer is unchanged."
    advice = "Choose a sequence that its deliver policy allows."


__all__ = [
    "AccountLimitExceeded",
    "BadRequest",
    "JetStreamTemporarilyUnavailable",
    "JetStreamNotEnabled",
    "JetStreamNotEnabledForAccount",
    "NotClustered",
    "PeerNotFound",
    "PedanticError",
    "TooManyRequests",
    "StreamNotFound",
    "StreamNameInUse",
    "InvalidStreamConfig",
    "PurgeFailed",
    "MessageNotFound",
    "MessageDeleteFailed",
    "WrongLastSequence",
    "WrongLastMsgId",
    "StreamMismatch",
    "DuplicateInProcess",
    "StoreFailed",
    "MessageTooLarge",
    "MessageTtlRefused",
    "ScheduleRefused",
    "BatchRefused",
    "ConsumerNotFound",
    "ConsumerExists",
    "ConsumerNameInUse",
    "ConsumerDoesNotExist",
    "InvalidConsumerConfig",
    "ConsumerFilterError",
    "WorkQueueConsumerError",
    "InvalidConsumerReset",
]

for _name in __all__:
    # They are public in jsclient.errors, and tracebacks and pickles use that name.
    globals()[_name].__module__ = "jsclient.errors"
