"""JetStream for Spark: what executors and the data source use."""
