"""Which messages a batch reads, and how they are cut into partitions, so that a replay reads the same.

`selection` finds the streams, `survey` counts what there is to read, `planner` says how far a batch goes and how many
partitions it has, `offsets` is the text by which an engine reads it again. Machinery of `jsclient.spark` that needs
nothing of Spark: see the README.md of this folder.
"""
