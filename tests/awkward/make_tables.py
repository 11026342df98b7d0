"""Make the awkward tables with Apache Hudi itself, and record what its reads return.

    cd tests && python -m awkward.make_tables --judge FOLDER [--into FOLDER] [NAME ...]

FOLDER holds `judge.py`, a thin layer over PySpark 3.5 with the Hudi 1.2.0 bundle: its class
`SparkJudge` has `spark`, `write`, `call`, `read`, `timeline` and `schema`, and runs in UTC. Nothing
here uses pyhudi: the recordings are evidence only because they come from somebody else.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from awkward import layout_tables, merge_tables, partial_tables  # noqa: F401  they register
from awkward.recording import TABLES, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", required=True, help="the folder of judge.py")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all tables if left out")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.judge)
    judge = importlib.import_module("judge").SparkJudge()
    try:
        for name in arguments.names or TABLES:
            make(judge, name, arguments.into)
            print(name, flush=True)
    finally:
        judge.stop()


if __name__ == "__main__":
    main()
