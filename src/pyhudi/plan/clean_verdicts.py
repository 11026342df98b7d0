"""A verdict for every file of a table: which slices of its group some retained state still needs.

`plan.cleaning` explains what is retained and why. Here the two points become a cut through each
file group: slices above it stay, and those below go, except for a few of their files that
incremental reads need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import file_slices
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.timeline import Timeline

#: Verdicts that are held as Python values, which take several times the room of a column.
_CHUNK_ROWS = 8_192
_TYPES = {
    "path": pa.string(),
    "partition": pa.string(),
    "file_group": pa.string(),
    "bytes": pa.int64(),
    "verdict": pa.int32(),
}


class CleanRule(StrEnum):
    """Which rule decided about a file."""

    LATEST = "latest"
    SNAPSHOT = "snapshot"
    VERSION = "version"
    PLAN = "plan"
    SAVEPOINT = "savepoint"
    CONSUMER = "consumer"
    PENDING = "pending"
    UNKNOWN = "unknown"
    SUPERSEDED = "superseded"  # goes
    REPLACED = "replaced"  # goes


class FileVerdict(NamedTuple):
    """Why a file goes or stays."""

    rule: CleanRule
    reason: str

    @property
    def goes(self) -> bool:
        return self.rule is CleanRule.SUPERSEDED or self.rule is CleanRule.REPLACED


_LATEST = FileVerdict(CleanRule.LATEST, "in the latest slice")
_REFERRED = FileVerdict(CleanRule.LATEST, "read by reference: the resize of its bucket is pending")


@dataclass(frozen=True, slots=True)
class Pins:
    """What must stay besides what the policy retains."""

    files: Mapping[str, FileVerdict] = field(default_factory=dict)  # by path
    consumers: tuple[tuple[str, str], ...] = ()  # names, and up to when each has read
    savepoints: tuple[str, ...] = ()
    unfinished_savepoints: tuple[str, ...] = ()  # they do not list their files yet


class Horizon(NamedTuple):
    """Points that stay readable: requested times from `earliest`, completion times from `since`."""

    earliest: str | None  # None if only versions are counted
    since: str
    versions: int = 0  # of each file group; 0 if they are not counted

    def lowered(self, earliest: str, since: str) -> Horizon:
        lower = None if self.earliest is None else min(self.earliest, earliest)
        return self._replace(earliest=lower, since=min(self.since, since))

    def saving(self, requested: str, since: str) -> Horizon:
        """Return the horizon lowered to a savepoint that does not list its files yet.

        It will name the slices that were requested by then, whatever is counted.
        """
        return self._replace(earliest=self.earliest or requested).lowered(requested, since)


def with_consumers(
    timeline: Timeline, horizon: Horizon, consumers: Iterable[tuple[str, str]]
) -> tuple[Horizon, FileVerdict | None]:
    """Return the horizon lowered to the consumer that is furthest behind.

    The second value is the verdict on the files that only this consumer needs.
    """
    behind = min(consumers, key=lambda consumer: consumer[1], default=None)
    if behind is None or behind[1] >= horizon.since:
        return horizon, None
    name, since = behind
    later = (r for r, e in timeline.completion_times.items() if e > since)
    lowered = horizon.lowered(min(later, default=since), since)
    return lowered, FileVerdict(CleanRule.CONSUMER, f"consumer {name!r} has read up to {since}")


class _Cut(NamedTuple):
    """What one horizon means to one file group."""

    replaced_by: str | None  # the replace commit that removed it from every retained state
    kept_from: str  # the base instant of the oldest slice that stays
    needed_from: str  # of the oldest one that a snapshot by completion time needs

    def keeps(self, slice_: FileSlice) -> bool:
        return self.replaced_by is None and slice_.base_instant >= self.kept_from


class Judge:
    """Judges file groups one by one.

    Without a horizon nothing goes, and `nothing_goes` says why.
    """

    def __init__(
        self,
        state: TableState,
        times: CompletionTimes,
        horizon: Horizon | None,
        pins: Pins,
        *,
        nothing_goes: str,
        versions: str,
    ) -> None:
        timeline = state.timeline
        self._replaced = state.replaced
        self._times = times
        self._done = {**times.archived, **timeline.completion_times}
        self._now = visible_now(timeline)
        self._pending = timeline.pending_writes
        self._pinned = pins.files
        self._horizon = self.lowest = horizon
        self._consumer: FileVerdict | None = None
        if horizon is not None:
            self.lowest, self._consumer = with_consumers(timeline, horizon, pins.consumers)
        self._nothing_goes = FileVerdict(CleanRule.SNAPSHOT, nothing_goes)
        self._versions = FileVerdict(CleanRule.VERSION, versions)

    def judge(self, group: FileGroupFiles, rows: FileVerdicts) -> None:
        replaced = self._replaced.get((group.partition, group.file_id), frozenset())
        if not replaced and not group.logs and len(group.bases) == 1:  # the common case
            base = group.bases[0]
            rows.add(group, base, _LATEST if self._sees(base) else self._unseen(base))
            return
        verdicts = self._placed(group, replaced)
        for file in group.files:
            verdict = verdicts.get(file.path)
            if verdict is None:  # perhaps another attempt's file, beside the one that counts
                twin = verdicts.get(file.name.requested) if self._sees(file) else None
                verdict = twin or self._referred(group, file) or self._unseen(file)
            rows.add(group, file, verdict)

    def _referred(self, group: FileGroupFiles, file: BaseFile | LogFile) -> FileVerdict | None:
        """Return the verdict on a log that is read by reference, while its resize is pending."""
        return _REFERRED if is_virtual_child(group.file_id) and self._sees(file) else None

    def _sees(self, file: BaseFile | LogFile) -> bool:
        return self._now.sees(file.name.requested)

    def _unseen(self, file: BaseFile | LogFile) -> FileVerdict:
        requested = file.name.requested
        if requested in self._pending:
            reason = f"of the pending write {requested}: only a rollback removes it"
            return FileVerdict(CleanRule.PENDING, reason)
        reason = f"of {requested}, which is not on the timeline: see services.repair()"
        return FileVerdict(CleanRule.UNKNOWN, reason)

    # -- slices

    def _placed(self, group: FileGroupFiles, replaced: frozenset[str]) -> dict[str, FileVerdict]:
        """Return the verdicts of the files in slices, by path.

        The verdict of a slice with a base file is there by its instant, too.
        """
        slices = file_slices(group, self._times, self._now)
        verdicts: dict[str, FileVerdict] = {}
        if not slices:
            return verdicts
        cuts = self._cuts(group, slices, replaced)
        for number, slice_ in enumerate(slices):
            verdict = self._slice_verdict(slice_, number, cuts, is_replaced=bool(replaced))
            files = _files(slice_)
            if verdict.goes:
                named = (*files, *_twins(group, slice_))
                pinned = (self._pinned[file.path] for file in named if file.path in self._pinned)
                verdict = next(pinned, verdict)
            for file in files:
                kept = self._kept_file(file) if verdict.goes else None
                if kept is None and verdict.goes:
                    kept = self._pinned_reference(group, file)
                verdicts[file.path] = kept or verdict
            if slice_.base is not None:
                verdicts[slice_.base_instant] = verdicts[slice_.base.path]
        return verdicts

    def _pinned_reference(
        self, group: FileGroupFiles, file: BaseFile | LogFile
    ) -> FileVerdict | None:
        """Return what pins a log in a child of a virtual resize: it pins a log of the same write in
        the same partition, which may refer to this one."""
        if isinstance(file, BaseFile) or not is_virtual_child(group.file_id):
            return None
        return self._pinned_writes.get((group.partition, file.name.requested))

    @cached_property
    def _pinned_writes(self) -> dict[tuple[str, str], FileVerdict]:
        """Return what pins logs, by the partition and the write of each."""
        found: dict[tuple[str, str], FileVerdict] = {}
        for path, verdict in self._pinned.items():
            partition, _, text = path.rpartition("/")
            name = parse_data_file(text)
            if isinstance(name, LogFileName):
                found.setdefault((partition, name.requested), verdict)
        return found

    def _cuts(
        self, group: FileGroupFiles, slices: tuple[FileSlice, ...], replaced: frozenset[str]
    ) -> tuple[_Cut, _Cut] | None:
        """Return the cut that the policy makes in the group, and the one with consumers."""
        if self._horizon is None or self.lowest is None:
            return None
        cut = self._cut(group, slices, replaced, self._horizon)
        lowest = cut if self._consumer is None else self._cut(group, slices, replaced, self.lowest)
        return cut, lowest

    def _cut(
        self,
        group: FileGroupFiles,
        slices: tuple[FileSlice, ...],
        replaced: frozenset[str],
        horizon: Horizon,
    ) -> _Cut:
        keys = [slice_.base_instant for slice_ in slices]
        by_request = keys[0]
        if horizon.versions:
            by_request = keys[min(horizon.versions, len(keys)) - 1]
        if horizon.earliest is not None:
            below = next((key for key in keys if key < horizon.earliest), keys[-1])
            by_request = min(by_request, below)
        needed_from = keys[-1]  # if there was no base file yet at that time, every log is needed
        for base in reversed(group.bases):
            if self._sees(base) and self._completed(base) <= horizon.since:
                needed_from = base.name.requested
                break
        by = self._replaced_by(replaced, horizon)
        return _Cut(by, min(by_request, needed_from), needed_from)

    def _replaced_by(self, replaced: frozenset[str], horizon: Horizon) -> str | None:
        for requested in sorted(replaced):
            is_before = horizon.earliest is None or requested < horizon.earliest
            if is_before and self._done.get(requested, "") <= horizon.since:
                return requested
        return None

    def _completed(self, file: BaseFile | LogFile) -> str:
        """Return when the file's write completed; "" if that is older than the loaded archive."""
        return self._done.get(file.name.requested, "")

    def _slice_verdict(
        self, slice_: FileSlice, number: int, cuts: tuple[_Cut, _Cut] | None, *, is_replaced: bool
    ) -> FileVerdict:
        if number == 0 and not is_replaced:
            return _LATEST
        if cuts is None:
            return self._nothing_goes
        cut, lowest = cuts
        if cut.keeps(slice_):
            return self._stays(slice_, number, cut, is_replaced=is_replaced)
        if self._consumer is not None and lowest.keeps(slice_):
            return self._consumer
        if cut.replaced_by is not None:
            reason = f"replaced by {cut.replaced_by}, and no retained snapshot has it"
            return FileVerdict(CleanRule.REPLACED, reason)
        reason = f"the slice of {cut.kept_from} superseded it, and no retained snapshot has it"
        return FileVerdict(CleanRule.SUPERSEDED, reason)

    def _stays(
        self, slice_: FileSlice, number: int, cut: _Cut, *, is_replaced: bool
    ) -> FileVerdict:
        assert self._horizon is not None
        earliest, since, versions = self._horizon
        if number < versions and not is_replaced:
            return self._versions
        if earliest is not None and slice_.base_instant >= earliest:
            return FileVerdict(
                CleanRule.SNAPSHOT, f"not older than {earliest}, the earliest retained instant"
            )
        if slice_.base_instant >= cut.needed_from:
            reason = f"needed by the snapshot at {since}, the earliest retained one"
            return FileVerdict(CleanRule.SNAPSHOT, reason)
        return FileVerdict(
            CleanRule.SNAPSHOT, f"the last slice before {earliest}, the earliest retained instant"
        )

    def _kept_file(self, file: BaseFile | LogFile) -> FileVerdict | None:
        """Return why a file of a slice that goes stays.

        Incremental reads need files by when their writes completed.
        """
        assert self._horizon is not None
        assert self.lowest is not None
        completed = self._completed(file)
        if completed >= self._horizon.since:
            return FileVerdict(
                CleanRule.SNAPSHOT, f"completed at {completed}, within what is retained"
            )
        return self._consumer if completed >= self.lowest.since else None


