#!/usr/bin/env bash
# Runs the tests that need no Java, in two processes at once, one for each core: unit.sh PYTEST ARGS...
set -euo pipefail

pytest=$1
shift
plain=(-q -m "not spark and not judge")
first=(tests/format tests/fuzz tests/table tests/plan tests/index tests/timeline tests/awkward)
first+=(tests/conflict tests/many_writers tests/storage tests/commit tests/api tests/cli)
others=(tests/spark tests/simulation tests/processes)

ignored=()
for folder in "${first[@]}" "${others[@]}"; do ignored+=(--ignore "$folder"); done

"$pytest" "${plain[@]}" "${first[@]}" "$@" &
half=$!
trap 'kill "$half" 2>/dev/null || true' EXIT
one=0 two=0
"$pytest" "${plain[@]}" "${ignored[@]}" "$@" || two=$?
wait "$half" || one=$?
trap - EXIT

# A choice of tests may leave one half without any, which pytest reports with 5, but not both.
((one == 5 && two == 5)) && exit 5
for status in "$one" "$two"; do
    ((status == 0 || status == 5)) || exit "$status"
done
