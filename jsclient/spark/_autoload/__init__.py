"""Installed as the top-level package pyspark_jetstream, so that Spark finds the data source by itself."""
