"""Writing the archive: files, manifests, and the version that says which manifest counts.

    1  a new parquet file                 no reader sees it
    2  manifest_<n+1>, if there is none   of several archivers, one continues from snapshot n
    3  _version_ from n to n+1            readers see it

The second step decides. The third is repeated by any archiver that finds it missing, and the
version only increases, so an archiver that slept cannot set it back. An instant's own files are
removed after the third step. So a crash leaves a file that no manifest lists, or a manifest that is
not current yet, or instants that are both active and archived. The next archiver finishes or
removes them.

A file's name has the first and the last instant of the file, not those in between. If another
archiver, or a dead one, used the name for other instants, this one archives fewer instants, and so
uses another name.

Ten files of a level are merged into one of the next level, so that a table of any age has a few
dozen. Rows are copied from file to file a few at a time, in the order of their requested times,
each instant once.
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
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.services.archiving.archive_merge import MergedRows, load_times
from pyhudi.storage.objects.checksums import checked_path, checksum_path, is_checksum
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World

#: An archiver that took longer than this since it made a file starts again, because the file may
#: have been swept up.
STALE_MS = 60_000
#: How often an archiver tries to increase the version, if it loses each time to another one.
VERSION_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The archive by one manifest; number 0 is that of a table without an archive."""

    number: int
    manifest: Manifest

    @property
    def greatest(self) -> str:
        """The latest requested time of all archived instants."""
        return max((entry.file.greatest for entry in self.manifest.entries), default="")


