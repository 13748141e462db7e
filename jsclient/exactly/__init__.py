"""The partitions of a numbered batch, each row stored once: what a task of a batch engine does, and its driver.

An engine cuts batch N into partitions, and writes some of them again after a crash, maybe cut otherwise. Each task
calls `partition.write_partition`, and the driver at the end `conclusion.conclude` with what the tasks have returned.
Machinery of `jsclient.spark` that needs nothing of Spark: see the README.md of this folder.
"""
