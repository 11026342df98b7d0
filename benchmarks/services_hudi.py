"""Apache Hudi's side of `services.py`: it plans and executes a compaction of a table as found.

Its own procedure does it, in a Spark that has both cores, as `hudi_side.py` sets it up. Nothing
else runs beside: no cleaning, no archiving, no metadata table, no timeline server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hudi_side import OPTIONS, SETTINGS
from side import COLUMNS, Row, digest, own_stdout, serve, start_session

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from conformance.judge.spark import hudi_version

#: The table knows its keys; a job only has to say how it works.
QUIET = (
    "hoodie.parquet.compression.codec",
    "hoodie.metadata.enable",
    "hoodie.archive.automatic",
    "hoodie.clean.automatic",
    "hoodie.embed.timeline.server",
)
#: The table is one for many writers, so Hudi wants a lock: the lightest, as it is alone.
LOCK = {
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
}
AT_ONCE = {"hoodie.compact.inline.max.delta.commits": "1"}


def main() -> None:
    sink = own_stdout()
    session = start_session(SETTINGS)
    given = {**{key: OPTIONS[key] for key in QUIET}, **LOCK, **AT_ONCE}
    options = ",".join(f"{key}={value}" for key, value in given.items())

    def hello() -> Row:
        return {"pid": os.getpid(), "hudi": hudi_version(session), "spark": session.version}

    def compact(table: str) -> Row:
        procedure = "run_compaction(op => 'scheduleAndExecute'"
        done = session.sql(f"CALL {procedure}, path => '{table}', options => '{options}')")
        return {"answer": [list(map(str, row)) for row in done.collect()]}

    def digested(table: str) -> Row:
        return digest(session.read.format("hudi").load(table).select(*COLUMNS))

    serve(sink, {"hello": hello, "compact": compact, "digest": digested})
    session.stop()


if __name__ == "__main__":
    main()
