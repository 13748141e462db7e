#!/bin/sh
# A job with a packed environment, in client mode: sh packed.sh MASTER JOB.py [ARGUMENTS]
#
# The archive brings the packages to every executor. The Python itself must be on every machine, at the same path.
# PACKAGE is a clone or a wheel of jsclient, PYTHON the interpreter, WORK the folder for the archive.
# SUBMIT holds more options of spark-submit.
set -eu
master=$1
job=$(realpath "$2")
shift 2
package=$(realpath "${PACKAGE:-.}")
mkdir -p "${WORK:-build/deploy}"
work=$(realpath "${WORK:-build/deploy}")

# A build leaves its files here, and not in the clone.
export DIST_EXTRA_CONFIG="$work/build.cfg"
printf '[build]\nbuild_base = %s\n[egg_info]\negg_base = %s\n' "$work/build" "$work" >"$DIST_EXTRA_CONFIG"

"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/python" -m pip install -q "${package}[arrow]"
tar czf "$work/env.tar.gz" -C "$work/env" .

# The driver starts Python processes, too. Here the same path leads to the same environment.
cd "$work"
export PYSPARK_PYTHON=./env/bin/python
exec spark-submit --master "$master" --archives env.tar.gz#env ${SUBMIT:-} "$job" "$@"
