"""Installed as `pyspark_jetstream_objects`, where Spark finds `format("jetstream-objects")`; see `_autoload`."""

try:
    from jsclient.spark.objects import ObjectsDataSource as DefaultSource
except Exception:  # pragma: no cover - a broken or missing dependency: the format is then unknown
    import logging

    logging.getLogger("jsclient.spark").debug("the jetstream-objects data source cannot be loaded", exc_info=True)
else:
    __all__ = ["DefaultSource"]
