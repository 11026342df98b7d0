#!/usr/bin/env bash
# Run a program of a virtual environment where Spark finds what it needs, from any folder:
# with_spark.sh FOLDER NEWEST_JAVA PROGRAM ARGUMENTS...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/$1/bin
newest_java=$2
program=$3
shift 3

JAVA_HOME=$("$root/scripts/find_java.sh" "$newest_java")
unset SPARK_HOME PYTHONPATH # the environment's own Spark, whatever else this machine has
export JAVA_HOME
export PYSPARK_PYTHON=$bin/python PYSPARK_DRIVER_PYTHON=$bin/python
export SPARK_LOCAL_IP=127.0.0.1 # a machine need not resolve its own name
exec "$bin/$program" "$@"
