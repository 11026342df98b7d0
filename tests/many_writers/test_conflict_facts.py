"""What a write is told that lost to another engine's overwrite, or was taken for dead.

The same facts as of any conflict: who, where, by which rule, what it cost and whether to try again;
and what they say of a retry is what a retry meets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from many_writers.compaction_by_hand import plan_compaction
from many_writers.scene import (
    CHECKED,
    KINDS,
    NBCC,
    OCC,
    SCHEMA,
    SHARED,
    Act,
    ForeignWriter,
    HeldWrite,
    Scene,
    begun_scene,
    rows,
    upsert,
)
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_replace_commit_metadata,
)
from pyhudi.format.timeline.instant import Action
from pyhudi.index.simple_bucket import bucket_ids, file_id
from pyhudi.write.begin import write_spec
from pyhudi.write.files.base_file import write_base
from written_tables import keyed

HUDI_ID = "00000000-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"
LOGS: dict[str, dict[str, Any]] = {"nbcc": NBCC, "mor": OCC}
OURS = rows("S", "k", "s", ts=9)


def shared(kind: str, **definition: Any) -> Scene:
    """A table that Hudi writes too, with a row in the first bucket of a day."""
    return begun_scene(rows("first", "k"), **KINDS[kind], **SHARED, **definition)


def overwritten(scene: Scene, group: FileGroupId, *, leaves: pa.Table | None = None) -> str:
    """Another engine replaces a file group with nothing, or with one that has these rows."""
    foreign = ForeignWriter(scene)
    requested = foreign.begin("replacecommit")
    spec = write_spec(scene.session("spec"), requested)
    stats: tuple[WriteStat, ...] = ()
    if leaves is not None:
        written = keyed(leaves.to_pylist(), SCHEMA)
        new = FileGroupId(group.partition, HUDI_ID)
        stats = (write_base(scene.storage, spec, new, [written]),)
    metadata = CommitMetadata(
        {group.partition: stats} if stats else {},
        extra_metadata={"schema": spec.avro_schema},
        operation_type="INSERT_OVERWRITE",
        partition_to_replace_file_ids={group.partition: (group.file_id,)},
    )
    data = encode_replace_commit_metadata(metadata, bytes(16))
    foreign.complete(requested, data, "replacecommit")
    return requested


def refused(held: HeldWrite) -> ConflictError:
    with pytest.raises(ConflictError) as error:
        held.finish()
    facts = error.value.facts
    assert json.loads(json.dumps(facts)) == facts
    return error.value


def notes(scene: Scene) -> list[dict[str, Any]]:
    return list(scene.table().inspect.conflicts().to_pylist())


# -- another engine's overwrite


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_no_retry_is_promised_where_an_overwrite_left_no_file_group(
    kind: str, retries: int
) -> None:
    scene = shared(kind)
    held = scene.hold("S", upsert(OURS), job="load", conflict_retries=retries)
    theirs = overwritten(scene, FileGroupId("mo", file_id(0)))
    error = refused(held)
    facts = error.facts
    assert (facts["rule"], facts["retry"]) == ("replaced", "no")
    assert "no retry will succeed" in facts["retry_says"]
    assert (facts["ours"]["instant"], facts["ours"]["job"]) == (held.requested, "load")
    assert (facts["theirs"]["instant"], facts["theirs"]["kind"]) == (theirs, "replace commit")
    assert (facts["partition"], facts["file_group"], facts["bucket"]) == ("mo", file_id(0), 0)
    assert (facts["lost"]["rows"], facts["lost"]["files"]) == (2, 1)
    assert "Write this partition with the engine" in error.next_step
    assert [(n["instant"], n["lost_to"], n["retry"]) for n in notes(scene)] == [
        (held.requested, theirs, "no")
    ]
    with pytest.raises(UnsupportedTableError):  # as the facts say
        scene.table("again").upsert(OURS)
    assert scene.leftovers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_goes_where_an_overwrite_put_the_bucket(kind: str) -> None:
    scene = shared(kind)
    held = scene.hold("S", upsert(OURS))
    theirs = overwritten(scene, FileGroupId("mo", file_id(0)), leaves=rows("hudi", "h", ts=5))
    assert held.finish().retries == 1
    assert scene.writers() == {"k": "S", "s": "S", "h": "hudi"}
    [note] = notes(scene)
    assert (note["rule"], note["retry"], note["lost_to"]) == ("replaced", "write", theirs)


def streamed(table: Table) -> Any:
    """Rows that come once, more than memory is said to have."""

    def batches() -> Iterator[pa.RecordBatch]:
        for row in range(OURS.num_rows):
            yield from OURS.slice(row, 1).to_batches()

    return table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches()))


@pytest.mark.parametrize("kind", LOGS)
def test_so_does_a_stream_which_is_written_anew_from_its_own_files(kind: str) -> None:
    scene = shared(kind)
    held = scene.hold("S", streamed, buffer_bytes_max=1)
    overwritten(scene, FileGroupId("mo", file_id(0)), leaves=rows("hudi", "h", ts=5))
    assert held.finish().retries == 1
    assert scene.writers() == {"k": "S", "s": "S", "h": "hudi"}
    assert scene.leftovers() == []


@pytest.mark.parametrize("kind", LOGS)
def test_a_stream_for_which_there_is_no_file_group_is_given_up(kind: str) -> None:
    scene = shared(kind)
    held = scene.hold("S", streamed, buffer_bytes_max=1)
    overwritten(scene, FileGroupId("mo", file_id(0)))
    assert refused(held).facts["retry"] == "no"
    assert len(notes(scene)) == 1
    assert scene.leftovers() == []


#: Writes that find nothing left to do once the rows are gone.
FINDING: dict[str, Act] = {
    "delete where": lambda table: table.delete("id = 'k'"),
    "update": lambda table: table.update(OURS.drop_columns(["ts"]), columns=["by"]),
    "delete of partitions": lambda table: table.delete_partitions(["mo"]),
}


@pytest.mark.parametrize("verb", FINDING)
@pytest.mark.parametrize("kind", KINDS)
def test_what_needs_rows_that_are_gone_can_be_tried_again(kind: str, verb: str) -> None:
    scene = shared(kind)
    held = scene.hold("S", FINDING[verb], conflict_retries=0)
    overwritten(scene, FileGroupId("mo", file_id(0)))
    assert refused(held).facts["retry"] == "write"
    assert FINDING[verb](scene.table("again")).rows == 0


def test_a_bucket_that_moved_beside_those_of_the_write_is_told_too() -> None:
    """Its layout has changed under the write, although the write has no file there."""
    scene = shared("nbcc", buckets=SimpleBuckets(2))
    first, second = keys_of_two_buckets()
    scene.table("before").upsert(rows("before", first, second))
    held = scene.hold("S", upsert(rows("S", first, ts=9)), conflict_retries=1)
    theirs = overwritten(scene, FileGroupId("mo", file_id(1)))
    facts = refused(held).facts
    assert (facts["rule"], facts["bucket"], facts["retry"]) == ("replaced", 1, "no")
    assert [note["lost_to"] for note in notes(scene)] == [theirs]


def keys_of_two_buckets() -> tuple[str, str]:
    ids = [f"key {n}" for n in range(20)]
    buckets = bucket_ids(pa.array(ids), ["id"], 2).to_pylist()
    return ids[buckets.index(0)], ids[buckets.index(1)]


# -- a write that was taken for dead


def rolled_back(scene: Scene) -> str:
    """Somebody takes the only write under way for dead; the rollback."""
    judge = scene.session("etl-2, process 4711")
    [pending] = judge.log.refresh().pending_of(Action.COMMIT, Action.DELTACOMMIT)
    judge.recovery.abort(pending)
    rollback = judge.log.live.rolled_back_by[pending.requested]
    judge.recovery.undo(rollback)
    return rollback


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_was_rolled_back_is_told_by_whom_and_what_it_cost(kind: str) -> None:
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    held = scene.hold("S", upsert(OURS), job="load", conflict_retries=0)
    rollback = rolled_back(scene)
    error = refused(held)
    facts, theirs = error.facts, error.facts["theirs"]
    assert (facts["rule"], facts["retry"]) == ("rolled_back", "write")
    assert (facts["ours"]["instant"], facts["ours"]["job"]) == (held.requested, "load")
    assert (theirs["instant"], theirs["kind"]) == (rollback, "rollback")
    assert (theirs["host"], theirs["process"]) == ("etl-2", 4711)
    assert theirs["completed"] > rollback
    assert (facts["lost"]["rows"], facts["lost"]["files"]) == (2, 1)
    assert facts["partition"] is facts["file_group"] is facts["bucket"] is facts["keys"] is None
    assert f"({rollback}, by a writer on etl-2, process 4711)" in str(error)
    [note] = notes(scene)
    assert (note["job"], note["lost_to"], note["their_host"]) == ("load", rollback, "etl-2")
    assert (note["rule"], note["rows"], note["partition"]) == ("rolled_back", 2, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_whose_inflight_file_is_gone_is_told_what_it_cost(kind: str) -> None:
    """Another engine rolled it back, and nothing says when."""
    scene = begun_scene(rows("first", "k"), **KINDS[kind])
    held = scene.hold("S", upsert(OURS), conflict_retries=0)
    for name in scene.pending():
        if name.endswith("inflight"):
            scene.storage.delete(f"{TIMELINE}/{name}")
    facts = refused(held).facts
    assert (facts["rule"], facts["theirs"]["instant"]) == ("not_inflight", None)
    assert facts["lost"]["rows"] == 2
    assert [note["rule"] for note in notes(scene)] == ["not_inflight"]


def test_a_stream_that_was_rolled_back_has_no_files_to_be_written_from() -> None:
    scene = begun_scene(rows("first", "k"), **NBCC)
    held = scene.hold("S", streamed, buffer_bytes_max=1)
    rolled_back(scene)
    assert refused(held).facts["rule"] == "rolled_back"
    assert scene.writers() == {"k": "first"}
    assert scene.leftovers() == []


# -- the keys


def keys_told(kind: str, own: Act, other: Act) -> list[str] | None:
    """What is told of keys if these two meet in a file group that has the rows k, l and m."""
    scene = begun_scene(rows("first", "k", "l", "m"), **KINDS[kind])
    held = scene.hold("S", own, conflict_retries=0)
    other(scene.table("other"))
    error = refused(held)
    keys: list[str] | None = error.facts["keys"]
    assert notes(scene)[0]["keys"] == keys
    assert ("no key in common" in str(error)) == (keys == [])
    return keys


@pytest.mark.parametrize("kind", CHECKED)
def test_keys_that_nobody_wrote_are_not_told(kind: str) -> None:
    """Base files also hold rows that were there before."""
    both = keys_told(kind, upsert(rows("S", "k", "s", ts=9)), upsert(rows("other", "k", "o", ts=5)))
    assert both == ["k"]


@pytest.mark.parametrize("kind", CHECKED)
def test_writes_of_different_keys_have_none_in_common(kind: str) -> None:
    assert keys_told(kind, upsert(rows("S", "k", ts=9)), upsert(rows("other", "l", ts=5))) == []


def test_what_base_files_do_not_tell_of_deletes_is_not_known() -> None:
    """A file without a row does not say who wanted it gone."""
    delete: Act = lambda table: table.delete("id = 'k'")  # noqa: E731
    write = upsert(rows("other", "k", ts=5))
    assert keys_told("cow", delete, write) is None
    assert keys_told("cow", write, delete) is None
    assert keys_told("mor", delete, write) == ["k"]


def test_of_a_compaction_the_keys_that_it_merged_are_told() -> None:
    """It has no rows of its own, and hides the base file of an overwrite that began before."""
    scene = begun_scene(rows("first", "k", "l"), **NBCC)
    held = scene.hold("S", lambda table: table.overwrite(OURS), conflict_retries=0)
    planned = plan_compaction(scene.session("compactor"))
    assert planned is not None
    planned.run().complete()
    facts = refused(held).facts
    assert (facts["rule"], facts["theirs"]["kind"]) == ("hidden_rows", "compaction")
    assert facts["keys"] == ["k"]
