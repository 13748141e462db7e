"""Publishing to streams: single messages and their acks, many messages in flight, batches and schedules.

`methods` has the methods of JetStream. `attempts` makes one attempt and reads its ack; `delivery` continues when a
synchronous publish got no ack. `asynchronous`, `window` and `recovery` implement `publish_async`. `verdict` decides
what an answer means, without side effects. `questions` and `streams` find out what the client must know before it
sends a message again. `options` and `schedules` build the headers. `atomic_batch` and `fast_batch` are the batches.
"""
