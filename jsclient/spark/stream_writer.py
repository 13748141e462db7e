"""The base class of streaming sinks: Arrow batches from PySpark 4.1 on, rows in 4.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark.sql.datasource

HANDS_OVER_ROWS: bool = not hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")

if TYPE_CHECKING or not HANDS_OVER_ROWS:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter

__all__ = ["HANDS_OVER_ROWS", "StreamWriter"]
