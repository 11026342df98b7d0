"""The archived timeline: opened only when a read depends on it, and only the files it needs.

Archive files never change, so what was learned from one is kept. Which files count is asked anew
each time: archiving goes on while a table is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.engine.timeline_files import load_timeline_file, missing_timeline_file
from pyhudi.format.archive import (
    MANIFEST_BYTES_MAX,
    TIMES,
    VERSION_BYTES_MAX,
    VERSION_FILE,
    ArchiveFileName,
    decode_archive_file,
    decode_archive_version,
    decode_manifest,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.commit_metadata import decode_commit_metadata
from pyhudi.format.instant import Action
from pyhudi.format.service_metadata import CLEAN, CleanMetadata
from pyhudi.plan.changes import CompletedWrite
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import WRITE_ACTIONS

_WRITES = pa.array([action.value for action in sorted(WRITE_ACTIONS)])


class History:
    """The archive of one table."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._times: dict[ArchiveFileName, pa.Table] = {}

    def completion_times(self, instants: frozenset[str]) -> Mapping[str, str]:
        """Requested time → completion time, for those of the instants that the archive knows."""
        if not instants:
            return {}
        wanted = pa.array(sorted(instants))
        first, last = min(instants), max(instants)
        found: dict[str, str] = {}
        for file in self._files():
            if file.overlaps(first, last):
                times = self._writes_of(file)
                hits = times.filter(pc.is_in(times["instantTime"], value_set=wanted))
                requested, completed = hits["instantTime"], hits["completionTime"]
                found.update(zip(requested.to_pylist(), completed.to_pylist(), strict=True))
        return found

    def writes(self, since: str, until: str) -> list[CompletedWrite]:
        """Archived writes that completed in (since, until], by completion time.

        A write may be archived soon after it completes, however long ago it was requested, so
        every file is asked: only completion times say what is in the range.
        """
        found: list[CompletedWrite] = []
        for file in self._files():
            done = self._writes_of(file)["completionTime"]
            inside = pc.and_(pc.greater(done, since), pc.less_equal(done, until))
            if pc.any(inside).as_py():
                found += self._load_writes(file, since, until)
        return sorted(found, key=lambda write: (write.completed, write.requested))

    def cleans(self) -> Iterator[CleanMetadata]:
        """What archived cleans removed and kept, the newest first."""
        for file in sorted(self._files(), key=lambda file: file.greatest, reverse=True):
            table = self._load(file, (*TIMES, "metadata"))
            cleans = table.filter(pc.equal(table["action"], Action.CLEAN.value))
            for row in cleans.sort_by([("instantTime", "descending")]).to_pylist():
                place = f"{self._folder}/{file.file_name} ({row['instantTime']})"
                yield CLEAN.decode(row["metadata"] or b"", place)

    def _files(self) -> tuple[ArchiveFileName, ...]:
        """The files of the current snapshot; none where nothing was ever archived."""
        version = self._version()
        if version is None:
            return ()
        path = f"{self._folder}/{manifest_name(version)}"
        data = load_timeline_file(self._storage, path, MANIFEST_BYTES_MAX)
        return tuple(entry.file for entry in decode_manifest(data, path).entries)

    def _version(self) -> int | None:
        """The current snapshot; the newest there is while Hudi rewrites the file that says so."""
        path = f"{self._folder}/{VERSION_FILE}"
        try:
            data = self._storage.read(path, 0, VERSION_BYTES_MAX + 1)
        except FileNotFoundError:
            data = b""
        if data:
            return decode_archive_version(data, path)
        names = (stat.path.rpartition("/")[2] for stat in self._storage.list(self._folder))
        return max((n for n in map(parse_manifest_name, names) if n is not None), default=None)

    def _writes_of(self, file: ArchiveFileName) -> pa.Table:
        """Times of the file's writes; clean, rollback and the like bring no rows."""
        if file not in self._times:
            times = self._load(file, TIMES)
            self._times[file] = times.filter(pc.is_in(times["action"], value_set=_WRITES))
        return self._times[file]

    def _load(self, file: ArchiveFileName, columns: tuple[str, ...]) -> pa.Table:
        path = f"{self._folder}/{file.file_name}"
        try:
            source = self._storage.open(path)
        except FileNotFoundError:
            raise missing_timeline_file(path) from None
        with source:
            table = decode_archive_file(source, path, columns)
        # Instants of upgraded tables may lack it: they count as completed when requested.
        completed = pc.coalesce(table["completionTime"], table["instantTime"])
        index = table.schema.get_field_index("completionTime")
        return table.set_column(index, "completionTime", completed)

    def _load_writes(self, file: ArchiveFileName, since: str, until: str) -> list[CompletedWrite]:
        path = f"{self._folder}/{file.file_name}"
        table = self._load(file, (*TIMES, "metadata"))
        done = table["completionTime"]
        inside = pc.and_(pc.greater(done, since), pc.less_equal(done, until))
        rows = table.filter(pc.and_(inside, pc.is_in(table["action"], value_set=_WRITES)))
        return [
            CompletedWrite(
                row["instantTime"],
                row["completionTime"],
                decode_commit_metadata(row["metadata"] or b"", f"{path} ({row['instantTime']})"),
            )
            for row in rows.to_pylist()
        ]
