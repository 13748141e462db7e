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
mkdir -p "${WORK:-build/deploy}"
work=$(realpath "${WORK:-build/deploy}")
python=${PYTHON:-python3}

# A build leaves its files here, and not in the clone.
export DIST_EXTRA_CONFIG="$work/build.cfg"
printf '[build]\nbuild_base = %s\n[egg_info]\negg_base = %s\n' "$work/build" "$work" >"$DIST_EXTRA_CONFIG"

"$python" -m pip install -q --no-deps --target "$work/pure" "$package"
"$python" -m zipfile -c "$work/jsclient.zip" "$work"/pure/*

# Spark gives the zip to tasks only. `register(spark)` passes it on to the process of a streaming source.
cd "$work"
exec spark-submit --master "$master" --py-files jsclient.zip ${SUBMIT:-} "$job" "$@"
