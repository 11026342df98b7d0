"""Foreign writes that keep to the bucket layout, and those that do not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyhudi.conflict.bucket_layout import LayoutOffence, Offence, first_offence, layout_error
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.index.simple_bucket import file_id

FOREIGN = "20260101000000003"
HUDI_1 = "00000001-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"
UUID = "8b764ad0-e5d2-49d3-ae38-f135d57ba24f-0"
KNOWN = {"p": (file_id(0), file_id(1))}


def base(file_id: str) -> WriteStat:
    return WriteStat(file_id=file_id, path=f"p/{file_id}_0-1-0_{FOREIGN}.parquet")


def log(file_id: str) -> WriteStat:
    return WriteStat(file_id=file_id, path=f"p/.{file_id}_{FOREIGN}.log.1_0-1-0")


def written(
    *stats: WriteStat, partition: str = "p", replaced: tuple[str, ...] = ()
) -> CommitMetadata:
    return CommitMetadata(
        partition_to_write_stats={partition: stats} if stats else None,
        partition_to_replace_file_ids={partition: replaced} if replaced else None,
    )


IN_ORDER: dict[str, tuple[CommitMetadata, Mapping[str, tuple[str, ...]]]] = {
    "a write without files": (CommitMetadata(), KNOWN),
    "a log of a known file group": (written(log(file_id(0))), KNOWN),
    "a compaction of it": (written(base(file_id(0)), base(file_id(1))), KNOWN),
    "several files of one file group": (written(base(file_id(1)), log(file_id(1))), KNOWN),
    "a bucket's first file, with a tail of its own": (written(base(HUDI_1)), {}),
    "a bucket of a partition that is known in part": (
        written(base(HUDI_1)),
        {"p": (file_id(0),)},
    ),
    "an overwrite of a partition that nobody here writes": (
        written(base(HUDI_1), replaced=(file_id(1),)),
        {},
    ),
    "a replacement of a file group that was out of use before": (
        written(log(file_id(1)), replaced=(HUDI_1,)),
        KNOWN,
    ),
    "a stat without a file": (written(WriteStat()), KNOWN),
    "the same bucket elsewhere": (written(base(HUDI_1), partition="q"), KNOWN),
}


@pytest.mark.parametrize("what", IN_ORDER)
def test_a_write_is_in_order(what: str) -> None:
    metadata, known = IN_ORDER[what]
    assert first_offence(FOREIGN, metadata, 2, known) is None


OFFENCES = {
    "a base file without a bucket": (written(base(UUID)), UUID, Offence.NO_BUCKET),
    "a log without a bucket": (written(log(UUID)), UUID, Offence.NO_BUCKET),
    "a file of another kind": (written(WriteStat(path="p/x.orc")), "p/x.orc", Offence.NO_BUCKET),
    "a bucket beyond the last": (written(log(file_id(2))), file_id(2), Offence.NO_SUCH_BUCKET),
    "another base for a known bucket": (written(base(HUDI_1)), HUDI_1, Offence.SECOND_GROUP),
    "another log for a known bucket": (written(log(HUDI_1)), HUDI_1, Offence.SECOND_GROUP),
    "a name that differs from the stat's file id": (
        written(WriteStat(file_id=file_id(1), path=base(HUDI_1).path)),
        HUDI_1,
        Offence.SECOND_GROUP,
    ),
    "an overwrite that moves a bucket": (
        written(base(HUDI_1), replaced=(file_id(1),)),
        file_id(1),
        Offence.MOVED,
    ),
    "a deleted partition": (written(replaced=(file_id(1), file_id(0))), file_id(0), Offence.MOVED),
    "a clustering that leaves the buckets": (
        written(base(UUID), replaced=(file_id(0), file_id(1))),
        UUID,
        Offence.NO_BUCKET,
    ),
    "a clustering that splits a bucket": (
        written(base(HUDI_1), base(HUDI_1[:-1] + "1"), replaced=(file_id(1),)),
        HUDI_1[:-1] + "1",
        Offence.SECOND_GROUP,
    ),
    "a second file group beside the replaced one": (
        written(base(HUDI_1), replaced=(file_id(0),)),
        HUDI_1,
        Offence.SECOND_GROUP,
    ),
}


@pytest.mark.parametrize("what", OFFENCES)
def test_an_offence_is_found_and_named(what: str) -> None:
    metadata, id_, kind = OFFENCES[what]
    found = first_offence(FOREIGN, metadata, 2, KNOWN)
    assert found is not None
    assert (found.requested, found.kind, found.group) == (FOREIGN, kind, FileGroupId("p", id_))


def test_two_file_groups_of_one_bucket_in_one_write_need_no_knowledge() -> None:
    found = first_offence(FOREIGN, written(base(file_id(1)), base(HUDI_1)), 2, {})
    assert found is not None
    assert found.kind is Offence.SECOND_GROUP


@pytest.mark.parametrize("kind", [kind for kind in Offence if kind.breaks_table])
def test_an_offence_becomes_an_error_that_names_the_place(kind: Offence) -> None:
    error = layout_error(LayoutOffence(FOREIGN, kind, FileGroupId("p", HUDI_1), "x is y"))
    assert isinstance(error, CorruptTableError)
    assert HUDI_1 in error.what
    assert "'p'" in error.what
    assert error.why == "x is y"


def test_the_reasons_say_what_the_layout_is() -> None:
    beyond = first_offence(FOREIGN, written(log(file_id(5))), 2, KNOWN)
    second = first_offence(FOREIGN, written(log(HUDI_1)), 2, KNOWN)
    moved = first_offence(FOREIGN, written(replaced=(file_id(1),)), 2, KNOWN)
    assert beyond is not None
    assert second is not None
    assert moved is not None
    assert "2 buckets" in beyond.why
    assert file_id(1) in second.why
    assert FOREIGN in moved.why
