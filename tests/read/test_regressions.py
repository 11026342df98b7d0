"""Reads that once lost, kept or invented a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from golden_tables import GoldenTables
from handmade import TIMELINE, HandmadeTable, at
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata, encode_commit_metadata
from pyhudi.read import load
from pyhudi.read.load import TableLoader, load_config
from pyhudi.storage.protocol import Folder, Storage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])


def commit(made: HandmadeTable, requested: int, completed: int, *ids: str) -> str:
    made.begin(requested)
    rows = [{"id": id_, "v": str(requested)} for id_ in ids]
    path = made.log(requested, made.rows_block(requested, rows))
    made.complete(requested, completed, [path])
    return path


def ids(scan: pyhudi.Scan) -> list[str]:
    return sorted(scan.to_arrow()["id"].to_pylist())


def test_a_checkpoint_is_never_later_than_what_has_completed(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, "a")
    table = pyhudi.open_table(memory.uri)
    feed = table.changes(until="20991231235959999")
    assert (ids(feed), feed.until) == (["a"], at(2))
    commit(made, 3, 4, "b")
    assert ids(table.changes(since=feed.until)) == ["b"]


@pytest.mark.parametrize("where", ["id IS NULL", "id <=> NULL", "id IS NULL OR id = 'q'"])
def test_a_predicate_on_the_key_invents_no_row_over_partial_updates(
    golden: GoldenTables, where: str
) -> None:
    table = pyhudi.open_table(golden.path("mor_partial_update"))
    assert table.read(where=where).to_arrow().num_rows == 0


def test_a_compaction_takes_no_column_away_that_a_write_added_meanwhile(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, "a")
    made.begin(3, "compaction")
    base = made.base(3, [{"id": "a", "v": "1"}])
    wider = pa.schema([*SCHEMA, ("w", pa.int32())])
    made.begin(4)
    made.complete(4, 5, schema=wider)
    made.complete(3, 6, [base], action="commit")
    assert pyhudi.open_table(memory.uri).schema.data_columns == ["id", "v", "w"]


def test_a_clean_that_removed_nothing_does_not_hide_one_that_removed_files(
    memory: Storage,
) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, "a")
    commit(made, 10, 11, "b")
    made.clean(20, 21, earliest="")  # by file versions
    made.clean(30, 31, earliest="", removed=[])
    with pytest.raises(pyhudi.InvalidRequestError, match="no longer be read"):
        pyhudi.open_table(memory.uri).read(as_of=at(5))


class Interrupted:
    """A storage in which something happens just before the data files are listed."""

    def __init__(self, inner: Storage, happening: Callable[[], None]) -> None:
        self._inner = inner
        self._happening: Callable[[], None] | None = happening

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list_folder(self, prefix: str) -> Folder:
        if not prefix and self._happening is not None:
            happening, self._happening = self._happening, None
            happening()
        return self._inner.list_folder(prefix)


def test_files_that_are_compacted_and_cleaned_while_a_table_is_opened_are_not_missed(
    memory: Storage,
) -> None:
    made = HandmadeTable(memory, SCHEMA)
    log = commit(made, 1, 2, "a")

    def compact_and_clean() -> None:
        made.begin(3, "compaction")
        made.complete(3, 4, [made.base(3, [{"id": "a", "v": "1"}])], action="commit")
        made.clean(5, 6, earliest=at(3), removed=[log])
        memory.delete(log)

    storage: Any = Interrupted(memory, compact_and_clean)
    state = TableLoader(storage, load_config(memory)).load()
    (group,) = state.groups()
    assert [base.name.requested for base in group.bases] == [at(3)]
    assert state.timeline.is_committed(at(3))


def test_an_instant_requested_an_hour_back_is_seen_by_a_long_lived_table(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    hour = 1_00_00_000  # of the digits hhmmssSSS
    commit(made, 2 * hour + 59_00_000, 2 * hour + 59_00_001, "before")
    table = pyhudi.open_table(memory.uri)
    assert ids(table.read()) == ["before"]
    commit(made, 2 * hour + 5_00_000, 2 * hour + 5_00_001, "after the clocks went back")
    assert len(ids(table.read())) == 2


def test_replaced_groups_stay_out_when_their_replace_commit_leaves_the_timeline(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "METADATA_KEPT_MAX", 1)
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, "old")
    made.begin(3, "replacecommit")
    new = made.base(3, [{"id": "new", "v": ""}], file_id="g-0")
    made.complete(3, 4, [new], "replacecommit", replaced={"": ("f-0",)})
    far = 5_00_00_000  # hours later, so that a refresh does not list the first instants again
    made.begin(far)
    made.complete(far, far + 1)
    table = pyhudi.open_table(memory.uri)
    assert ids(table.read()) == ["new"]
    for stat in list(memory.list(TIMELINE)):  # archived, from the oldest on
        if stat.path.startswith((f"{TIMELINE}/{at(1)}", f"{TIMELINE}/{at(3)}")):
            memory.delete(stat.path)
    made.begin(far + 2)
    path = made.log(far + 2, made.rows_block(far + 2, [{"id": "n", "v": ""}]), file_id="g-0")
    made.complete(far + 2, far + 3, [path])
    assert ids(table.read()) == ["n", "new"]


def test_a_rollback_block_counts_although_its_own_instant_is_no_write(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 10, 11, "a")
    block = made.rows_block(3, [{"id": "ghost", "v": ""}])
    made.log(3, block, made.rollback_block(12, 3))  # 3 is older than the active timeline
    assert ids(pyhudi.open_table(memory.uri).read()) == ["a"]


def test_a_schema_changed_with_schema_on_read_is_refused_by_name(memory: Storage) -> None:
    made = HandmadeTable(memory, SCHEMA)
    commit(made, 1, 2, "a")
    path = f"{TIMELINE}/{at(1)}_{at(2)}.deltacommit"
    metadata = decode_commit_metadata(memory.read(path), path)
    extra = {**(metadata.extra_metadata or {}), "latest_schema": "{}"}
    memory.write(path, encode_commit_metadata(replace(metadata, extra_metadata=extra), bytes(16)))
    with pytest.raises(pyhudi.UnsupportedTableError, match="schema-on-read"):
        pyhudi.open_table(memory.uri).read()
