#!/usr/bin/env bash
# Run the tests that ask the judges: conformance.sh MAKE PYTHON_NEWEST_MINOR JAVA_NEWEST ARGUMENTS...
# What the judges need may be out of reach: then say what is missing, and leave the suite out. In
# CI, where everything has to be there, the same is a failure.
set -euo pipefail

make=$1 newest_python=$2 newest_java=$3
shift 3

skip() { # REASON
    if [[ -n ${CI:-} ]]; then
        echo "suite conformance: cannot run, for $1; in CI that is a failure" >&2
        exit 1
    fi
    echo "suite conformance: skipped, for $1"
    exit 0
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

scripts/find_python.sh "$newest_python" >/dev/null 2>&1 ||
    skip "PySpark 3.5 needs Python 3.11 to 3.$newest_python, and none was found"
scripts/find_java.sh "$newest_java" >/dev/null ||
    skip "PySpark 3.5 needs Java 17 to $newest_java, and none was found"
if ! "$make" --silent --no-print-directory .venv-judge/.ready 2>"$log"; then
    cat "$log" >&2
    # A wrong hash or a broken package is a failure; only a network that is not there is an excuse.
    # pip either names the failed connections, or says that it knows no version of a package.
    if grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|from versions: none' "$log"; then
        skip "the network is out of reach, and .venv-judge is not made yet"
    fi
    exit 1
fi
scripts/with_spark.sh .venv 99 pytest -q -rs tests/conformance "$@"
