"""The partitions of a numbered batch, each row stored once: the work of a batch engine's task, and of its driver.

An engine cuts batch N into partitions. After a crash it writes some of them again, maybe cut differently. Each task
calls `partition.write_partition`. At the end the driver calls `conclusion.conclude` with the results of the tasks.
Machinery of `jsclient.spark` that needs nothing of Spark: see the README.md of this folder.
"""
