#!/usr/bin/env bash
# Runs two suites at once and shows one after the other: side_by_side.sh MAKE FIRST SECOND
#
# For two that leave each other room: conformance waits for its judges most of the time, and the
# simulation has no clock but its own.
set -euo pipefail

make=$1 first=$2 second=$3
output=$(mktemp)
"$make" --no-print-directory "$second" >"$output" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null || true; wait "$other" || true; rm -f "$output"' EXIT

one=0 two=0
"$make" --no-print-directory "$first" || one=$?
wait "$other" || two=$?
cat "$output"
((one == 0)) || exit "$one"
exit "$two"
