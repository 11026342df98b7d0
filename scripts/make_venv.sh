#!/usr/bin/env bash
# Make a virtual environment from nothing but a lock file: make_venv.sh FOLDER LOCK PYTHON
# Every package must match a hash in the lock. PySpark comes as source, so what builds it is locked
# and installed first, and pip must not fetch a builder of its own.
set -euo pipefail

folder=$1 lock=$2 python=$3

echo "Making $folder from $lock with $("$python" --version). PySpark is large; this takes minutes."
"$python" -m venv --clear "$folder"
install=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes)
"${install[@]}" --requirement requirements/build.txt
"${install[@]}" --no-build-isolation --use-pep517 --requirement "$lock"
