"""Publishing to streams: single messages and their acks, many messages in flight, batches and schedules.

`methods` has the methods of JetStream. `outcome` holds the rules of a publish: its limits, what an answer means, and
the errors that end it. Two drivers follow these rules. `synchronous` continues a publish that got no ack;
`asynchronous`, `in_flight` and `recovery` implement `publish_async`. `questions` and `streams` find out what the
client must know before it sends a message again. `options` and `schedules` build the headers. `atomic_batch` and
`fast_batch` are the batches, with what they share in `batches`.
"""
