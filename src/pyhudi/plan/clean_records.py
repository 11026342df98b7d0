"""A clean as files: what its plan names, and what its completed file says.

The process that executes a plan deletes its files, so they are checked: each is a data file in the
partition it is listed under, none is outside of the table, and none is needed by a snapshot of now
or by a pending write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.plan_files import CleanerPlan
from pyhudi.format.timeline.service_metadata import CleanedPartition, CleanMetadata
from pyhudi.format.timeline.stored_paths import path_in_partition, relative_to_table
from pyhudi.plan.clean_verdicts import CleanRule
from pyhudi.plan.retention import RETAINED_SINCE_KEY

#: Rules by which a file must stay: a plan that names such a file is wrong.
_FORBIDDING = (CleanRule.LATEST, CleanRule.PENDING)


def planned_paths(plan: CleanerPlan, base_uri: str, origin: str) -> dict[str, tuple[str, ...]]:
    """Return the files that the plan names, by partition.

    CorruptTableError for what it may not name.
    """
    found: dict[str, list[str]] = {}
    for partition, names in (plan.files_to_be_deleted_per_partition or {}).items():
        named = found.setdefault(partition, [])
        named += [path_in_partition(partition, name) for name in names]
    for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
        of_partition = found.setdefault(partition, [])
        for file in files:
            if file.is_bootstrap_base_file:
                raise UnsupportedTableError(
                    f"a clean would remove {file.file_path!r:.200}",
                    why="it is a file from which the table was bootstrapped",
                    next_step="Finish this clean with Apache Hudi",
                )
            if file.file_path is not None:
                of_partition.append(relative_to_table(file.file_path, base_uri))
    for partition, paths in found.items():
        _refuse_foreign(partition, paths, origin)
    return {partition: tuple(dict.fromkeys(paths)) for partition, paths in found.items()}


def group_of(path: str) -> tuple[str, str]:
    """Return the partition and the file id of a planned file."""
    partition, _, text = path.rpartition("/")
    name = parse_data_file(text)
    assert name is not None, "planned files are data files"
    return partition, name.file_id


def _refuse_foreign(partition: str, paths: Iterable[str], origin: str) -> None:
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder != partition or parse_data_file(name) is None or path.startswith(".hoodie/"):
            raise CorruptTableError(
                f"a clean would remove {path!r:.200}",
                why=f"that is not a data file of the partition {partition!r:.200}",
                next_step="Nothing was removed. Find the program that wrote the plan, and cancel"
                " it: table.services.cancel_clean(instant)",
                path=origin,
            )


def refuse_needed(
    requested: str,
    planned: Mapping[str, tuple[str, ...]],
    verdicts: pa.Table,
    pending: Collection[str],
    origin: str,
) -> None:
    """Raise CorruptTableError if the clean names a file that no clean may remove.

    `verdicts` are about the files that are known, and `pending` are the writes under way, which may
    have more files.
    """
    staying = _named(planned, verdicts, goes=False)
    reasons = {
        row["path"]: row["reason"] for row in staying.to_pylist() if row["rule"] in _FORBIDDING
    }
    for path in (path for paths in planned.values() for path in paths):
        name = parse_data_file(file_name(path))
        if name is not None and name.requested in pending:
            reasons.setdefault(path, f"of the pending write {name.requested}")
    for path, reason in reasons.items():
        raise CorruptTableError(
            f"the clean {requested} would remove {path!r}",
            why=f"the file is needed ({reason})",
            next_step="Nothing was removed. Find the program that planned the clean, and cancel"
            f" it: table.services.cancel_clean({requested!r})",
            path=origin,
        )


def skipped_files(
    planned: Mapping[str, tuple[str, ...]], verdicts: pa.Table
) -> tuple[int, frozenset[str]]:
    """Return the bytes that go, and the files of the plan that are skipped.

    A file is skipped if something needs it by now.
    """
    going, staying = (_named(planned, verdicts, goes=goes) for goes in (True, False))
    return pc.sum(going["bytes"]).as_py() or 0, frozenset(staying["path"].to_pylist())


def _named(planned: Mapping[str, tuple[str, ...]], verdicts: pa.Table, *, goes: bool) -> pa.Table:
    paths = pa.array([path for paths in planned.values() for path in paths], pa.string())
    is_named = pc.is_in(verdicts["path"], value_set=paths)
    return verdicts.filter(pc.and_(is_named, pc.equal(verdicts["goes"], goes)))


def believed_plan(plan: CleanerPlan, *, newest: str, completed: str) -> CleanerPlan:
    """Return the plan with the retained times capped at the newest write.

    These are the newest requested time and the newest completion time. The table can be read at
    those whatever a plan says, and a time from the future would make readers refuse all others for
    good.
    """
    retained = plan.earliest_instant_to_retain
    if retained is not None:
        retained = replace(retained, timestamp=min(retained.timestamp, newest))
    extra = dict(plan.extra_metadata or {})
    if RETAINED_SINCE_KEY in extra:
        extra[RETAINED_SINCE_KEY] = min(extra[RETAINED_SINCE_KEY], completed)
    return replace(
        plan,
        earliest_instant_to_retain=retained,
        last_completed_commit_timestamp=min(plan.last_completed_commit_timestamp, newest),
        extra_metadata=extra if plan.extra_metadata is not None else None,
    )


def clean_metadata(
    requested: str,
    plan: CleanerPlan,
    planned: Mapping[str, tuple[str, ...]],
    skipped: frozenset[str],
    took_ms: int,
) -> CleanMetadata:
    """Return the completed file's content. A skipped file counts as not removed."""
    partitions = {}
    total = 0
    for partition, paths in planned.items():
        gone = tuple(file_name(path) for path in paths if path not in skipped)
        left = tuple(file_name(path) for path in paths if path in skipped)
        total += len(gone)
        partitions[partition] = CleanedPartition(
            partition,
            plan.policy,
            delete_path_patterns=gone,  # which Hudi counts as removed
            success_delete_files=gone,
            failed_delete_files=left,
            is_partition_deleted=False,  # its metadata file stays, which writers rely on
        )
    retained = plan.earliest_instant_to_retain
    return CleanMetadata(
        start_clean_time=requested,
        time_taken_in_millis=took_ms,
        total_files_deleted=total,
        earliest_commit_to_retain="" if retained is None else retained.timestamp,
        last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
        partition_metadata=partitions,
        bootstrap_partition_metadata={},
        extra_metadata=plan.extra_metadata or {},
    )
