"""The table at past moments, rebuilt from the changes: what a reader would have seen then.

Services change files and move instants, and no retained state of the table may change by that, not
even for a moment. Rebuilding is slow, so only some tests do it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.errors import HudiError
from pyhudi.simulate.table.actors.readers import shown
from pyhudi.simulate.table.checks.change_log import Change
from pyhudi.simulate.table.checks.evidence import HISTORY_FOLDER, TIMELINE_FOLDER, Evidence
from pyhudi.simulate.table.checks.expected_rows import ExpectedRows
from pyhudi.simulate.table.table import ToyReader
from pyhudi.storage.stores.memory import MemoryStorage


def states_never_change(evidence: Evidence, expected: ExpectedRows) -> Iterator[str]:
    """I10. After each step of a service, every retained state of the table is what it was."""
    storage = MemoryStorage(lambda: 0, uri=evidence.storage.uri)
    rewrites = {p.change.path for p in evidence.writes.values() if p.is_compaction or p.is_resize}
    for change in evidence.changes:
        if change.data is None:
            storage.delete(change.path)
        else:
            storage.write(change.path, change.data)
        if change.path in rewrites or _is_services(change):
            yield from _faults(evidence, expected, storage, change)


def _is_services(change: Change) -> bool:
    """True if only a clean, a rollback or an archiver makes such a change, which readers see."""
    folder, _, name = change.path.rpartition("/")
    if folder == HISTORY_FOLDER:
        return not name.endswith(".parquet") or change.data is None
    is_data = not change.path.startswith(".hoodie/")
    return change.data is None and (is_data or (folder == TIMELINE_FOLDER and "_" in name))


def _faults(
    evidence: Evidence, expected: ExpectedRows, storage: MemoryStorage, change: Change
) -> Iterator[str]:
    reader = ToyReader(storage, evidence.kind)
    when = f"when {change.actor} had changed {change.path}"
    try:
        state = reader.load()
        since = reader.retention(state).since
        for write in evidence.writes.values():
            if write.change.place <= change.place and write.completed >= since:
                read = shown(reader.as_of(state, write.completed))
                yield from (f"{f} {when}" for f in expected.faults(write.completed, read))
    except HudiError as error:
        yield f"the table could not be read {when}: {error}"
