#!/usr/bin/env bash
# Runs the simulation and the process tests: schedules in two processes at once, one for each core.
set -euo pipefail

pytest=$1
shift
schedules=tests/simulation/test_schedules.py

"$pytest" -q "$schedules" "$@" -k "occ or shared" &
first=$!
trap 'kill "$first" 2>/dev/null || true' EXIT
"$pytest" -q "$schedules" "$@" -k nbcc
"$pytest" -q tests/simulation --ignore "$schedules" "$@"
wait "$first"
trap - EXIT
"$pytest" -q tests/processes "$@"
