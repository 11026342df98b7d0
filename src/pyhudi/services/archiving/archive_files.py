"""Writing the archive: files, manifests, and the version that says which manifest counts.

    1  a new parquet file                 nobody sees it
    2  manifest_<n+1>, if there is none   of several archivers, one goes on from snapshot n
    3  _version_ from n to n+1            readers see it

The second step decides; the third is repeated by whoever finds it undone, and only ever goes
forward, so an archiver that slept cannot take it back. An instant's own files go after the third.
So a crash leaves a file that no manifest lists, or a manifest that is not current yet, or instants
that are both active and archived; the next archiver finishes or removes them.

A file's name says which instants it begins and ends with, not which it has. If another archiver,
or a dead one, took the name for other instants, this one takes fewer, and so another name.

Ten files of a level are merged into one of the next, so that a table of any age has a few dozen.
Rows go from file to file a few at a time, in the order of their requests, each instant once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import (
    MANIFEST_BYTES_MAX,
    TIMES,
    VERSION_BYTES_MAX,
    VERSION_FILE,
    ArchivedInstant,
    ArchiveFileName,
    Manifest,
    ManifestEntry,
    archive_file_name,
    decode_archive_version,
    decode_manifest,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    encoded_archive_file,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.plan.archiving import ArchivePolicy
from pyhudi.services.archiving.archive_merge import MergedRows, load_times
from pyhudi.storage.objects.checksums import checked_path, checksum_path, is_checksum
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World

#: An archiver that needed longer since it made a file begins anew: it may have been swept up.
STALE_MS = 60_000
#: Tries to move the version on, each lost to another archiver.
VERSION_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The archive as one manifest tells it; number 0 is that of a table without an archive."""

    number: int
    manifest: Manifest

    @property
    def greatest(self) -> str:
        """No archived instant was requested later."""
        return max((entry.file.greatest for entry in self.manifest.entries), default="")


