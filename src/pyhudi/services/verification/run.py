"""Verifying a table: everything that its commits name exists, is readable, and is in its place.

- Every file that a commit names, and that a state needs which can still be read, exists and has
  the length that the commit says. Archived commits count, too.
- Footers and key columns of base files can be read, and every block of the log files.
- Every key is in its bucket, and once in its partition.

Nothing is written. Other processes compact, clean and resize meanwhile, so nothing counts as
damaged after one check. A file that seems lost is looked for again in the table as it is then, and
a partition whose files vanish while they are read, or that was resized, is read again. Memory holds
the table's listing, as for any read, the logs of one slice, and a bounded number of keys
(`services.verification.keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptTableError, UnavailableError, UnsupportedTableError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    Ring,
    RingFileName,
    ring_folder,
    ring_path,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.index.layout import BucketLayout, SimpleLayout
from pyhudi.index.ring_layout import RingLayout
from pyhudi.plan.changes import CompletedWrite
from pyhudi.plan.scan import ReadSpec, SliceRead, Split, chosen_columns, read_spec, refuse_unordered
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.lost_files import removing_clean
from pyhudi.read.plan import AtCompletion, Reader
from pyhudi.read.rings import Rings, known_by
from pyhudi.read.slice import read_log_blocks, read_split
from pyhudi.services.verification.keys import misplaced, repeated
from pyhudi.services.verification.result import Finding, FindingKind, Verified
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import (
    CommittedFile,
    LostFile,
    committed_files,
    is_superseded,
    listed_size,
    referred_paths,
    slice_paths,
    slices_since,
)
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import with_files
from pyhudi.table.merge import LogDeletes, LogRows
from pyhudi.table.schema import RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, Visibility, visible_now
from pyhudi.world import World

#: How many findings a result holds; it counts those beyond.
FINDINGS_MAX = 10_000
#: How often a partition is read if files of it vanish meanwhile.
ATTEMPTS_MAX = 5
_END_OF_TIME = "9" * 17


def verify(storage: Storage, world: World, listener: Listener | None) -> Verified:
    """Check the whole table. This writes nothing, and needs no permission to write."""
    started = world.elapsed_ms()
    loader = TableLoader(storage, load_config(storage))
    with ProgressBoard(listener, world) as board:
        verification = Verification(loader, board)
        verification.run()
    return verification.result((world.elapsed_ms() - started) / 1000)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A state of the table, and the time since which the table can be read."""

    state: TableState
    times: CompletionTimes
    now: Visibility
    since: str
    replaced: Mapping[tuple[str, str], str]  # file group → when it was replaced

    def slices(self, group: FileGroupFiles) -> tuple[FileSlice, ...]:
        """Return the slices that are needed, the newest first."""
        out = self.replaced.get((group.partition, group.file_id))
        if out is not None and out <= self.since:
            return ()
        return slices_since(group, self.times, self.now, self.since)

    def is_live(self, group: FileGroupFiles) -> bool:
        return (group.partition, group.file_id) not in self.replaced


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the keys of a slice must belong."""

    layout: BucketLayout
    ordinal: int


class _ResizedError(Exception):
    """A partition was resized since the table was loaded."""


class Verification:
    """One verification of a table."""

    def __init__(self, loader: TableLoader, board: ProgressBoard) -> None:
        self._loader = loader
        self._storage = loader.storage
        self._reader = Reader(loader)
        self._board = board
        self._findings: dict[tuple[FindingKind | None, str], Finding] = {}
        self._left_out = 0
        self._unloaded: set[tuple[str, str]] = set()  # rings that are newer than a loaded state
        self._commits = self._files = self._rows = self._bytes = 0

    def run(self) -> None:
        state = self._loader.load()
        scope = self._scope(state, {})
        suspects, replaced = self._suspects(scope)
        scope = self._scope(state, replaced)
        if any(self._lost(scope, suspects)):  # by now they may be cleaned
            scope = self._scope(self._loader.load(), replaced)
            for lost in self._lost(scope, suspects):
                self._report_lost(scope, lost)
        self._read_all(scope, replaced)

    def result(self, seconds: float) -> Verified:
        return Verified(
            tuple(self._findings.values()),
            self._commits,
            self._files,
            self._rows,
            self._bytes,
            seconds,
            self._left_out,
        )

    def _scope(self, state: TableState, replaced: Mapping[tuple[str, str], str]) -> _Scope:
        times = self._reader.completion_times(state, AtCompletion(""))
        active = {
            group: min(times.of(instant) or "" for instant in instants)
            for group, instants in state.replaced.items()
        }
        since = self._reader.retention(state).since
        return _Scope(state, times, visible_now(state.timeline), since, {**replaced, **active})

    def _find(self, kind: FindingKind, path: str, commit: str, why: str) -> None:
        """Record a finding; of those about one file itself, only the first."""
        about_keys = kind in (FindingKind.BUCKET, FindingKind.DUPLICATE)
        key = (kind if about_keys else None, path)
        if key in self._findings:
            return
        if len(self._findings) >= FINDINGS_MAX:
            self._left_out += 1
            return
        self._findings[key] = Finding(kind, path, commit, why)

    # -- files that commits name

    def _suspects(
        self, scope: _Scope
    ) -> tuple[list[tuple[CommittedFile, str]], dict[tuple[str, str], str]]:
        """Return files that do not exist as a commit says, with the commit's completion time.

        Also return the file groups that archived writes replaced, with the time of that.
        """
        groups = {(g.partition, g.file_id): g for g in scope.state.groups()}
        replaced: dict[tuple[str, str], str] = {}
        unlisted: dict[tuple[str, str], tuple[CommittedFile, str]] = {}  # the newest of each group
        seen: set[str] = set()

        def judged(
            commit: str, completed: str, metadata: CommitMetadata
        ) -> Iterator[tuple[CommittedFile, str]]:
            seen.add(commit)
            for partition, file_ids in metadata.replaced_file_ids.items():
                replaced.update({(partition, file_id): completed for file_id in file_ids})
            for file in committed_files(commit, metadata):
                group = groups.get(file.group)
                if group is None:
                    newest = unlisted.setdefault(file.group, (file, completed))
                    if newest[0].commit < commit:
                        unlisted[file.group] = (file, completed)
                    continue
                found = listed_size(group, file)
                if found is not None and found == (file.size or found):
                    continue
                if not is_superseded(group, file, completed, scope.times, scope.since):
                    yield file, completed

        def archived(write: CompletedWrite) -> Iterator[tuple[CommittedFile, str]]:
            return judged(write.requested, write.completed, write.metadata)

        suspects: list[tuple[CommittedFile, str]] = []
        for instant in scope.state.timeline.writes:
            try:
                metadata = self._loader.metadata(instant)
            except CorruptTableError as error:
                path = f"{self._loader.timeline_folder}/{instant.file_name}"
                self._find(FindingKind.UNREADABLE, path, instant.requested, error.why)
                continue
            suspects += judged(instant.requested, instant.completed or "", metadata)
        suspects += self._loader.history.from_writes("", _END_OF_TIME, archived)
        self._commits = len(seen)
        return [*suspects, *unlisted.values()], replaced

    def _lost(
        self, scope: _Scope, suspects: Iterable[tuple[CommittedFile, str]]
    ) -> Iterator[LostFile]:
        """Yield those of the files that a state needs which can still be read."""
        by_group: dict[tuple[str, str], list[tuple[CommittedFile, str]]] = {}
        for file, completed in suspects:
            if scope.now.sees(file.commit):
                by_group.setdefault(file.group, []).append((file, completed))
        listed = {(g.partition, g.file_id): g for g in scope.state.groups()}
        for id_, found in by_group.items():
            group = listed.get(id_)
            known = () if group is None else (group,)
            [whole] = with_files(id_[0], known, [(f.path, f.size or 0) for f, _ in found])
            times = {**scope.times.archived, **{f.commit: completed for f, completed in found}}
            of_all = CompletionTimes(scope.times.timeline, times)
            once = _Scope(scope.state, of_all, scope.now, scope.since, scope.replaced)
            slices = once.slices(whole)
            needed = {path for slice_ in slices for path in slice_paths(slice_)}
            if not slices:
                needed = referred_paths(whole)
            for file, _ in found:
                size = listed_size(group, file)
                if file.path in needed and (size is None or size != (file.size or size)):
                    yield LostFile(file.path, file.commit, file.size, size)

    def _report_lost(self, scope: _Scope, lost: LostFile) -> None:
        if lost.found is not None:
            self._find(FindingKind.LENGTH, lost.path, lost.commit, lost.why)
            return
        is_there = self._storage.stat(lost.path) is not None
        # A clean may have retained less than its record says; the files that it names are removed.
        if not is_there and removing_clean(self._loader, scope.state.timeline, lost.path) is None:
            self._find(FindingKind.LOST, lost.path, lost.commit, lost.why)

    # -- what the files hold

    def _read_all(self, scope: _Scope, replaced: Mapping[tuple[str, str], str]) -> None:
        """Read each partition. Where files vanish meanwhile, load the table and read it again."""
        partitions = set(scope.state.partitions)
        for _ in range(ATTEMPTS_MAX):
            spec = self._spec(scope)
            if spec is None:
                return
            partitions = {p for p in sorted(partitions) if not self._read(scope, spec, p)}
            if not partitions:
                return
            scope = self._scope(self._loader.load(), replaced)
        raise UnavailableError(
            f"the table at {self._storage.uri} could not be verified",
            why=f"files of {min(partitions)!r} vanished in each of {ATTEMPTS_MAX} reads",
            next_step="Verify it when fewer cleans run",
        )

    def _spec(self, scope: _Scope) -> ReadSpec | None:
        """Return how keys are read; None if the schema cannot be found."""
        try:
            schema = self._reader.schema_at(scope.state, scope.now)
        except CorruptTableError as error:
            path = error.path or self._loader.timeline_folder
            self._find(FindingKind.UNREADABLE, path, "", error.why)
            return None
        output = chosen_columns(schema, [RECORD_KEY])
        return read_spec(scope.state.config, schema, scope.now, output=output)

    def _read(self, scope: _Scope, spec: ReadSpec, partition: str) -> bool:
        """Read what is needed of a partition.

        Return True if no file vanished, and the partition was not resized since the table was
        loaded.
        """
        stayed = True
        latest: list[FileSlice] = []
        try:
            layout = self._layout(scope.state, partition)
        except _ResizedError:
            return False
        buckets: dict[int, str] = {}
        for group in scope.state.partitions.get(partition, ()):
            for number, slice_ in enumerate(scope.slices(group)):
                refuse_unordered(spec, [SliceRead(slice_)])
                is_latest = not number and scope.is_live(group)
                if is_latest and layout is None:
                    latest.append(slice_)  # keys may be in any of the file groups
                    continue
                place = None
                if is_latest and layout is not None:
                    place = self._place(layout, slice_, buckets)
                stayed = self._check_keys(spec, [slice_], place) and stayed
        return (not latest or self._check_keys(spec, latest, None)) and stayed

    def _layout(self, state: TableState, partition: str) -> BucketLayout | None:
        """Return the partition's layout; None if it is not known, or a finding says why.

        _ResizedError if the ring in force is newer than the state.
        """
        match state.config.buckets:
            case SimpleBuckets() as buckets:
                resolved = buckets.resolved(state.config.record_key_fields)
                return SimpleLayout(partition, resolved)
            case ConsistentBuckets() | MigratingBuckets() as buckets:
                rings = Rings(self._storage, self._loader.history, known_by(state))
                try:
                    found = rings.load(partition)
                except CorruptTableError as error:
                    path = error.path or ring_folder(partition)
                    self._find(FindingKind.BUCKET, path, "", error.why)
                    return None
                if found is None:
                    if isinstance(buckets, MigratingBuckets):
                        return SimpleLayout(partition, buckets.before)
                    return None
                if self._is_newer(state, found.ring):
                    return None
                return RingLayout(found.ring, buckets.hash_fields)
        return None

    def _is_newer(self, state: TableState, ring: Ring) -> bool:
        """True if a ring is marked, and its resize did not complete, which is a finding.

        _ResizedError if it may have completed since the table was loaded.
        """
        if ring.instant == FIRST_INSTANT or state.timeline.is_committed(ring.instant):
            return False
        if (ring.partition, ring.instant) not in self._unloaded:
            self._unloaded.add((ring.partition, ring.instant))
            raise _ResizedError
        path = ring_path(ring.partition, RingFileName(ring.instant))
        why = "it is marked as completed, and its resize is not: it was rolled back, or is pending"
        self._find(FindingKind.BUCKET, path, ring.instant, why)
        return True

    def _place(
        self, layout: BucketLayout, slice_: FileSlice, known: dict[int, str]
    ) -> _Place | None:
        """Return the place of a latest slice; no other slice may have the same."""
        try:
            ordinal = layout.ordinal(slice_.file_id)
        except UnsupportedTableError as error:
            self._find(FindingKind.BUCKET, *_first_file(slice_), error.why)
            return None
        if ordinal is None:
            why = "the partition's ring has no node with this file id"
            self._find(FindingKind.BUCKET, *_first_file(slice_), why)
            return None
        if ordinal >= layout.size:
            why = f"the table has {layout.size} buckets, and the file group is of bucket {ordinal}"
            self._find(FindingKind.BUCKET, *_first_file(slice_), why)
        elif (other := known.setdefault(ordinal, slice_.file_id)) != slice_.file_id:
            why = f"bucket {ordinal} has another file group, {other}"
            self._find(FindingKind.BUCKET, *_first_file(slice_), why)
        return _Place(layout, ordinal)

    def _check_keys(self, spec: ReadSpec, slices: list[FileSlice], place: _Place | None) -> bool:
        """Read slices in which a key may be only once; return True if no file vanished."""
        vanished: list[FileSlice] = []
        counted: set[str] = set()

        def keys() -> Iterator[pa.Array]:
            for slice_ in slices:
                is_first = slice_.file_id not in counted
                try:
                    for is_row, found in self._keys(spec, slice_, is_merged=len(slices) > 1):
                        if is_first:
                            self._check_batch(slice_, found, place)
                        if is_row:
                            yield found.drop_null()
                except (CorruptTableError, UnavailableError) as error:
                    vanished.extend(self._broken(spec, slice_, error))
                if is_first:
                    counted.add(slice_.file_id)
                    self._count(slice_)

        fault = repeated(keys)
        if vanished:
            return False
        if fault is not None:
            why = f"keys are there more than once in partition {slices[0].partition!r}: {fault}"
            self._find(FindingKind.DUPLICATE, *_first_file(slices[0]), why)
        return True

    def _keys(
        self, spec: ReadSpec, slice_: FileSlice, *, is_merged: bool
    ) -> Iterator[tuple[bool, pa.Array]]:
        """Yield keys of a slice, and whether each of them is the key of one row.

        Within a file group, logs may repeat keys, and merging leaves one row of each, so only the
        base file can have a key twice. If a key may be in several file groups, it must be known
        which keys have a row, so the slice is merged then.
        """
        rows = slice_ if is_merged else slice_._replace(logs=())
        for batch in read_split(self._storage, spec, Split((SliceRead(rows),))):
            yield True, batch.column(RECORD_KEY)
        for log in () if is_merged else slice_.logs:
            for block in read_log_blocks(self._storage, (log,), spec, spec.visibility):
                match block:
                    case LogRows():
                        yield False, block.rows.column(RECORD_KEY)
                    case LogDeletes():
                        yield False, block.keys

    def _check_batch(self, slice_: FileSlice, keys: pa.Array, place: _Place | None) -> None:
        self._rows += len(keys)
        self._board.add(rows=len(keys))
        if keys.null_count:
            why = f"{keys.null_count} rows have no record key"
            self._find(FindingKind.BUCKET, *_first_file(slice_), why)
        if place is None:
            return
        fault = misplaced(keys.drop_null(), place.layout, place.ordinal)
        if fault is not None:
            why = f"keys of other buckets are in bucket {place.ordinal}: {fault}"
            self._find(FindingKind.BUCKET, *_first_file(slice_), why)

    def _count(self, slice_: FileSlice) -> None:
        files = len(slice_paths(slice_))
        self._files += files
        self._bytes += slice_.bytes
        self._board.add(bytes=slice_.bytes, files=files)

    def _broken(
        self, spec: ReadSpec, slice_: FileSlice, error: CorruptTableError | UnavailableError
    ) -> list[FileSlice]:
        """Report the damaged files of a slice; return the slice instead if a file is gone."""
        files: list[BaseFile | LogFile] = [*([slice_.base] if slice_.base else []), *slice_.logs]
        there = self._storage.stat_all([file.path for file in files])
        if any(stat is None for stat in there):
            return [slice_]
        if isinstance(error, UnavailableError):
            raise error
        found = False
        for file in files:
            alone = _alone(slice_, file)
            try:
                for _ in read_split(self._storage, spec, Split((SliceRead(alone),))):
                    pass
            except CorruptTableError as broken:
                found = True
                why = broken.why
                self._find(FindingKind.UNREADABLE, file.path, file.name.requested, why)
        if not found:
            path = error.path or files[0].path
            name = parse_data_file(file_name(path))
            commit = "" if name is None else name.requested
            self._find(FindingKind.UNREADABLE, path, commit, error.why)
        return []


def _alone(slice_: FileSlice, file: BaseFile | LogFile) -> FileSlice:
    if isinstance(file, BaseFile):
        return slice_._replace(base=file, logs=())
    return slice_._replace(base=None, logs=(file,))


def _first_file(slice_: FileSlice) -> tuple[str, str]:
    """Return the path and the commit of a slice's first file."""
    if slice_.base is not None:
        return slice_.base.path, slice_.base.name.requested
    return slice_.logs[0].path, slice_.logs[0].name.requested
