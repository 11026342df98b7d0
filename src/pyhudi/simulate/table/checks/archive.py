"""Whether the archive and the active timeline together had every instant at every moment.

An instant leaves the active timeline when it is in the archive and not before. The archive never
loses an instant. Readers count what is older than the active timeline as committed, so when that
moves on, no file of a write that did not complete may be there. And no log that is older than its
base file may be read by the time of its request alone, as hudi-rs reads those of archived writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    decode_archive_version,
    decode_archived_instants,
    decode_manifest,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.timeline.instant import Instant
from pyhudi.read.archive import History
from pyhudi.simulate.table.checks.change_log import Change
from pyhudi.simulate.table.checks.evidence import HISTORY_FOLDER, TIMELINE_FOLDER, Evidence
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import Timeline, without_orphaned_inflights

_VERSION = f"{HISTORY_FOLDER}/{VERSION_FILE}"
_Rows = dict[str, tuple[str, str]]  # requested → completed, action


def archive_is_whole(evidence: Evidence) -> Iterator[str]:
    """Every completed instant is recorded once, with one time, and no orphaned file becomes
    visible."""
    if any(map(_is_archivers, evidence.changes)):
        yield from _Replay(evidence).violations()
        yield from _looked_up(evidence)


def _is_archivers(change: Change) -> bool:
    """True if only an archiver makes such a change."""
    if change.path.startswith(f"{HISTORY_FOLDER}/"):
        return True
    folder, _, name = change.path.rpartition("/")
    return change.data is None and folder == TIMELINE_FOLDER and "_" in name


class _Replay:
    """Replays the changes from the beginning."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._names: dict[str, Instant] = {}  # of the active timeline
        self._archive: dict[str, bytes] = {}  # objects of the archive
        self._version = 0
        self._rows: _Rows = {}  # of the current snapshot
        self._decoded: dict[tuple[str, bytes], _Rows] = {}
        self._first = ""  # of the active timeline
        self._left: set[str] = set()  # completed, and taken off the active timeline
        self._rubbish: dict[str, str] = {}  # completed, and removed from the active timeline

    def violations(self) -> Iterator[str]:
        for change in self._evidence.changes:
            if change.path.startswith(f"{HISTORY_FOLDER}/"):
                yield from self._archived(change)
            elif change.path.startswith(f"{TIMELINE_FOLDER}/"):
                yield from self._moved(change)
            elif not change.path.startswith(".hoodie/"):
                yield from self._written(change)

    # -- the archive's own objects

    def _archived(self, change: Change) -> Iterator[str]:
        if change.data is None:
            self._archive.pop(change.path, None)
        else:
            self._archive[change.path] = change.data
        if change.path == _VERSION:
            number = 0 if change.data is None else decode_archive_version(change.data, _VERSION)
            if number < self._version:
                yield f"{VERSION_FILE} went back from {self._version} to {number}"
            self._version = number
        number = self._version or self._newest()
        if not number:
            return
        rows = self._current(number)
        if rows is None:
            yield f"snapshot {number} of the archive is not whole, by {change.actor}"
            return
        lost = self._rows.items() - rows.items()
        if lost:
            yield f"the archive lost {sorted(lost)}"
        self._rows = rows

    def _newest(self) -> int:
        """Return the snapshot that readers use as long as there is no version."""
        numbers = (parse_manifest_name(file_name(path)) for path in self._archive)
        return max((number for number in numbers if number is not None), default=0)

    def _current(self, number: int) -> _Rows | None:
        path = f"{HISTORY_FOLDER}/{manifest_name(number)}"
        if (data := self._archive.get(path)) is None:
            return None
        rows: _Rows = {}
        for entry in decode_manifest(data, path).entries:
            file = f"{HISTORY_FOLDER}/{entry.file.file_name}"
            if (stored := self._archive.get(file)) is None or len(stored) != entry.size:
                return None
            rows.update(self._instants(file, stored))
        return rows

    def _instants(self, path: str, data: bytes) -> _Rows:
        if (path, data) not in self._decoded:
            found = decode_archived_instants(data, path)
            self._decoded[path, data] = {i.requested: (i.completed, i.action) for i in found}
        return self._decoded[path, data]

    # -- the active timeline

    def _moved(self, change: Change) -> Iterator[str]:
        name = change.path[len(TIMELINE_FOLDER) + 1 :]
        instant = Instant.parse(name)
        if change.data is not None:
            self._names[name] = instant
            if instant.completed is not None and name in self._left:
                yield f"{name} came back to the active timeline"
            return
        self._names.pop(name, None)
        if instant.completed is None:
            return
        self._left.add(name)
        if self._rows.get(instant.requested) != (instant.completed, instant.action.value):
            yield f"{name} left the active timeline and is not in the archive"
        seen = without_orphaned_inflights(self._names.values())
        if any(other.requested == instant.requested for other in seen):
            yield f"{name} is archived and looks pending"
        self._first = Timeline.of(seen).first_active or ""
        for path, requested in self._rubbish.items():
            yield from self._visible(path, requested)

    # -- files of writes that never completed

    def _written(self, change: Change) -> Iterator[str]:
        parsed = parse_data_file(file_name(change.path))
        assert parsed is not None, change.path
        requested = str(parsed.requested)
        if requested in self._evidence.writes:
            return
        if change.data is None:
            self._rubbish.pop(change.path, None)
        else:
            self._rubbish[change.path] = requested
            yield from self._visible(change.path, requested)

    def _visible(self, path: str, requested: str) -> Iterator[str]:
        if requested < self._first and not any(n.startswith(requested) for n in self._names):
            yield f"{path} is visible, and its instant did not complete"