class ArchiveFiles:
    """The archive's folder, as its writer sees it.

    `may_go_on` says whether the table's lock is the same, and where one guards it still held.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        world: World,
        policy: ArchivePolicy,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._world = world
        self._policy = policy
        self._may_go_on = may_go_on
        self._has_checksums = False

    # -- the current snapshot

    def snapshot(self) -> Snapshot:
        """The newest snapshot, with its last step done."""
        version = self._version() or 0
        for number in sorted(self._manifests(self._listed()), reverse=True):
            try:
                manifest = self._load_manifest(number)
            except CorruptTableError:
                if number <= version:
                    raise
                # Hudi may die while it writes one. It never was current, so nobody needs it.
                self._storage.delete(self._path(manifest_name(number)))
                continue
            if version < number:
                self._require_files(number, manifest)
                self._move_version(number)
            return Snapshot(number, manifest)
        return Snapshot(0, Manifest(()))

    def _listed(self) -> list[ObjectStat]:
        objects = list(self._storage.list_folder(self._folder).objects)
        self._has_checksums = any(is_checksum(stat.path) for stat in objects)
        return objects

    @staticmethod
    def _manifests(objects: Sequence[ObjectStat]) -> dict[int, ObjectStat]:
        numbered = ((parse_manifest_name(file_name(o.path)), o) for o in objects)
        return {number: stat for number, stat in numbered if number is not None}

    def _load_manifest(self, number: int) -> Manifest:
        path = self._path(manifest_name(number))
        return decode_manifest(load_timeline_file(self._storage, path, MANIFEST_BYTES_MAX), path)

    def _require_files(self, number: int, manifest: Manifest) -> None:
        """A manifest that never was current must be whole before it becomes so."""
        for entry in manifest.entries:
            found = self._storage.stat(self._path(entry.file.file_name))
            if found is None or found.size != entry.size:
                raise CorruptTableError(
                    f"snapshot {number} of the archive is not whole",
                    why=f"{entry.file.file_name} is missing or has another size, and the archiver"
                    " that wanted it died",
                    next_step=f"Remove {manifest_name(number)}; its instants are still active",
                    path=self._path(manifest_name(number)),
                )

    def require_newest(self, snapshot: Snapshot) -> None:
        """For whoever could not ask the archive: an error that helps if the last file is missing.

        If somebody swept it up when it was added, and its maker died, its instants are active yet.
        """
        number = snapshot.number
        added = [entry.file for entry in snapshot.manifest.entries if entry.file.level == 0]
        newest = max(added, key=lambda file: file.greatest, default=None)
        if newest is None or self._storage.stat(self._path(newest.file_name)) is not None:
            return
        before = f"write {number - 1} into" if number > 1 else "remove"
        raise CorruptTableError(
            f"snapshot {number} of the archive is not whole",
            why=f"{newest.file_name} is missing: perhaps its archiver died before it could make it"
            " again",
            next_step=f"If the instants {newest.least} to {newest.greatest} are on the active"
            f" timeline, stop archiving, {before} {VERSION_FILE}, and remove"
            f" {manifest_name(number)}: they are archived anew. Else restore the file from a copy",
            path=self._path(newest.file_name),
        )

    # -- the version

    def _version(self) -> int | None:
        path = self._path(VERSION_FILE)
        try:
            data = self._storage.read(path, 0, VERSION_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        return decode_archive_version(data, path) if data else None

    def _move_version(self, number: int) -> None:
        """Let the version be this one, unless it is later."""
        path, data = self._path(VERSION_FILE), encode_archive_version(number)
        for _ in range(VERSION_ROUNDS):
            found = self._storage.stat(path)  # before it is read: its etag stands for no later one
            if found is None:
                if self._storage.create(path, data):
                    return
                continue
            version = self._version()
            if version is not None and version >= number:
                return
            assert found.etag is not None
            if self._has_checksums:  # or Hudi would not believe the new version
                self._storage.delete(checksum_path(path))
            if self._replaced(path, data, found.etag):
                return
        raise UnavailableError(
            f"snapshot {number} of the archive could not be made current",
            why=f"others changed {VERSION_FILE} in each of {VERSION_ROUNDS} rounds",
            next_step="Archive again; nothing is lost",
        )

    def _replaced(self, path: str, data: bytes, etag: str) -> bool:
        try:
            return self._storage.replace(path, data, etag=etag) is not None
        except InvalidRequestError:  # a store that cannot: as Hudi does, which has no other way
            self._storage.delete(path)
            return self._storage.create(path, data)

    # -- adding

    def add(self, snapshot: Snapshot, instants: Sequence[ArchivedInstant]) -> Added | None:
        """A snapshot with these instants, or the first of them, more.

        They are sorted by requested time. None if another archiver was faster.
        """
        started = self._world.elapsed_ms()
        for count in range(len(instants), 0, -1):
            some = instants[:count]
            name, data = archive_file_name(some), encode_archive_file(some)
            path = self._path(name.file_name)
            if any(entry.file == name for entry in snapshot.manifest.entries):
                continue  # other instants between the same two
            if not self._storage.create(path, data) and not self._may_take(path, some):
                continue
            size = self._size(path)
            if size is None or self._world.elapsed_ms() - started > STALE_MS:
                return None
            entries = (*snapshot.manifest.entries, ManifestEntry(name, size))
            published = self._publish(snapshot, Manifest(entries))
            if published is None:
                return None
            if self._storage.stat(path) is None:  # swept up while we slept
                self._storage.create(path, data)
            return Added(published, tuple(some))
        alone = archive_file_name(instants[:1])
        raise CorruptTableError(
            f"instant {instants[0].requested} cannot be archived",
            why="the file that would hold it is there, and holds something else",
            next_step="Remove that file if no manifest lists it and no process is archiving the"
            " table",
            path=self._path(alone.file_name),
        )

    def _may_take(self, path: str, instants: Sequence[ArchivedInstant]) -> bool:
        """Whether a file that is there will do.

        An older one is what a dead archiver left, and about to be swept up, perhaps by somebody
        who has not seen our manifest: fewer instants get another name. One alone has no other.
        """
        return self._is_of(path, instants) and (len(instants) == 1 or self._is_young(path))

    def _is_of(self, path: str, instants: Sequence[ArchivedInstant]) -> bool:
        """Whether the file is what another archiver made of the same instants.

        Hudi may die while it writes one, and leave a part of it.
        """
        rows = [(i.requested, i.completed, i.action) for i in instants]
        times = self._times(path)
        if times is None:
            return False
        columns = (times[name].to_pylist() for name in TIMES)
        return list(zip(*columns, strict=True)) == rows

    def _times(self, path: str) -> pa.Table | None:
        """The times of a file that somebody else made; None if it is not whole, or gone."""
        try:
            return load_times(self._storage, path)
        except CorruptTableError:
            return None
        except UnavailableError:
            if self._storage.stat(path) is None:
                return None
            raise  # it may be what we want

    def _size(self, path: str) -> int | None:
        found = self._storage.stat(path)
        return None if found is None else found.size

    def _publish(self, snapshot: Snapshot, manifest: Manifest) -> Snapshot | None:
        """The next snapshot; None if another archiver has made one."""
        self._require_lock()
        number = snapshot.number + 1
        path, data = self._path(manifest_name(number)), encode_manifest(manifest)
        if not self._created(path, data):
            return None
        self._require_lock()
        self._move_version(number)
        if not self._has_bytes(path, data):
            return None  # another engine took the number: its lock, or ours, was lost
        return Snapshot(number, manifest)

    def _has_bytes(self, path: str, data: bytes) -> bool:
        try:
            return self._storage.read(path, 0, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def _created(self, path: str, data: bytes) -> bool:
        """Whether the object is there with these bytes; a lost reply is looked up."""
        try:
            if self._storage.create(path, data):
                return True
        except UnavailableError:
            if self._storage.stat(path) is None:
                raise
        return self._has_bytes(path, data)

    def _require_lock(self) -> None:
        if not self._may_go_on():
            raise UnavailableError(
                "archiving stopped",
                why="the table's lock was lost, ends too soon, or is another one by now",
                next_step="Archive again; what was begun is finished then",
            )

    # -- merging levels

    def merge(self, snapshot: Snapshot) -> tuple[Snapshot, int]:
        """The snapshot with no level too long, and how many files were merged."""
        merged = level = 0
        while candidates := merge_candidates(snapshot.manifest, level, self._policy):
            published = self._merge(snapshot, candidates)
            if published is None:
                break  # another archiver is at it
            snapshot, level, merged = published, level + 1, merged + len(candidates)
        return snapshot, merged

    def _merge(self, snapshot: Snapshot, candidates: Sequence[ManifestEntry]) -> Snapshot | None:
        files = [entry.file for entry in candidates]
        name = ArchiveFileName(
            min(file.least for file in files),
            max(file.greatest for file in files),
            files[0].level + 1,
        )
        if any(entry.file == name for entry in snapshot.manifest.entries):
            return None
        path = self._path(name.file_name)
        rows = MergedRows(self._storage, [self._path(file.file_name) for file in files])
        is_there = self._has_made(path, rows)
        started = self._world.elapsed_ms()  # not before: to make it may take minutes
        if not is_there or not self._is_young(path):
            return None
        size = self._size(path)
        if size is None or self._world.elapsed_ms() - started > STALE_MS:
            return None
        merged = set(files)
        kept = [entry for entry in snapshot.manifest.entries if entry.file not in merged]
        published = self._publish(snapshot, Manifest((*kept, ManifestEntry(name, size))))
        if published is not None and self._storage.stat(path) is None:  # swept up while we slept
            self._storage.create_from(path, encoded_archive_file(rows.tables()))
        return published

    def _has_made(self, path: str, rows: MergedRows) -> bool:
        """Whether the file is there: made now, or by another archiver of the same rows.

        A look first, for to make a large one and find it there costs minutes too.
        """
        if self._storage.stat(path) is None:
            data = encoded_archive_file(rows.tables())
            if self._storage.create_from(path, data) is not None:
                return True
        return self._has_rows(path, rows)

    def _has_rows(self, path: str, rows: MergedRows) -> bool:
        """Whether another archiver merged the same instants."""
        times = self._times(path)
        return times is not None and times.equals(rows.times()) is True

    def _is_young(self, path: str) -> bool:
        """Whether the file is far from the age at which it may be swept up.

        Without a grace it may be at once: then nobody else archives, and only sleep counts.
        """
        found = self._storage.stat(path)
        if found is None:
            return False
        now_ms = StoreClock(self._storage, self._world).read_ms()
        return now_ms - found.modified_ms <= (self._policy.grace_ms // 2 or STALE_MS)

    # -- sweeping up

    def tidy(self, now_ms: int) -> tuple[str, ...]:
        """Remove old manifests, and files that no manifest lists; what was removed.

        What was looked at too long ago is left: others may rely on it by now.
        """
        started = self._world.elapsed_ms()
        objects = self._listed()
        manifests = self._manifests(objects)
        before_ms = now_ms - self._policy.grace_ms
        newest = sorted(manifests)[-self._policy.manifests_kept :]
        old = [n for n in manifests if n not in newest and manifests[n].modified_ms <= before_ms]
        listed = {
            entry.file.file_name
            for number in manifests.keys() - set(old)
            for entry in self._load_manifest(number).entries
        }
        rubbish = [
            stat.path
            for stat in objects
            if stat.path.endswith(".parquet")
            and file_name(stat.path) not in listed
            and stat.modified_ms <= before_ms
        ]
        if rubbish:  # somebody may have found a use for one since
            later = self._manifests(self._listed()).keys() - manifests.keys()
            entries = (entry for number in later for entry in self._load_manifest(number).entries)
            used = {self._path(entry.file.file_name) for entry in entries}
            rubbish = [path for path in rubbish if path not in used]
        removed = [*(manifests[number].path for number in sorted(old)), *rubbish]
        left = {stat.path for stat in objects} - set(removed)
        removed += [p for p in sorted(left) if is_checksum(p) and checked_path(p) not in left]
        for count, path in enumerate(removed):
            self._require_lock()
            if self._world.elapsed_ms() - started > STALE_MS:
                return tuple(removed[:count])
            self._storage.delete(path)
        return tuple(removed)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


@dataclass(frozen=True, slots=True)
class Added:
    """Instants that are in the archive now."""

    snapshot: Snapshot
    instants: tuple[ArchivedInstant, ...]


def merge_candidates(
    manifest: Manifest, level: int, policy: ArchivePolicy
) -> tuple[ManifestEntry, ...]:
    """The oldest files of a level that is too long, neighbours, and not too large together."""
    files = sorted(
        (entry for entry in manifest.entries if entry.file.level == level),
        key=lambda entry: entry.file,
    )
    if len(files) < policy.merge_files:
        return ()
    chosen: list[ManifestEntry] = []
    for entry in files:
        if sum(one.size for one in chosen) + entry.size > policy.merge_bytes_max:
            if len(chosen) > 1:
                break
            chosen.clear()  # large enough by itself
        if entry.size <= policy.merge_bytes_max:
            chosen.append(entry)
        if len(chosen) == policy.merge_files:
            break
    return tuple(chosen) if len(chosen) > 1 else ()
