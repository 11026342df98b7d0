#!/usr/bin/env bash
# Runs the simulation and the process tests, in two processes at once, one for each core.
set -euo pipefail

pytest=$1
shift
schedules=tests/simulation/test_schedules.py
half="occ or shared"

{
    "$pytest" -q "$schedules" "$@" -k "$half"
    "$pytest" -q tests/simulation --ignore "$schedules" "$@"
} &
first=$!
trap 'pkill -P "$first" || true; kill "$first" 2>/dev/null || true' EXIT
"$pytest" -q "$schedules" "$@" -k "not ($half)"
"$pytest" -q tests/processes "$@"
wait "$first"
trap - EXIT
