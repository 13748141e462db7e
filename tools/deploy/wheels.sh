#!/bin/sh
# A job with a set of wheels, for clusters that reach no package index: sh wheels.sh MASTER JOB.py [ARGUMENTS]
#
# The executors use the Python of the cluster, and find the packages in an archive. The wheels must fit that Python.
# PACKAGE is a clone or a wheel of jsclient, PYTHON the interpreter, WORK the folder for wheels and archive.
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

# On a machine with an index.
"$python" -m pip wheel -q -w "$work/wheels" "${package}[arrow]"

# Without an index.
"$python" -m pip install -q --no-index --find-links "$work/wheels" --target "$work/libs" "jsclient[arrow]"
tar czf "$work/libs.tar.gz" -C "$work/libs" .

cd "$work"
export PYTHONPATH="$PWD/libs${PYTHONPATH:+:$PYTHONPATH}"
exec spark-submit --master "$master" --archives libs.tar.gz#libs --conf spark.executorEnv.PYTHONPATH=./libs \
  ${SUBMIT:-} "$job" "$@"
