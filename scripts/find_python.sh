#!/usr/bin/env bash
# Print the first Python that pyhudi can run on: find_python.sh [NEWEST_MINOR]
# A name on the PATH may be a shim that does not run, so each is asked for its version.
set -euo pipefail

oldest=11
newest=${1:-99}
usable="import ensurepip, sys, venv; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))"

for name in python3.11 python3.12 python3.13 python3; do
    if "$name" -c "$usable" >/dev/null 2>&1; then
        command -v "$name"
        exit 0
    fi
done

{
    echo "No usable Python was found: pyhudi needs 3.$oldest or later$([[ $newest = 99 ]] || echo ", here at most 3.$newest"), with venv."
    echo "On Debian and Ubuntu: sudo apt-get install python3 python3-venv"
} >&2
exit 1