class ArchiveFiles:
    """The archive's folder, as an archiver sees it.

    `may_go_on` returns True if the table still has the same lock, and if that lock is still held
    where one guards the table.
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
        """Return the newest snapshot, after completing its last step if that is missing."""
        version = self._version() or 0
        for number in sorted(self._manifests(self._listed()), reverse=True):
            try:
                manifest = self._load_manifest(number)
            except CorruptTableError:
                if number <= version:
                    raise
                # Hudi may die while it writes one. It never was current, so no reader needs it.
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
        """Raise CorruptTableError if a manifest that is to become current is not whole."""
        for entry in manifest.entries:
            found = self._storage.stat(self._path(entry.file.file_name))
            if found is None or found.size != entry.size:
                raise CorruptTableError(
                    f"snapshot {number} of the archive is not whole",
                    why=f"{entry.file.file_name} is missing or has another size, and the archiver"
                    " that needed it died",
                    next_step=f"Remove {manifest_name(number)}; its instants are still active",
                    path=self._path(manifest_name(number)),
                )

    def require_newest(self, snapshot: Snapshot) -> None:
        """Raise an error with a remedy if the archive's last file is missing.

        Called when the archive could not be read. If another process swept the file up while it was
        added, and its archiver died, its instants are still active.
        """
        number = snapshot.number
        added = [entry.file for entry in snapshot.manifest.entries if entry.file.level == 0]
        newest = max(added, key=lambda file: file.greatest, default=None)
        if newest is None or self._storage.stat(self._path(newest.file_name)) is not None:
            return
        before = f"write {number - 1} into" if number > 1 else "remove"
        raise CorruptTableError(
            f"snapshot {number} of the archive is not whole",
            why=f"{newest.file_name} is missing. Perhaps its archiver died before it could make it"
            " again",
            next_step=f"If the instants {newest.least} to {newest.greatest} are on the active"
            f" timeline, stop archiving, {before} {VERSION_FILE}, and remove"
            f" {manifest_name(number)}: they are archived again. Else restore the file from a copy",
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
        """Set the version to this number, unless it is already as high."""
        path, data = self._path(VERSION_FILE), encode_archive_version(number)
        for _ in range(VERSION_ROUNDS):
            found = self._storage.stat(path)  # before the read, so that its etag is not later
            if found is None:
                if self._storage.create(path, data):
                    return
                continue
            version = self._version()
            if version is not None and version >= number:
                return
            assert found.etag is not None
            if self._has_checksums:  # else Hudi would refuse the new version
                self._storage.delete(checksum_path(path))
            if self._replaced(path, data, found.etag):
                return
        raise UnavailableError(
            f"snapshot {number} of the archive could not be made current",
            why=f"other archivers changed {VERSION_FILE} in each of {VERSION_ROUNDS} rounds",
            next_step="Archive again; nothing is lost",
        )

    def _replaced(self, path: str, data: bytes, etag: str) -> bool:
        try:
            return self._storage.replace(path, data, etag=etag) is not None
        except InvalidRequestError:  # the store cannot replace; then do what Hudi always does
            self._storage.delete(path)
            return self._storage.create(path, data)

    # -- adding

    def add(self, snapshot: Snapshot, instants: Sequence[ArchivedInstant]) -> Added | None:
        """Publish a snapshot that has these instants, or the first of them, too.

        The instants are sorted by requested time. Return None if another archiver was faster.
        """
        started = self._world.elapsed_ms()
        for count in range(len(instants), 0, -1):
            some = instants[:count]
            name, data = archive_file_name(some), encode_archive_file(some)
            path = self._path(name.file_name)
            if any(entry.file == name for entry in snapshot.manifest.entries):
                continue  # other instants between the same two
            if not self._storage.create(path, data) and not self._can_reuse(path, some):
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
            why="the file that would hold it exists, and holds something else",
            next_step="Remove that file if no manifest lists it and no process is archiving the"
            " table",
            path=self._path(alone.file_name),
        )

    def _can_reuse(self, path: str, instants: Sequence[ArchivedInstant]) -> bool:
        """True if an existing file can be used.

        A file that is not recent was left by a dead archiver, and is about to be swept up, perhaps
        by a process that has not seen our manifest. Then fewer instants are archived, under another
        name. A single instant has no other name.
        """
        return self._has_instants(path, instants) and (len(instants) == 1 or self._is_recent(path))

    def _has_instants(self, path: str, instants: Sequence[ArchivedInstant]) -> bool:
        """True if the file is what another archiver made of the same instants.

        Hudi may die while it writes a file, and leave a part of it.
        """
        rows = [(i.requested, i.completed, i.action) for i in instants]
        times = self._times(path)
        if times is None:
            return False
        columns = (times[name].to_pylist() for name in TIMES)
        return list(zip(*columns, strict=True)) == rows

    def _times(self, path: str) -> pa.Table | None:
        """Return the times of another archiver's file; None if it is not whole, or gone."""
        try:
            return load_times(self._storage, path)
        except CorruptTableError:
            return None
        except UnavailableError:
            if self._storage.stat(path) is None:
                return None
            raise  # it may have our instants

    def _size(self, path: str) -> int | None:
        found = self._storage.stat(path)
        return None if found is None else found.size

    def _publish(self, snapshot: Snapshot, manifest: Manifest) -> Snapshot | None:
        """Publish and return the next snapshot; None if another archiver has made one."""
        self._require_lock()
        number = snapshot.number + 1
        path, data = self._path(manifest_name(number)), encode_manifest(manifest)
        if not self._created(path, data):
            return None
        self._require_lock()
        self._move_version(number)
        if not self._has_bytes(path, data):
            return None  # another engine used the number: its lock, or ours, was lost
        return Snapshot(number, manifest)

    def _has_bytes(self, path: str, data: bytes) -> bool:
        try:
            return self._storage.read(path, 0, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def _created(self, path: str, data: bytes) -> bool:
        """True if the object exists with these bytes, also if the reply to its create was lost."""
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
                why="the table's lock was lost, ends too soon, or has been changed",
                next_step="Archive again. That run finishes what this one began",
            )

    # -- merging levels

    def merge(self, snapshot: Snapshot) -> tuple[Snapshot, int]:
        """Merge levels that are too long; return the snapshot and how many files were merged."""
        merged = level = 0
        while candidates := merge_candidates(snapshot.manifest, level, self._policy):
            published = self._merge(snapshot, candidates)
            if published is None:
                break  # another archiver is merging
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
        started = self._world.elapsed_ms()  # not before, because making it may take minutes
        if not is_there or not self._is_recent(path):
            return None
        size = self._size(path)
        if size is None or self._world.elapsed_ms() - started > STALE_MS:
            return None
        merged = set(files)
        others = [entry for entry in snapshot.manifest.entries if entry.file not in merged]
        published = self._publish(snapshot, Manifest((*others, ManifestEntry(name, size))))
        if published is not None and self._storage.stat(path) is None:  # swept up while we slept
            self._storage.create_from(path, encoded_archive_file(rows.tables()))
        return published

    def _has_made(self, path: str, rows: MergedRows) -> bool:
        """True if the file exists: made now, or made by another archiver from the same rows.

        Storage is asked first, because making a large file only to find that it exists costs
        minutes, too.
        """
        if self._storage.stat(path) is None:
            data = encoded_archive_file(rows.tables())
            if self._storage.create_from(path, data) is not None:
                return True
        return self._has_rows(path, rows)

    def _has_rows(self, path: str, rows: MergedRows) -> bool:
        """True if the file has the same instants, merged by another archiver."""
        times = self._times(path)
        return times is not None and times.equals(rows.times()) is True

    def _is_recent(self, path: str) -> bool:
        """True if the file is far from the age at which it may be swept up.

        Without a grace it may be swept up at once. Then no other process archives, and only the
        time that this one sleeps counts.
        """
        found = self._storage.stat(path)
        if found is None:
            return False
        now_ms = StoreClock(self._storage, self._world).read_ms()
        return now_ms - found.modified_ms <= (self._policy.grace_ms // 2 or STALE_MS)

    # -- sweeping up

    def tidy(self, now_ms: int) -> tuple[str, ...]:
        """Remove old manifests, and files that no manifest lists; return what was removed.

        What was listed too long ago is left, because other processes may need it by now.
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
        unlisted = [
            stat.path
            for stat in objects
            if stat.path.endswith(".parquet")
            and file_name(stat.path) not in listed
            and stat.modified_ms <= before_ms
        ]
        if unlisted:  # another archiver may have used one since
            later = self._manifests(self._listed()).keys() - manifests.keys()
            entries = (entry for number in later for entry in self._load_manifest(number).entries)
            used = {self._path(entry.file.file_name) for entry in entries}
            unlisted = [path for path in unlisted if path not in used]
        removed = [*(manifests[number].path for number in sorted(old)), *unlisted]
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
    """Instants that were added to the archive, and the snapshot that has them."""

    snapshot: Snapshot
    instants: tuple[ArchivedInstant, ...]


def merge_candidates(
    manifest: Manifest, level: int, policy: ArchivePolicy
) -> tuple[ManifestEntry, ...]:
    """Return the oldest adjacent files of a level that is too long, if they are not too large."""
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
