#!/usr/bin/env bash
# Runs the simulation and the process tests, in two processes at once, one for each core.
set -euo pipefail

pytest=$1
shift
schedules=tests/simulation/test_schedules.py # about as long as all that is none

{
    export PYHUDI_SIMULATION_CORE=1
    "$pytest" -q tests/simulation --ignore "$schedules" "$@"
    "$pytest" -q tests/processes "$@"
} &
first=$!
trap 'pkill -P "$first" || true; kill "$first" 2>/dev/null || true' EXIT
export PYHUDI_SIMULATION_CORE=0
"$pytest" -q "$schedules" "$@"
wait "$first"
trap - EXIT
