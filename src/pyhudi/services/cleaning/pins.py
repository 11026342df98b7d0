"""Pins: the files that pending plans, savepoints and consumers need, as storage has them now.

A plan that cannot be read stops the clean, because it is not known which files the plan needs, and
the clean could remove them. An inflight file without a plan needs no files: no process can execute
it, and it is a late file.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import decode_compaction_plan, decode_requested_replace
from pyhudi.format.timeline.resize_plan import clustering_plan_of
from pyhudi.format.timeline.service_metadata import decode_savepoint_metadata
from pyhudi.plan.clean_verdicts import CleanRule, FileVerdict, Pins
from pyhudi.storage.objects.consumers import load_consumers
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import Timeline

_COMPACTIONS = (Action.COMPACTION, Action.LOGCOMPACTION)


def load_pins(storage: Storage, folder: str, timeline: Timeline, now_ms: int) -> Pins:
    """Return everything that retains files, at a time of the store's clock."""
    files: dict[str, FileVerdict] = {}
    for instant in timeline.pending:
        if _came_late(storage, folder, instant):
            continue
        reads = FileVerdict(
            CleanRule.PLAN, f"the pending {instant.action} {instant.requested} reads it"
        )
        try:
            files.update((path, reads) for path in planned_files(storage, folder, instant))
        except CorruptTableError as error:
            raise _unknown(instant, error) from None
    saved = timeline.completed(Action.SAVEPOINT)
    for instant in saved:
        keeps = FileVerdict(CleanRule.SAVEPOINT, f"savepoint {instant.requested}")
        files.update((path, keeps) for path in _saved_files(storage, folder, instant))
    unfinished = [i for i in timeline.pending if i.action is Action.SAVEPOINT]
    return Pins(
        files,
        live_consumers(storage, now_ms),
        tuple(instant.requested for instant in saved),
        tuple(instant.requested for instant in unfinished),
    )


def _unknown(instant: Instant, error: CorruptTableError) -> CorruptTableError:
    """Return the error of a plan that cannot be read.

    It is not known which file groups the plan is about, so none may be cleaned.
    """
    next_step = "Restore its plan from a copy of the table, or roll it back with Apache Hudi"
    if instant.action in _COMPACTIONS:
        next_step = f"Cancel it: table.services.cancel_compaction({instant.requested!r})"
    elif instant.action is Action.CLUSTERING:
        next_step += (
            f". A resize is cancelled by table.services.cancel_resize({instant.requested!r})"
        )
    return CorruptTableError(
        f"it is not known which files the pending {instant.action} {instant.requested} needs, and a"
        " clean could remove them",
        why=f"its plan cannot be read: {error.why}",
        next_step=f"Nothing was removed. {next_step}",
        path=error.path,
    )


def _came_late(storage: Storage, folder: str, instant: Instant) -> bool:
    """True if the instant is a late inflight file of a compaction that was archived before."""
    if instant.action not in _COMPACTIONS or instant.state is not State.INFLIGHT:
        return False
    plan = instant.in_state(State.REQUESTED)
    return storage.stat(f"{folder}/{plan.file_name}") is None


def live_consumers(storage: Storage, now_ms: int) -> tuple[tuple[str, str], ...]:
    """Return the names of consumers that retain files, and up to when each has read."""
    found = load_consumers(storage)
    return tuple((f.consumer.name, f.consumer.since) for f in found if f.holds_at(now_ms))


def planned_files(storage: Storage, folder: str, instant: Instant) -> Iterator[str]:
    """Yield the files that a pending table service reads; none for any other instant."""
    requested = instant.in_state(State.REQUESTED)
    path = f"{folder}/{requested.file_name}"
    if instant.action in _COMPACTIONS:
        plan = decode_compaction_plan(load_timeline_file(storage, path), path)
        for operation in plan.operations or ():
            if operation.base_file_path is not None:
                yield operation.base_file_path
            yield from operation.log_file_paths
    elif instant.action is Action.CLUSTERING:
        request = decode_requested_replace(load_timeline_file(storage, path), path)
        for group in clustering_plan_of(request, path).input_groups or ():
            for part in group.slices or ():
                if part.base_file_path is not None:
                    yield part.base_file_path
                yield from part.log_file_paths


def _saved_files(storage: Storage, folder: str, instant: Instant) -> Iterator[str]:
    path = f"{folder}/{instant.file_name}"
    saved = decode_savepoint_metadata(load_timeline_file(storage, path), path)
    for partition in saved.partition_metadata.values():
        yield from partition.saved_paths
