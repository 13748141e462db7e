"""Options that this data source does not have (any more), and what to write instead. All names are in lower case."""

from __future__ import annotations

from typing import Final

_PULLS = "leave it out: a task asks for 5,000 messages or 4 MiB at a time, with two requests under way"
_ARROW = "leave it out: an Arrow batch ends at 10,000 rows or 8 MiB"
_TRIGGER = "give the query a longer trigger, for example .trigger(processingTime='15 minutes')"

REMOVED: Final = {
    "whenunsure": "write deliverySemantics=exactly-once to fail, or auto to store such rows at least once",
    "messageid": "ids come from the column msg_id if there is one; deliverySemantics=at-least-once sends none",
    "maxinflight": "leave it out: a task has 2,000 rows or 16 MiB without an ack",
    "publishretries": "leave it out: a row that no stream takes is tried again three times",
    "acktimeout": "leave it out: a row without an ack is sent again after 5 s, until 'reconnectTimeout'",
    "mindedupwindow": "leave it out: the driver logs a warning about a duplicate window below 2 minutes",
    "nullvalue": "fill nulls in the query with coalesce(value, X'')",
    "startingtimestampstrategy": "leave it out: if no message is that recent, a query begins at the end",
    "minoffsetspertrigger": _TRIGGER,
    "maxtriggerdelay": _TRIGGER,
    "bytesperpartition": "write 'recordsPerPartition'; a partition has about 128 MiB at most",
    "maxpartitions": "write 'recordsPerPartition', which makes partitions larger and fewer",
    "filterpushdown": "name the range with 'subjects', 'startingOffsets', 'startingTimestamp' and their ends",
    "newstreams": "filter by 'timestamp': a stream that appears later is read from its first message",
    "batchrows": _ARROW,
    "batchbytes": _ARROW,
    "pullrecords": _PULLS,
    "pullbytes": _PULLS,
    "prefetch": _PULLS,
    "consumerinactivethreshold": "leave it out: consumers of killed tasks vanish after 60 s",
    "nats.*": "write 'inboxPrefix', or let 'credentialsProvider' return such a field of ConnectOptions",
    "auditbucket": "each batch leaves a record on the logger jsclient.spark.audit",
    "progressbucket": "read query.lastProgress with lag(), or add a JetStreamListener",
    "progresskey": "read query.lastProgress with lag(), or add a JetStreamListener",
    "ledgerbucket": "write 'journal'",
    "publishmode=atomic": "write deliverySemantics=exactly-once, which stores each row once by the journal",
    "atomicmarkersubject": "write deliverySemantics=exactly-once, which stores each row once by the journal",
}
"""Options of earlier versions, and values of an option as `name=value`."""

KAFKA: Final = {
    "kafka.bootstrap.servers": "write 'servers'",
    "subscribe": "write 'stream', which takes a list, too",
    "subscribepattern": "write 'stream', where * stands for any characters",
    "assign": "a stream has no partitions to assign; use 'startingOffsets' and 'endingOffsets'",
    "topic": "write 'subject'",
    "key": "the subject takes the place of the key",
    "partition": "a stream has no partitions; the subject takes their place",
    "includeheaders": "the column 'headers' is always there; leave it out with .schema()",
    "groupidprefix": "there are no consumer groups to name",
    "maxrecordsperpartition": "write 'recordsPerPartition'",
    "startingoffsetsbytimestamp": "write 'startingTimestamp', one time for all streams",
    "endingoffsetsbytimestamp": "write 'endingTimestamp', one time for all streams",
    "startingoffsetsbytimestampstrategy": "leave it out: if no message is that recent, a query begins at the end",
    "kafkaconsumer.polltimeoutms": "write 'reconnectTimeout' or 'taskTimeout'",
    "fetchoffset.numretries": "write 'reconnectTimeout'; requests are repeated until then",
    "fetchoffset.retryintervalms": "write 'reconnectTimeout'; requests are repeated until then",
}
"""Options of Spark's Kafka source and sink, in lower case, and the answer to those who write them here."""
