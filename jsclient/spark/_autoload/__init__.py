"""Spark imports every top-level module called `pyspark_*` and takes its `DefaultSource`.

It does so without a guard: an exception here would break every Python data source of the session, so nothing
leaves this module. Installed as `pyspark_jetstream`.
"""

try:
    from jsclient.spark.datasource import JetStreamDataSource as DefaultSource
except Exception:  # pragma: no cover - a broken or missing dependency: format("jetstream") is then unknown
    import logging

    logging.getLogger("jsclient.spark").debug("the jetstream data source cannot be loaded", exc_info=True)
else:
    __all__ = ["DefaultSource"]
