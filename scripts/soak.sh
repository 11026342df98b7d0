#!/usr/bin/env bash
# The long runs, the schedules on every core. PYHUDI_SOAK_MINUTES is the time of each store's processes; 30 by default.
set -euo pipefail

bin=$1
minutes=${PYHUDI_SOAK_MINUTES:-30}

schedules=${PYHUDI_SCHEDULES:-50000}
first=${PYHUDI_FIRST_SEED:-100000}
block=2500 # seeds: some minutes

some_schedules() { # MODE FIRST_SEED COUNT
  local output
  if output=$(PYHUDI_FIRST_SEED=$2 PYHUDI_SCHEDULES=$3 "$bin/pytest" -q -o timeout=36000 \
    tests/simulation/test_schedules.py -k "$1" 2>&1); then
    echo "$1, $3 seeds from $2: ${output##*$'\n'}"
  else
    echo "$output"
    return 1
  fi
}
export -f some_schedules
export bin

echo "soak: $schedules random schedules in each mode; one in eighty full of table services"
for ((from = first; from < first + schedules; from += block)); do
  left=$((first + schedules - from))
  for mode in occ nbcc partial shared; do
    echo "$mode $from $((left < block ? left : block))"
  done
done | xargs --max-procs="$(nproc)" --process-slot-var=PYHUDI_SIMULATION_CORE -n 3 \
  bash -c 'some_schedules "$@"' some_schedules
echo "soak: orders of two processes, all of them or 20,000"
PYHUDI_ALL_ORDERS=1 "$bin/pytest" -q -o timeout=36000 \
  tests/simulation/test_interleavings.py tests/simulation/test_service_races.py \
  tests/simulation/test_resize_races.py
echo "soak: every pair of crashes"
PYHUDI_CRASH_STRIDE=1 "$bin/pytest" -q -o timeout=36000 tests/simulation/test_crash_points.py \
  tests/simulation/test_crash_sweep.py tests/simulation/test_service_crashes.py
echo "soak: the search for planted bugs"
PYHUDI_SEARCH=${PYHUDI_SEARCH:-20000} "$bin/pytest" -q -s -o timeout=36000 \
  tests/simulation/test_planted_bugs.py
echo "soak: 1,000 reads and polls beside eight writers that are killed"
PYHUDI_READS=${PYHUDI_READS:-1000} "$bin/pytest" -q -s -o timeout=36000 tests/processes/test_readers.py
echo "soak: processes that add columns, of which one is killed"
PYHUDI_EVOLUTIONS=${PYHUDI_EVOLUTIONS:-50} "$bin/pytest" -q -o timeout=36000 tests/processes/test_evolution.py
echo "soak: processes with each strategy of early detection"
PYHUDI_EARLY_CASES=all "$bin/pytest" -q -o timeout=36000 tests/processes/test_early_detection.py
echo "soak: a million rows in a table that sizes itself"
PYHUDI_SIZED_ROWS=${PYHUDI_SIZED_ROWS:-1000000} "$bin/pytest" -q -o timeout=36000 tests/processes/test_self_sizing.py
for store in local moto versitygw; do
  echo "soak: processes on $store, $minutes minutes"
  "$bin/python" tests/processes/soak.py --minutes "$minutes" --store "$store"
  echo "soak: processes beside resizes on $store, $minutes minutes"
  "$bin/python" tests/processes/soak.py --resizes --minutes "$minutes" --store "$store"
done
