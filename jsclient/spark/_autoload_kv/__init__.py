"""Installed as `pyspark_jetstream_kv`, where Spark finds `format("jetstream-kv")`; see `_autoload`."""

try:
    from jsclient.spark.kv import KeyValueDataSource as DefaultSource
except Exception:  # pragma: no cover - a broken or missing dependency: the format is then unknown
    import logging

    logging.getLogger("jsclient.spark").debug("the jetstream-kv data source cannot be loaded", exc_info=True)
else:
    __all__ = ["DefaultSource"]
