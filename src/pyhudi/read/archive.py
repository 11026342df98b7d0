"""The archived timeline: opened only when a read depends on it, and only the parts it needs.

Archive files never change, so what was read from one is cached: the bounds of its row groups, and
the times of those row groups that were needed, up to a number of instants. Which files count is
read again for each query, because archiving continues while a table is open. Archiving may even
merge and remove the files of a query; then the query is repeated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import (
    CONTENTS,
    MANIFEST_BYTES_MAX,
    TIMES,
    VERSION_BYTES_MAX,
    VERSION_FILE,
    ArchivedInstant,
    ArchiveFileName,
    decode_archive_version,
    decode_manifest,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.timeline.archive_index import (
    ArchiveIndex,
    decode_archive_index,
    decode_contents,
    decode_times,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import ROLLBACK_PLAN
from pyhudi.format.timeline.service_metadata import ROLLBACK
from pyhudi.plan.changes import CompletedWrite
from pyhudi.plan.retention import CleanBound
from pyhudi.read.clean_bounds import archived_clean_bound
from pyhudi.storage.objects.timeline_files import load_timeline_file, missing_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: How many instants' times one table caches, and of how many files it caches the row groups.
INSTANTS_KEPT_MAX = 300_000
INDEXES_KEPT_MAX = 1_000
#: How often a query is repeated because its files were merged meanwhile.
ATTEMPTS_MAX = 10

#: Above every time.
_AFTER_ALL = "~"

_Files = tuple[ArchiveFileName, ...]
_Chosen = Callable[[ArchiveIndex], list[int]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Search:
    """The latest write by one of its two times, before a pair of both."""

    time: str
    other: str
    before: tuple[str, str]

    def bounds_of(self, index: ArchiveIndex) -> Iterator[tuple[int, str, str]]:
        """Yield each row group with the bounds of the time."""
        for number, group in enumerate(index.groups):
            bounds = group.requested if self.time == "instantTime" else group.completed
            yield number, *(bounds or ("", _AFTER_ALL))

    def later(self, best: dict[str, str] | None, times: pa.Table) -> dict[str, str] | None:
        """Return the later one of a write and the latest of these times."""
        time, other = self.before
        # Not made at import: the first array that Arrow makes of a list loads pandas.
        actions = pa.array([action.value for action in sorted(WRITE_ACTIONS)])
        same = pc.and_(pc.equal(times[self.time], time), pc.less(times[self.other], other))
        fits = pc.and_(
            pc.or_(pc.less(times[self.time], time), same),
            pc.is_in(times["action"], value_set=actions),
        )
        order = [(self.time, "descending"), (self.other, "descending")]
        found: list[dict[str, str]] = times.filter(fits).sort_by(order).slice(0, 1).to_pylist()
        both = [each for each in (best, *found) if each is not None]
        return max(both, key=lambda each: (each[self.time], each[self.other]), default=None)


class History:
    """The archive of one table."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._snapshot: tuple[int, _Files] | None = None
        self._indexes: OrderedDict[ArchiveFileName, ArchiveIndex] = OrderedDict()
        self._times: OrderedDict[tuple[ArchiveFileName, int], pa.Table] = OrderedDict()
        self._kept = 0

    # -- queries

    def completion_times(self, instants: frozenset[str]) -> Mapping[str, str]:
        """Return requested time → completion time, for those of the instants that are archived
        writes."""
        found = self.recorded(instants)
        writes = {action.value for action in WRITE_ACTIONS}
        return {i.requested: i.completed for i in found.values() if i.action in writes}

    def recorded(self, instants: frozenset[str]) -> Mapping[str, ArchivedInstant]:
        """Return those of the instants that are archived, of any action, without their contents."""
        if not instants:
            return {}
        return self._asked(lambda files: self._recorded(files, sorted(instants)))

    def instant(self, requested: str) -> ArchivedInstant | None:
        """Return an archived instant with its contents; None if there is none of that time."""

        def find(files: _Files) -> ArchivedInstant | None:
            for row in self._contents(files, lambda index: index.with_requested([requested])):
                if row["instantTime"] == requested:
                    return _instant(row)
            return None

        return self._asked(lambda files: find(_around(files, [requested])))

    def writes(self, since: str, until: str) -> list[CompletedWrite]:
        """Return archived writes that completed in (since, until], by completion time."""
        found = self.from_writes(since, until, lambda write: (write,))
        return sorted(found, key=lambda write: (write.completed, write.requested))

    def from_writes(
        self, since: str, until: str, taken: Callable[[CompletedWrite], Iterable[_T]]
    ) -> list[_T]:
        """Return what `taken` yields for each archived write that completed in (since, until].

        A write may be archived soon after it completes, however long ago it was requested. So every
        file is searched: only completion times show what is in the range. One write is in memory at
        a time.
        """

        # Not made at import: the first array that Arrow makes of a list loads pandas.
        actions = pa.array([action.value for action in sorted(WRITE_ACTIONS)])

        def inside(table: pa.Table) -> pa.Array:
            done, action = table["completionTime"], table["action"]
            ranged = pc.and_(pc.greater(done, since), pc.less_equal(done, until))
            return pc.and_(ranged, pc.is_in(action, value_set=actions))

        def find(files: _Files) -> list[_T]:
            chosen = self._chosen(files, lambda i: i.with_completed(since, until), inside)
            found: list[_T] = []
            seen: set[object] = set()
            for row in self._rows(chosen, inside):
                # An archiver that was interrupted may have put an instant into two files.
                if row["instantTime"] not in seen:
                    seen.add(row["instantTime"])
                    found += taken(self._write(row))
            return found

        return self._asked(find)

    def latest_writes(
        self, until: str | None = None, *, by_request: bool = False
    ) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Yield archived writes that completed up to a time, the latest first.

        With `by_request` the times are those of the requests. The contents of a write are read when
        it is its turn, and of the archive's times only what lies behind it is looked at.
        """
        time, other = "completionTime", "instantTime"
        if by_request:
            time, other = other, time
        before = (_AFTER_ALL, "") if until is None else (until, _AFTER_ALL)
        while True:
            search = _Search(time, other, before)
            found = self._asked(partial(self._latest, search=search))
            if found is None:
                return
            before = (found[time], found[other])
            if (row := self.instant(found["instantTime"])) is not None:
                yield as_instant(row), self._metadata(row)

    def cleans(self) -> Iterator[ArchivedInstant]:
        """Yield archived cleans with their contents, the newest first."""
        for requested in self._times_of(Action.CLEAN):
            if (found := self.instant(requested)) is not None:
                yield found

    def clean_bounds(self) -> Iterator[CleanBound]:
        """Yield the bounds of archived cleans, the newest first, where a clean records one."""
        for found in self.cleans():
            bound = archived_clean_bound(found, f"{self._folder} ({found.requested})")
            yield from [] if bound is None else [bound]

    def is_undone(self, requested: str) -> bool:
        """True if an archived rollback rolled the instant back."""
        for rollback in self._times_of(Action.ROLLBACK):
            if rollback <= requested:
                return False
            if (found := self.instant(rollback)) is not None:
                origin = f"{self._folder} ({rollback})"
                if requested in _undone_by(found, origin):
                    return True
        return False

    def write_metadata(self, timeline_folder: str, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed write, on the timeline or in the archive."""
        path = f"{timeline_folder}/{instant.file_name}"
        try:
            return decode_commit_metadata(load_timeline_file(self._storage, path), path)
        except UnavailableError:  # archived since the timeline was read
            found = self.instant(instant.requested)
            if found is None:
                raise
            origin = f"{self._folder} ({instant.requested})"
            return decode_commit_metadata(found.metadata or b"", origin)

    # -- which files

    def _asked(self, question: Callable[[_Files], _T]) -> _T:
        for attempt in range(ATTEMPTS_MAX):
            files = self._files()
            try:
                return question(files)
            except UnavailableError:
                if attempt + 1 == ATTEMPTS_MAX or files == self._files():
                    raise
        raise AssertionError("unreachable")

    def _files(self) -> _Files:
        """Return the files of the current snapshot; none where nothing was ever archived."""
        version = self._version()
        if version is None:
            return ()
        if self._snapshot is None or self._snapshot[0] != version:
            try:
                files = self._manifest(version)
            except UnavailableError:  # it is outdated, or _version_ is
                version = self._newest() or version
                files = self._manifest(version)
            self._snapshot = (version, files)
        return self._snapshot[1]

    def _manifest(self, version: int) -> _Files:
        path = f"{self._folder}/{manifest_name(version)}"
        data = load_timeline_file(self._storage, path, MANIFEST_BYTES_MAX)
        return tuple(entry.file for entry in decode_manifest(data, path).entries)

    def _version(self) -> int | None:
        """Return the current version; the newest there is while Hudi rewrites the file that names
        it."""
        path = f"{self._folder}/{VERSION_FILE}"
        try:
            data = self._storage.read(path, 0, VERSION_BYTES_MAX + 1)
        except FileNotFoundError:
            data = b""
        return decode_archive_version(data, path) if data else self._newest()

    def _newest(self) -> int | None:
        names = (file_name(stat.path) for stat in self._storage.list(self._folder))
        return max((n for n in map(parse_manifest_name, names) if n is not None), default=None)

    # -- times, which are cached

    def _latest(self, files: _Files, search: _Search) -> dict[str, str] | None:
        """Return the times of the latest write of a search; None if there is none.

        Row groups are looked at from the latest back, until none can have a later write.
        """
        limit, best = search.before[0], None
        groups = [
            (min(high, limit), file, number)
            for file in files
            if file.least <= limit  # nothing completes before it was requested
            for number, low, high in search.bounds_of(self._index(file))
            if low <= limit
        ]
        for high, file, number in sorted(groups, reverse=True):
            if best is not None and best[search.time] > high:
                break
            for _, times in self._times_in(file, number):
                best = search.later(best, times)
        return best

    def _recorded(self, files: _Files, wanted: Sequence[str]) -> dict[str, ArchivedInstant]:
        value_set = pa.array(wanted)
        found = {}
        for file in _around(files, wanted):
            for _, times in self._times_where(file, lambda index: index.with_requested(wanted)):
                hits = times.filter(pc.is_in(times["instantTime"], value_set=value_set))
                for row in hits.to_pylist():
                    found[row["instantTime"]] = _instant(row)
        return found

    def _times_in(self, file: ArchiveFileName, group: int) -> Iterator[tuple[int, pa.Table]]:
        return self._times_where(file, lambda _: [group])

    def _times_of(self, action: Action) -> list[str]:
        """Return requested times of the archived instants of an action, the newest first."""

        def find(files: _Files) -> list[str]:
            found: set[str] = set()
            for file in files:
                for _, times in self._times_where(file, lambda i: i.with_action(action.value)):
                    hits = times.filter(pc.equal(times["action"], action.value))
                    found.update(hits["instantTime"].to_pylist())
            return sorted(found, reverse=True)

        return self._asked(find)

    def _chosen(
        self, files: _Files, may: _Chosen, inside: Callable[[pa.Table], pa.Array]
    ) -> Iterator[tuple[ArchiveFileName, list[int]]]:
        """Yield the row groups that hold a match, by their times."""
        for file in files:
            tables = self._times_where(file, may)
            groups = [group for group, times in tables if pc.any(inside(times)).as_py()]
            if groups:
                yield file, groups

    def _times_where(self, file: ArchiveFileName, may: _Chosen) -> Iterator[tuple[int, pa.Table]]:
        """Yield the times of those row groups that may hold a match."""
        groups = may(self._index(file))
        missing = [group for group in groups if (file, group) not in self._times]
        known = [group for group in groups if (file, group) in self._times]
        for group in known:
            self._times.move_to_end((file, group))
        # Taken before anything is loaded, which may evict them.
        yield from [(group, self._times[file, group]) for group in known]
        if missing:
            with self._opened(file) as source:
                path, index = self._path(file), self._index(file)
                tables = decode_times(source, path, index, missing)
                for group, table in zip(missing, tables, strict=True):
                    yield group, self._keep((file, group), table)

    def _keep(self, key: tuple[ArchiveFileName, int], times: pa.Table) -> pa.Table:
        self._times[key] = times
        self._kept += times.num_rows
        while self._kept > INSTANTS_KEPT_MAX and len(self._times) > 1:
            _, dropped = self._times.popitem(last=False)
            self._kept -= dropped.num_rows
        return times

    def _index(self, file: ArchiveFileName) -> ArchiveIndex:
        if file not in self._indexes:
            with self._opened(file) as source:
                self._indexes[file] = decode_archive_index(source, self._path(file))
            if len(self._indexes) > INDEXES_KEPT_MAX:
                self._indexes.popitem(last=False)
        return self._indexes[file]

    # -- contents, which are not cached

    def _contents(self, files: _Files, may: _Chosen) -> Iterator[dict[str, object]]:
        chosen = ((file, may(self._index(file))) for file in files)
        return self._rows(((file, groups) for file, groups in chosen if groups), None)

    def _rows(
        self,
        chosen: Iterable[tuple[ArchiveFileName, list[int]]],
        inside: Callable[[pa.Table], pa.Array] | None,
    ) -> Iterator[dict[str, object]]:
        for file, groups in chosen:
            with self._opened(file) as source:
                path, index = self._path(file), self._index(file)
                for table in decode_contents(source, path, index, groups, (*TIMES, *CONTENTS)):
                    kept = table if inside is None else table.filter(inside(table))
                    yield from kept.to_pylist()

    def _write(self, row: Mapping[str, object]) -> CompletedWrite:
        instant = _instant(row)
        return CompletedWrite(instant.requested, instant.completed, self._metadata(instant))

    def _metadata(self, instant: ArchivedInstant) -> CommitMetadata:
        origin = f"{self._folder} ({instant.requested})"
        return decode_commit_metadata(instant.metadata or b"", origin)

    def _opened(self, file: ArchiveFileName) -> pa.NativeFile:
        path = self._path(file)
        try:
            return self._storage.open(path)
        except FileNotFoundError:
            raise missing_timeline_file(path) from None

    def _path(self, file: ArchiveFileName) -> str:
        return f"{self._folder}/{file.file_name}"


def as_instant(found: ArchivedInstant) -> Instant:
    """Return an archived instant as it was on the timeline."""
    return Instant(found.requested, Action(found.action), State.COMPLETED, found.completed)


def _around(files: _Files, times: Sequence[str]) -> _Files:
    """Return the files that could hold one of these requested times, which are sorted."""
    return tuple(file for file in files if file.overlaps(times[0], times[-1]))


def _instant(row: Mapping[str, object]) -> ArchivedInstant:
    return ArchivedInstant(
        InstantTime(str(row["instantTime"])),
        InstantTime(str(row["completionTime"])),
        str(row["action"]),
        _bytes(row.get("metadata")),
        _bytes(row.get("plan")),
    )


def _undone_by(rollback: ArchivedInstant, origin: str) -> tuple[str, ...]:
    """Return what it rolled back.

    If Hudi died before it filled the completed file, the plan is used.
    """
    done = ROLLBACK.decode_or_none(rollback.metadata or b"", origin)
    if done is not None:
        return done.commits_rollback
    plan = ROLLBACK_PLAN.decode_or_none(rollback.plan or b"", origin)
    named = None if plan is None else plan.instant_to_rollback
    return () if named is None else (named.commit_time,)


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None
