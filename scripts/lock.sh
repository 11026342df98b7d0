#!/usr/bin/env bash
# Write the lock files, with a hash for every file a package may come as: lock.sh UV [FLAGS...]
set -euo pipefail

uv=$1
flags=("${@:2}")
export UV_CUSTOM_COMPILE_COMMAND="make lock"

lock() { # NAME SOURCES AND FLAGS...
    "$uv" pip compile --quiet --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links \
        --output-file "requirements/$1.txt" "${@:2}" ${flags[@]+"${flags[@]}"}
}

lock build requirements/build.in
lock dev pyproject.toml requirements/dev.in
lock spark35 pyproject.toml requirements/spark35.in --resolution lowest-direct
lock judge requirements/judge.in
