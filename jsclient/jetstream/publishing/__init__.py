"""Publishing to streams: one message and its ack, many at once, batches, schedules.

Where to look: `methods` (what JetStream offers), `attempts` (one attempt and its ack), `delivery` (what follows when a
synchronous publish got no ack), `asynchronous`, `window` and `recovery` (`publish_async`), `verdict` (what an answer
means; pure), `questions` and `streams` (what must be asked before a message is sent again), `options` and `schedules`
(headers), `atomic_batch` and `fast_batch`.
"""
