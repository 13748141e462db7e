#!/bin/sh
# A Spark Connect server whose Python has jsclient: sh connect.sh MASTER [OPTIONS OF spark-submit]
#
# PYSPARK_PYTHON names a Python with jsclient[arrow] on the driver and on the executors. Clients need neither Java nor
# Spark: `pip install pyspark-client`, and jsclient for `check` and `register`.
set -eu
master=$1
shift
exec spark-submit --master "$master" --class org.apache.spark.sql.connect.service.SparkConnectServer "$@" spark-internal
