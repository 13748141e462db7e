"""Options that this data source does not have (any more), and what to write instead. All names are in lower case."""

from __future__ import annotations

from typing import Final

REMOVED: Final = {
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
    "startingoffsetsbytimestampstrategy": "write 'startingTimestampStrategy'",
    "kafkaconsumer.polltimeoutms": "write 'reconnectTimeout' or 'taskTimeout'",
    "fetchoffset.numretries": "write 'reconnectTimeout'; requests are repeated until then",
    "fetchoffset.retryintervalms": "write 'reconnectTimeout'; requests are repeated until then",
}
"""Options of Spark's Kafka source and sink, in lower case, and the answer to those who write them here."""
