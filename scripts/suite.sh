#!/usr/bin/env bash
# Run a command and print the time it took: suite.sh NAME COMMAND...
set -uo pipefail

name=$1
shift
status=0
"$@" || status=$?
if ((status == 0)); then
    echo "suite $name: $SECONDS s"
else
    echo "suite $name: failed after $SECONDS s"
fi
exit "$status"
