#!/usr/bin/env bash
# The long runs. PYHUDI_SOAK_MINUTES is the time of each store's processes; 30 unless told.
set -euo pipefail

bin=$1
minutes=${PYHUDI_SOAK_MINUTES:-30}

echo "soak: random schedules, as many in each mode; one in eighty full of table services"
for mode in occ nbcc partial shared; do
  PYHUDI_SCHEDULES=${PYHUDI_SCHEDULES:-50000} PYHUDI_FIRST_SEED=${PYHUDI_FIRST_SEED:-100000} \
    "$bin/pytest" -q -o timeout=36000 tests/simulation/test_schedules.py -k "$mode"
done
echo "soak: every order of two processes"
PYHUDI_ALL_ORDERS=1 "$bin/pytest" -q -o timeout=36000 \
  tests/simulation/test_interleavings.py tests/simulation/test_service_races.py
echo "soak: every pair of crashes"
PYHUDI_CRASH_STRIDE=1 "$bin/pytest" -q -o timeout=36000 tests/simulation/test_crash_points.py \
  tests/simulation/test_crash_sweep.py tests/simulation/test_service_crashes.py
echo "soak: the search for planted bugs"
PYHUDI_SEARCH=${PYHUDI_SEARCH:-20000} "$bin/pytest" -q -s -o timeout=36000 \
  tests/simulation/test_planted_bugs.py
for store in local moto versitygw; do
  echo "soak: processes on $store, $minutes minutes"
  "$bin/python" tests/processes/soak.py --minutes "$minutes" --store "$store"
done
