"""Whether Hudi, too, can join the partial rows of a table with owners
(`format.table.column_owners`).

It merges the logs of a slice before the base file. A partial row whose key the logs do not have
needs the base file's row, or a placeholder before it. If the base file has the row, a placeholder
would replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyhudi.simulate.table.rows import Row


def join_faults(base: Iterable[Row], logs: Iterable[Row]) -> Iterator[str]:
    """Yield what is wrong with the partial rows of a slice, which are in merge order."""
    # keys whose row in the base file is in force
    live = {row.key for row in base if not row.is_deleted}
    whole: set[str] = set()  # keys with a whole row in the logs
    for row in logs:
        if row.is_deleted:
            live.discard(row.key)
            whole.discard(row.key)
        elif row.is_fresh and row.key in live:
            yield f"the placeholder of {row.version} for {row.key} hides the base file's row"
        elif row.is_fresh:
            whole.add(row.key)
        elif row.key not in live and row.key not in whole:
            yield f"{row.version} has a partial row of {row.key} without a row to join"
