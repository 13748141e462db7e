#!/bin/sh
# A job with --py-files, for clusters that have msgspec, attrs and pyarrow: sh pyfiles.sh MASTER JOB.py [ARGUMENTS]
#
# PACKAGE is a clone or a wheel of jsclient, PYTHON the interpreter, WORK the folder for the zip.
# SUBMIT holds more options of spark-submit.
set -eu
master=$1
job=$(realpath "$2")
shift 2
package=$(realpath "${PACKAGE:-.}")
work=${WORK:-build/deploy}
python=${PYTHON:-python3}

"$python" -m pip install -q --no-deps --target "$work/pure" "$package"
"$python" -m zipfile -c "$work/jsclient.zip" "$work"/pure/*

# Spark gives the zip to tasks only. `register(spark)` passes it on to the process of a streaming source.
cd "$work"
exec spark-submit --master "$master" --py-files jsclient.zip ${SUBMIT:-} "$job" "$@"