def logs_stay_in_place(evidence: Evidence) -> Iterator[str]:
    """A write leaves the active timeline when none of its logs is on a younger base file."""
    left: set[str] = set()
    for change in filter(_is_archivers, evidence.changes):
        if change.data is not None or change.path.startswith(f"{HISTORY_FOLDER}/"):
            continue
        requested = str(Instant.parse(change.path[len(TIMELINE_FOLDER) + 1 :]).requested)
        write = evidence.writes.get(requested)
        if write is None or requested in left:
            continue
        left.add(requested)
        done = [w for w in evidence.writes.values() if w.change.place < change.place]
        now = max(w.completed for w in done)
        for group in sorted(write.groups - write.opened):
            if evidence.buckets.is_replaced(group, now):
                continue  # no reader sees it
            newest = max((w.requested for w in done if group in w.opened), default="")
            if requested < newest <= write.completed:
                yield f"{requested} is archived, and its log in {group} is on {newest}"


def _looked_up(evidence: Evidence) -> Iterator[str]:
    """Times that are looked up in the archive are those of the timeline."""
    known = {p.requested: p.completed for p in evidence.published}
    try:
        found = History(evidence.storage, HISTORY_FOLDER).recorded(frozenset(known))
    except HudiError as error:
        yield f"the archive cannot be read: {error}"
        return
    for requested, archived in found.items():
        if archived.completed != known[requested]:
            yield f"{requested} completed at {known[requested]}, not {archived.completed}"


def unlisted_files(evidence: Evidence) -> Iterator[str]:
    """Yield files of the archive that no manifest of it lists."""
    objects = {file_name(s.path): s.path for s in evidence.storage.list(HISTORY_FOLDER)}
    listed: set[str] = set()
    for name, path in objects.items():
        if parse_manifest_name(name) is not None:
            entries = decode_manifest(evidence.storage.read(path), path).entries
            listed |= {entry.file.file_name for entry in entries}
    for name, path in objects.items():
        if name.endswith(".parquet") and name not in listed:
            yield f"{path} is left"


# -- the present state


def archived_now(storage: Storage) -> list[str]:
    """Return requested times in the archive as its readers find it, each as often as it is
    there."""
    number, _ = _snapshots(storage)
    if not number:
        return []
    path = f"{HISTORY_FOLDER}/{manifest_name(number)}"
    files = (e.file.file_name for e in decode_manifest(storage.read(path), path).entries)
    paths = [f"{HISTORY_FOLDER}/{name}" for name in files]
    found = (decode_archived_instants(storage.read(path), path) for path in paths)
    return sorted(instant.requested for instants in found for instant in instants)


def _snapshots(storage: Storage) -> tuple[int, int]:
    """Return the number of the current snapshot, and of the newest."""
    objects = {stat.path for stat in storage.list(HISTORY_FOLDER)}
    numbers = (parse_manifest_name(file_name(path)) for path in objects)
    newest = max((number for number in numbers if number is not None), default=0)
    if _VERSION not in objects:
        return newest, newest
    return decode_archive_version(storage.read(_VERSION), _VERSION), newest


def half_archived(evidence: Evidence) -> Iterator[str]:
    """Yield what an archiver that died left, and no process finished."""
    storage = evidence.storage
    current, newest = _snapshots(storage)
    if current != newest or (newest and storage.stat(_VERSION) is None):
        yield f"snapshot {newest} of the archive is not current"
    archived = archived_now(storage)
    yield from (f"{twice} is archived twice" for twice, n in Counter(archived).items() if n > 1)
    for stat in storage.list_folder(TIMELINE_FOLDER).objects:
        if Instant.parse(file_name(stat.path)).requested in archived:
            yield f"{stat.path} is archived too"
