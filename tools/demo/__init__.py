"""The demo: real flight records through JetStream and Spark, every one accounted for. `make demo` runs it."""
