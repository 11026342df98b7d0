"""Did another engine's write leave the bucket layout as it must be?

All writers of a bucket table rely on one rule: each bucket of a partition has one file group, and
its file id begins with the bucket's number. Nothing in Hudi makes a writer keep to it: a writer
with another number of buckets, or another index, breaks it without notice, and from then on a key
has two rows. So a write that finds such a commit beside it is not completed.

What is in order: rows and deletes in known file groups, base files or logs; compactions, which keep
the file id; the first file of a bucket, whatever its tail; a seed. A replace commit (an overwrite
or a clustering) is in order as long as its new file groups keep the rule among themselves. But it
moves buckets to other file groups, and Hudi's readers hide what is later added to the old ones. To
a write of that partition it is an offence too, of a kind of its own: the table is sound, and the
write has a conflict (`conflict.rules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.index.simple_bucket import bucket_number


class Offence(Enum):
    NO_BUCKET = "its file id has no bucket number"
    NO_SUCH_BUCKET = "its bucket is beyond the last one"
    SECOND_GROUP = "its bucket has another file group already"
    MOVED = "it was replaced"  # the only one after which the table is sound

    @property
    def breaks_table(self) -> bool:
        return self is not Offence.MOVED


@dataclass(frozen=True, slots=True)
class LayoutOffence:
    """The first thing that a foreign write did against the layout."""

    requested: str  # the foreign instant
    kind: Offence
    group: FileGroupId
    why: str


def first_offence(
    requested: str,
    metadata: CommitMetadata,
    count: int | None,
    known: Mapping[str, Sequence[str]],
) -> LayoutOffence | None:
    """Return what a completed foreign write did against a layout of `count` buckets, if anything.

    `known` has, by partition, the file ids of the buckets in order; of partitions it lacks, only
    what the write itself says is judged. Pass those of the partitions that are being written: a
    bucket that moves elsewhere does not concern the caller. An offence that breaks the table comes
    first. Without a count, file ids have no numbers: they are those of rings, and which of them a
    partition has at that time is not judged here.
    """
    offences = (
        *(_written_out_of_place(requested, metadata, count, known) if count is not None else ()),
        *_moved(requested, metadata, known),
    )
    return next(iter(offences), None)


def layout_error(offence: LayoutOffence) -> CorruptTableError:
    """Return the error for an offence that breaks the table."""
    group = offence.group
    return CorruptTableError(
        f"write {offence.requested} of another engine broke the bucket layout with file group"
        f" {group.file_id or 'without a name'} of partition {group.partition!r}",
        why=offence.why,
        next_step=(
            f"Find that writer and give it this table's index and number of buckets, roll"
            f" {offence.requested} back with Apache Hudi, and write its rows again"
        ),
    )


def _written_out_of_place(
    requested: str, metadata: CommitMetadata, count: int, known: Mapping[str, Sequence[str]]
) -> Iterator[LayoutOffence]:
    for partition, file_ids in sorted(_written(metadata).items()):
        replaced = set(metadata.replaced_file_ids.get(partition, ()))
        before = enumerate(known.get(partition, ()))
        owners = {bucket: file_id for bucket, file_id in before if file_id not in replaced}
        for file_id in file_ids:
            found = _judged(file_id, count, owners)
            if found is not None:
                yield LayoutOffence(requested, found[0], FileGroupId(partition, file_id), found[1])


def _judged(file_id: str, count: int, owners: dict[int, str]) -> tuple[Offence, str] | None:
    """Return what is wrong with a written file id.

    If nothing is wrong, the bucket has this file id from now on.
    """
    bucket = bucket_number(file_id)
    if bucket is None:
        why = "the file id of a bucket begins with eight digits, its number"
        return Offence.NO_BUCKET, why
    if bucket >= count:
        why = f"the table has {count} buckets, and this is bucket {bucket}, counted from 0"
        return Offence.NO_SUCH_BUCKET, why
    owner = owners.setdefault(bucket, file_id)
    if owner != file_id:
        return Offence.SECOND_GROUP, f"bucket {bucket} has the file group {owner} already"
    return None


def _moved(
    requested: str, metadata: CommitMetadata, known: Mapping[str, Sequence[str]]
) -> Iterator[LayoutOffence]:
    for partition, file_ids in sorted(metadata.replaced_file_ids.items()):
        for file_id in sorted({*file_ids}.intersection(known.get(partition, ()))):
            why = f"write {requested} of another engine replaced it, and readers hide what is added"
            yield LayoutOffence(requested, Offence.MOVED, FileGroupId(partition, file_id), why)


def _written(metadata: CommitMetadata) -> dict[str, list[str]]:
    """Return partition → the file ids of the files that the write made, in order."""
    written = {
        partition: sorted({file_id for stat in stats if (file_id := _file_id(stat)) is not None})
        for partition, stats in metadata.write_stats.items()
    }
    return {partition: file_ids for partition, file_ids in written.items() if file_ids}


def _file_id(stat: WriteStat) -> str | None:
    """Return the file id in the file's name, which readers use; None for a stat without a file."""
    name = parse_data_file(file_name(stat.path or ""))
    if name is not None:
        return name.file_id
    return stat.file_id or stat.path
