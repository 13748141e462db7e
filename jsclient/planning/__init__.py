"""The choice of the messages that a batch reads, and their partitions. A replay reads the same messages.

`selection` finds the streams, and `survey` counts the messages to read. `planner` decides how far a batch goes and how
many partitions it has. `offsets` is the text by which an engine reads the batch again. Machinery of `jsclient.spark`
that needs nothing of Spark: see the README.md of this folder.
"""
