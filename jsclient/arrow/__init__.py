"""Ranges of streams as Arrow columns: what `jsclient.spark` reads with, and what notebooks can use without Spark."""
