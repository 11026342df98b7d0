#!/usr/bin/env bash
# Runs the simulation and the process tests: schedules in two processes at once, one for each core.
set -euo pipefail

pytest=$1
shift
schedules=tests/simulation/test_schedules.py
half="occ or shared"

"$pytest" -q "$schedules" "$@" -k "$half" &
first=$!
trap 'kill "$first" 2>/dev/null || true' EXIT
"$pytest" -q "$schedules" "$@" -k "not ($half)"
"$pytest" -q tests/simulation --ignore "$schedules" "$@"
wait "$first"
trap - EXIT
"$pytest" -q tests/processes "$@"
