#!/usr/bin/env bash
# Runs the simulation and the process tests, in two processes at once, one for each core.
set -euo pipefail

pytest=$1
shift
# The halves take about as long.
first=(tests/simulation/test_schedules.py tests/simulation/test_crash_sweep.py)
ignored=()
for module in "${first[@]}"; do ignored+=(--ignore "$module"); done

{
    export PYHUDI_SIMULATION_CORE=1
    "$pytest" -q tests/simulation "${ignored[@]}" "$@"
    "$pytest" -q tests/processes "$@"
} &
second=$!
trap 'pkill -P "$second" || true; kill "$second" 2>/dev/null || true' EXIT
export PYHUDI_SIMULATION_CORE=0
"$pytest" -q "${first[@]}" "$@"
wait "$second"
trap - EXIT
