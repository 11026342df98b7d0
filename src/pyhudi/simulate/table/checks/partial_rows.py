"""Whether Hudi, too, can put the parts of a joined table together (`format.table.column_owners`).

It folds the logs of a slice before they meet the base file. A part whose key the logs do not have
needs the base file's row, or a stand-in before it; with the base file's row, a stand-in would take
that row's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyhudi.simulate.table.rows import Row


def join_faults(base: Iterable[Row], logs: Iterable[Row]) -> Iterator[str]:
    """What is wrong with the parts in a slice, given in the order in which they are merged."""
    live = {row.key for row in base if not row.is_deleted}  # with the base file's row in force
    whole: set[str] = set()  # with a whole row in the logs
    for row in logs:
        if row.is_deleted:
            live.discard(row.key)
            whole.discard(row.key)
        elif row.is_fresh and row.key in live:
            yield f"the stand-in of {row.version} for {row.key} hides the base file's row"
        elif row.is_fresh:
            whole.add(row.key)
        elif row.key not in live and row.key not in whole:
            yield f"{row.version} has a part of {row.key} that stands alone"
