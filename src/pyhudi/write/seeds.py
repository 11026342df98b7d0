"""The seed that opens each file group.

Hudi's readers have a weak spot in a table of logs without base files. The oldest log opens the
slice, and while that log is pending, the slice is invisible with all its committed logs. So before
the first write to a partition becomes visible, a *seed* does: a small commit of its own with an
empty base file for every bucket. From then on a pending log, however old, joins a slice that is
visible.

Nothing may open a slice behind logs that were committed before it, because they would be hidden.
Hence a seed is written only for buckets that have no committed file, as seen *after* the seed's
instant began, and it completes only if no write to them completed since. Of two seeds that race,
one loses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pyhudi.commit.concurrent import SEED_KEY
from pyhudi.commit.transaction import Completed, Held, Lost, MigratingError, preparing
from pyhudi.commit.validation import Checks
from pyhudi.conflict.rules import Retry
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat
from pyhudi.session.session import TableSession
from pyhudi.write.begin import begun, write_spec
from pyhudi.write.files.base_file import write_seed
from pyhudi.write.files.spec import WriteSpec, create_partition_metadata
from pyhudi.write.schemas import fixed_columns, schema_strategy

SEED_OPERATION: Final = "BULK_INSERT"
#: How many attempts may lose to other seeds; after that, the cause must be another one.
SEED_ATTEMPTS_MAX = 10


def seed_missing(
    session: TableSession,
    partitions: Collection[str],
    opened: Collection[FileGroupId] = (),
    schema: TableSchemaText | None = None,
) -> None:
    """Make sure that every bucket of the partitions has a committed file group.

    `schema` is that of the caller's rows, for a table that has none yet.

    The groups in `opened` get their first base file from the caller's own write. A seed there would
    hide that file.
    """
    groups = session.groups
    unknown = groups.load(list(dict.fromkeys(partitions)))
    for _ in range(SEED_ATTEMPTS_MAX):
        found = {partition: groups.found(partition) for partition in unknown}
        missing = _missing(session, found, opened)
        if not missing:
            break
        ended = _seed(session, missing, schema)
        if isinstance(ended, Lost) and _is_final(ended):
            ended.or_raise()
        # Else they are seeded, or another writer seeded one of them first.
    else:
        if isinstance(ended, Lost) and ended.retry is Retry.LATER:
            ended.or_raise()  # what is in the way is pending, and its error names it
        raise ConflictError(
            f"the partitions {', '.join(map(repr, unknown[:3]))} could not be prepared",
            why=f"other writers completed first {SEED_ATTEMPTS_MAX} times",
            next_step="Write again",
        )
    for partition, ids in found.items():
        groups.keep(partition, ids)


def _is_final(lost: Lost) -> bool:
    """True if another attempt of this session would be lost in the same way."""
    return lost.retry is Retry.NO or isinstance(lost.error, MigratingError)


def _missing(
    session: TableSession,
    found: Mapping[str, Mapping[int, str]],
    opened: Collection[FileGroupId],
) -> dict[str, list[int]]:
    """Return partition → ordinals that have no committed file and get none from the caller."""
    missing: dict[str, list[int]] = {}
    for partition, groups in found.items():
        layout = session.groups.layout(partition)
        own = {layout.ordinal(g.file_id) for g in opened if g.partition == partition}
        lacking = [n for n in range(layout.size) if n not in groups and n not in own]
        if lacking:
            missing[partition] = lacking
    return missing


def _seed(
    session: TableSession,
    wanted: Mapping[str, Sequence[int]],
    schema: TableSchemaText | None,
) -> Completed | Lost:
    with begun(session, is_seed=True) as transaction:
        start, config = session.schema.now(), session.config
        # On a table without a schema, the seed brings that of the rows it is for.
        own = schema if start is None else None
        strategy, fixed = schema_strategy(session.settings), fixed_columns(config)
        schemas = WriteSchemas(start, own, strategy, fixed, config.name)
        spec = write_spec(session, transaction.requested, start or schema)
        metadata = _written_seeds(session, wanted, spec)
        with preparing(f"the partitions {', '.join(map(repr, list(wanted)[:3]))}"):
            is_numbered = session.groups.count is not None
            checks = Checks(is_checked=True, schemas=schemas, is_numbered=is_numbered)
            ended = transaction.complete(metadata, checks)
            if isinstance(ended, Held):
                transaction.abandon()
                return Lost(ended.error(transaction.requested), Retry.WRITE)
            return ended


def _written_seeds(
    session: TableSession, wanted: Mapping[str, Sequence[int]], spec: WriteSpec
) -> CommitMetadata:
    """Write the empty base files that are missing; return the metadata of their commit."""
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for partition, ordinals in wanted.items():
        found = session.groups.found(partition)
        layout = session.groups.layout(partition)
        missing = set(ordinals).difference(found)
        # Another writer may have seeded the partition, and it may be resized since.
        groups = [layout.group(ordinal) for ordinal in range(layout.size) if ordinal in missing]
        if not groups:
            continue
        if hidden := session.replaced.load().intersection(groups):
            raise session.groups.error_of_replaced(hidden)
        create_partition_metadata(session.storage, partition, spec.requested)
        stats[partition] = tuple(write_seed(session.storage, spec, group) for group in groups)
    return CommitMetadata(
        partition_to_write_stats=stats,
        extra_metadata={SEED_KEY: "true"},
        operation_type=SEED_OPERATION,
    )
