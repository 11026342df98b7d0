"""Table services that pyhudi does not have yet, by hand: what others see of them on the timeline.

Each is decided in the table's decision log, as the real ones will be, so that a table without a
lock takes them for its own. `compaction_by_hand` has compaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyhudi.commit.proposals import Begin, Complete, Decided
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    Manifest,
    ManifestEntry,
    archive_file_name,
    decode_archive_version,
    decode_manifest,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    manifest_name,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_replace_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    RequestedReplaceMetadata,
    encode_requested_replace,
)
from pyhudi.format.timeline.service_metadata import (
    CleanedPartition,
    CleanMetadata,
    encode_clean_metadata,
)
from pyhudi.session.session import TableSession
from pyhudi.storage.protocol import Storage

_SYNC = bytes(16)


@dataclass(frozen=True, slots=True)
class BegunService:
    """A table service that is pending."""

    session: TableSession
    action: Action
    requested: str
    number: int

    def complete(self, data: bytes) -> str:
        """Its completion time."""
        outcome = self.session.log.append(Complete(self.requested, self.action, self.number, data))
        assert isinstance(outcome, Decided), outcome
        assert outcome.entry.time is not None
        return outcome.entry.time


def begin_service(session: TableSession, action: Action, plan: bytes) -> BegunService:
    """Put a plan on the timeline, and its inflight file beside it."""
    session.log.refresh()
    outcome = session.log.append(Begin(action, plan=plan))
    assert isinstance(outcome, Decided), outcome
    requested = outcome.entry.instant
    assert requested is not None
    inflight = Instant(InstantTime(requested), action, State.INFLIGHT)
    session.storage.create(session.log.path(inflight), b"")
    return BegunService(session, action, requested, outcome.entry.n)


# -- clustering


def clustering_plan(groups: Iterable[FileGroupId]) -> bytes:
    slices = tuple(ClusteringSlice(None, (), g.file_id, g.partition) for g in groups)
    plan = ClusteringPlan((ClusteringGroup(slices),))
    return encode_requested_replace(RequestedReplaceMetadata("CLUSTER", plan), _SYNC)


def plan_clustering(session: TableSession, groups: Iterable[FileGroupId]) -> BegunService:
    """A clustering of the file groups, under way."""
    return begin_service(session, Action.CLUSTERING, clustering_plan(groups))


def replacement(groups: Collection[FileGroupId], schema: str, operation: str) -> bytes:
    """What a completed clustering or overwrite says that put nothing in the groups' place."""
    replaced: dict[str, tuple[str, ...]] = {}
    for group in groups:
        replaced[group.partition] = (*replaced.get(group.partition, ()), group.file_id)
    metadata = CommitMetadata(
        {},
        extra_metadata={"schema": schema},
        operation_type=operation,
        partition_to_replace_file_ids=replaced,
    )
    return encode_replace_commit_metadata(metadata, _SYNC)


# -- cleaning


def clean(session: TableSession, removed: Collection[str], earliest: str) -> str:
    """Remove files, and say that the table can be read as of `earliest` (requested) and later."""
    service = begin_service(session, Action.CLEAN, b"")
    for path in removed:
        session.storage.delete(path)
    return service.complete(clean_metadata(service.requested, removed, earliest))


def clean_metadata(requested: str, removed: Collection[str], earliest: str) -> bytes:
    partitions: dict[str, tuple[str, ...]] = {}
    for path in removed:
        partition, _, name = path.rpartition("/")
        partitions[partition] = (*partitions.get(partition, ()), name)
    metadata = CleanMetadata(
        start_clean_time=requested,
        time_taken_in_millis=1,
        total_files_deleted=len(removed),
        earliest_commit_to_retain=earliest,
        last_completed_commit_timestamp=earliest,
        partition_metadata={
            partition: CleanedPartition(partition, "KEEP_LATEST_COMMITS", (), names)
            for partition, names in partitions.items()
        },
    )
    return encode_clean_metadata(metadata, _SYNC)


# -- archiving


def archive(storage: Storage, timeline: str, before: str) -> list[str]:
    """Move completed instants that were requested before the time into the archive.

    All of them make one file, beside those of earlier calls; the requested times.
    """
    names = [s.path.rpartition("/")[2] for s in storage.list_folder(timeline).objects]
    instants = [Instant.parse(name) for name in names if name[:1].isdigit()]
    done = [i for i in instants if i.completed is not None and i.requested < before]
    done.sort(key=lambda instant: instant.requested)
    if done:
        _keep(storage, f"{timeline}/history", [_archived(storage, timeline, i) for i in done])
    times = {i.requested for i in done}
    for instant in instants:
        if instant.requested in times:
            storage.delete(f"{timeline}/{instant.file_name}")
    return sorted(times)


def _archived(storage: Storage, timeline: str, instant: Instant) -> ArchivedInstant:
    assert instant.completed is not None
    data = storage.read(f"{timeline}/{instant.file_name}")
    planned = Instant(instant.requested, instant.action, State.REQUESTED)
    path = f"{timeline}/{planned.file_name}"
    has_plan = instant.action is Action.CLEAN and storage.stat(path) is not None
    plan = storage.read(path) if has_plan else None
    return ArchivedInstant(instant.requested, instant.completed, instant.action.value, data, plan)


def _keep(storage: Storage, history: str, instants: list[ArchivedInstant]) -> None:
    """A new version of the archive, with one more file."""
    known: tuple[ManifestEntry, ...] = ()
    version = 0
    if storage.stat(f"{history}/{VERSION_FILE}") is not None:
        path = f"{history}/{VERSION_FILE}"
        version = decode_archive_version(storage.read(path), path)
        path = f"{history}/{manifest_name(version)}"
        known = decode_manifest(storage.read(path), path).entries
    data, name = encode_archive_file(instants), archive_file_name(instants)
    storage.write(f"{history}/{name.file_name}", data)
    manifest = Manifest((*known, ManifestEntry(name, len(data))))
    storage.write(f"{history}/{manifest_name(version + 1)}", encode_manifest(manifest))
    storage.write(f"{history}/{VERSION_FILE}", encode_archive_version(version + 1))