def _files(slice_: FileSlice) -> tuple[BaseFile | LogFile, ...]:
    return slice_.logs if slice_.base is None else (slice_.base, *slice_.logs)


def _twins(group: FileGroupFiles, slice_: FileSlice) -> list[BaseFile]:
    """Return base files of other attempts of the slice's write, which plans may name."""
    if slice_.base is None:
        return []
    instant, counts = slice_.base_instant, slice_.base.path
    return [b for b in group.bases if b.name.requested == instant and b.path != counts]


class FileVerdicts:
    """The verdicts as columns, a few thousand rows at a time. Repeated reasons are stored once."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
        self._chunks: list[pa.Table] = []
        self._known: dict[FileVerdict, int] = {}

    def add(self, group: FileGroupFiles, file: BaseFile | LogFile, verdict: FileVerdict) -> None:
        columns = self._columns
        columns["path"].append(file.path)
        columns["partition"].append(group.partition)
        columns["file_group"].append(group.file_id)
        columns["bytes"].append(file.size)
        columns["verdict"].append(self._known.setdefault(verdict, len(self._known)))
        if len(columns["path"]) == _CHUNK_ROWS:
            self._close_chunk()

    def _close_chunk(self) -> None:
        arrays = {name: pa.array(self._columns[name], kind) for name, kind in _TYPES.items()}
        self._chunks.append(pa.table(arrays))
        for values in self._columns.values():
            values.clear()

    def table(self) -> pa.Table:
        self._close_chunk()
        verdicts = list(self._known)
        rows = pa.concat_tables(self._chunks)
        codes = rows["verdict"]
        goes = pa.array([verdict.goes for verdict in verdicts], pa.bool_())
        return pa.table(
            {
                **{name: rows[name] for name in _TYPES if name != "verdict"},
                "goes": goes.take(codes),
                "rule": _words([verdict.rule.value for verdict in verdicts], codes),
                "reason": _words([verdict.reason for verdict in verdicts], codes),
            }
        )


def _words(words: list[str], codes: pa.ChunkedArray) -> pa.ChunkedArray:
    dictionary = pa.array(words, pa.string())
    chunks = [pa.DictionaryArray.from_arrays(chunk, dictionary) for chunk in codes.chunks]
    return pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))
