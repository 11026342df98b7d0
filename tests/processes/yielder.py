"""A process that writes when it is told to, and stops before it asks to be completed.

    cd tests && python -m processes.yielder

Each line that it reads is a write, as JSON, or "finish". Each line that it prints is what came of
it: "written", "completed", or the facts of the conflict that it lost.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

import pyhudi
from many_writers.scene import HeldWrite, Stop

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])


def begin(uri: str, verb: str, keys: list[str], v: str, strategy: str, markers: str) -> HeldWrite:
    early = pyhudi.EarlyDetection(strategy=strategy, period_ms=1)
    settings = pyhudi.WriteSettings(
        early_detection=early, markers=pyhudi.Markers(markers), conflict_retries=0, job=v
    )
    table = pyhudi.open_table(uri, write_settings=settings, progress=False)
    rows = pa.table({"id": keys, "v": [v] * len(keys)}, schema=SCHEMA)
    if verb == "update":
        return HeldWrite(lambda: table.update(rows, columns=["v"]))
    return HeldWrite(lambda: table.upsert(rows))


def main() -> None:
    held: HeldWrite | None = None
    for line in sys.stdin:
        told: Any = json.loads(line)
        stop = Stop.NEVER
        if told != "finish":
            held, stop = begin(**told), Stop.WRITTEN
        assert held is not None
        answer: Any = "written"
        try:
            held.run_to(stop)
            if held.is_over:
                held.finish()
                answer = "completed"
        except pyhudi.ConflictError as error:
            answer = {"kind": type(error).__name__, **error.facts}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
