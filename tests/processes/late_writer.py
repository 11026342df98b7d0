"""A writer that freezes before a file with its rows has a name, and dies as soon as it has one.

    cd tests && python -m processes.late_writer TABLE KIND BATCH

Whoever started it writes meanwhile, and so gives the frozen write up; then the file appears, too
late, and its writer is no longer there to remove it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from processes.workload import Batch, Kind, open_table, write

_link = os.link


def main(uri: str, kind: Kind, batch: Batch) -> None:
    def late_link(place: str, name: str, **options: Any) -> None:
        is_late = _has_rows(kind, name)
        if is_late:
            os.kill(os.getpid(), signal.SIGSTOP)
        _link(place, name, **options)
        if is_late:
            os.kill(os.getpid(), signal.SIGKILL)

    os.link = late_link  # type: ignore[assignment]
    write(open_table(uri, None), kind, batch)


def _has_rows(kind: Kind, name: str) -> bool:
    """Whether it is a log file, or on a table without logs a base file."""
    if "/.hoodie" in name:
        return False
    return ".log." in name or (kind is Kind.OPTIMISTIC and name.endswith(".parquet"))


if __name__ == "__main__":
    main(sys.argv[1], Kind(sys.argv[2]), Batch.of_json(json.loads(sys.argv[3])))
