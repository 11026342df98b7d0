"""The archived timeline: old instants, moved from files of their own into sorted parquet files.

    <least>_<greatest>_<level>.parquet   instants, sorted by requested time
    manifest_<n>                         JSON: the parquet files that make up snapshot n
    _version_                            text: the n that is current

A writer adds parquet files, then the next manifest, then replaces `_version_`; a file that the
current manifest does not list is garbage. New files have level 0 and merged ones the next level.

Reading wants the times of thousands of instants and the metadata of few, so the caller chooses the
columns. Everything here comes from storage: names are parsed before they are used as names, and the
sizes a parquet footer claims are checked before its pages are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.parquet_footer import decode_row_groups, excessive_claim
from pyhudi.format.files.piece_sink import PieceSink
from pyhudi.format.timeline.instant import InstantTime, is_instant_time
from pyhudi.format.timeline.metadata_schemas import ARCHIVED_INSTANT

VERSION_FILE: Final = "_version_"
VERSION_BYTES_MAX: Final = 20
MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
FILE_BYTES_MAX: Final = 512 * 1024 * 1024
INFLATED_BYTES_MAX: Final = 512 * 1024 * 1024
INFLATED_RATIO_MAX: Final = 200

TIMES: Final = ("instantTime", "completionTime", "action")  # what most questions need
CONTENTS: Final = ("metadata", "plan")  # the raw completed file, and the raw requested file

#: A row group of the files that we write ends at the first of these.
ROW_GROUP_INSTANTS: Final = 1_000
ROW_GROUP_BYTES: Final = 8 << 20
_PIECE_INSTANTS: Final = 100

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
ARCHIVE_SCHEMA: Final = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_FOOTER: Final = {
    "parquet.avro.schema": json.dumps(ARCHIVED_INSTANT, separators=(",", ":")),
    "writer.model.name": "avro",
}
_INSTANT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class ArchiveFileName:
    """The name of a parquet file: the range of requested times in it, and its level."""

    least: InstantTime
    greatest: InstantTime
    level: int

    @classmethod
    def parse(cls, file_name: str) -> Self:
        parts = file_name.removesuffix(".parquet").split("_")
        if file_name.endswith(".parquet") and len(parts) == 3:
            least, greatest, level = parts
            ordered = is_instant_time(least) and is_instant_time(greatest) and least <= greatest
            if ordered and _NUMBER.fullmatch(level):
                return cls(InstantTime(least), InstantTime(greatest), int(level))
        raise damaged_archive(
            f"{file_name[:200]!r} is not the name of an archive file",
            "expected <least>_<greatest>_<level>.parquet",
        )

    @property
    def file_name(self) -> str:
        return f"{self.least}_{self.greatest}_{self.level}.parquet"

    def overlaps(self, start: str, end: str) -> bool:
        """True if an instant requested in [start, end] could be in the file."""
        return self.least <= end and start <= self.greatest


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    file: ArchiveFileName
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot of the archive: all its parquet files."""

    entries: tuple[ManifestEntry, ...]


def manifest_name(version: int) -> str:
    return f"manifest_{version}"


def parse_manifest_name(file_name: str) -> int | None:
    """Return the snapshot's number; None if the file is not a manifest."""
    number = file_name.removeprefix("manifest_")
    return int(number) if number != file_name and _NUMBER.fullmatch(number) else None


def decode_archive_version(data: bytes, path: str) -> int:
    """Return the number of the current snapshot, from `_version_`."""
    text = data[:VERSION_BYTES_MAX].decode("latin-1").strip()
    if len(data) > VERSION_BYTES_MAX or not _NUMBER.fullmatch(text):
        raise damaged_archive("the archive's version cannot be read", "it is not a number", path)
    return int(text)


def encode_archive_version(version: int) -> bytes:
    return str(version).encode()


def decode_manifest(data: bytes, path: str) -> Manifest:
    if len(data) > MANIFEST_BYTES_MAX:
        why = f"it has {len(data)} bytes, more than {MANIFEST_BYTES_MAX}"
        raise damaged_archive("an archive manifest is too large", why, path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = f"it is not JSON ({type(error).__name__})"
        raise damaged_archive("an archive manifest cannot be decoded", why, path) from None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, list):
        raise damaged_archive(
            "an archive manifest cannot be decoded", "it has no list of files", path
        )
    entries = tuple(_entry(file, path) for file in files)
    if len({entry.file for entry in entries}) != len(entries):
        raise damaged_archive("an archive manifest cannot be decoded", "it has a file twice", path)
    return Manifest(entries)


def _entry(file: Any, path: str) -> ManifestEntry:
    name, size = (file.get("fileName"), file.get("fileLen")) if isinstance(file, dict) else (0, 0)
    if not isinstance(name, str) or type(size) is not int or size < 0:
        why = f"{file!r:.200} is not a file name and a length"
        raise damaged_archive("an archive manifest cannot be decoded", why, path)
    return ManifestEntry(ArchiveFileName.parse(name), size)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest, laid out as Hudi's JSON writer lays it out."""
    files = ", ".join(
        f'{{\n    "fileName" : "{entry.file.file_name}",\n    "fileLen" : {entry.size}\n  }}'
        for entry in manifest.entries
    )
    return f'{{\n  "files" : [ {files}{" " if files else ""}]\n}}'.encode()


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant with what its timeline files held."""

    requested: InstantTime
    completed: InstantTime
    action: str  # the completed one: an archived compaction is a commit
    metadata: bytes | None = None
    plan: bytes | None = None  # of a table service or a replace commit


def decode_archive_file(
    data: bytes | pa.NativeFile, path: str, columns: Sequence[str] = TIMES
) -> pa.Table:
    """Return the chosen columns of an archive file, one row per instant.

    An open file is read only where those columns are: metadata is most of an archive.
    """
    assert {*columns} <= {*ARCHIVE_SCHEMA.names}
    source = pa.BufferReader(data) if isinstance(data, bytes) else data
    size = source.size()
    if size > FILE_BYTES_MAX:
        why = f"it has {size} bytes, more than {FILE_BYTES_MAX}"
        raise damaged_archive("an archive file is too large", why, path)
    try:
        bytes_max = min(INFLATED_BYTES_MAX, INFLATED_RATIO_MAX * size)
        if claim := excessive_claim(decode_row_groups(source), columns, bytes_max):
            raise damaged_archive("an archive file cannot be decoded", claim, path)
        file = pq.ParquetFile(source)
        if missing := [name for name in columns if name not in file.schema_arrow.names]:
            raise damaged_archive("an archive file cannot be decoded", f"it lacks {missing}", path)
        table = file.read(columns=list(columns), use_threads=False).cast(
            pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns])
        )
    # pyarrow reports damage with either, and a column that is missing or null with the last two.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        why = f"pyarrow says {str(error)[:200]!r}"
        raise damaged_archive("an archive file cannot be decoded", why, path) from None
    if "instantTime" in columns and table["instantTime"].null_count:
        raise damaged_archive(
            "an archive file cannot be decoded", "an instant lacks its time", path
        )
    return table


def decode_archived_instants(data: bytes, path: str) -> tuple[ArchivedInstant, ...]:
    """Return every instant of an archive file, with its contents."""
    table = decode_archive_file(data, path, (*TIMES, *CONTENTS))
    times = (*table["instantTime"].to_pylist(), *table["completionTime"].to_pylist())
    if table["action"].null_count or not all(time and is_instant_time(time) for time in times):
        why = "an instant lacks a time or an action"
        raise damaged_archive("an archive file cannot be decoded", why, path)
    columns = (column.to_pylist() for column in table.columns)
    return tuple(ArchivedInstant(*row) for row in zip(*columns, strict=True))


def instants_table(instants: Sequence[ArchivedInstant]) -> pa.Table:
    """Return the instants as rows of an archive file, in the same order."""
    columns = [
        [instant.requested for instant in instants],
        [instant.completed for instant in instants],
        [instant.action for instant in instants],
        [instant.metadata for instant in instants],
        [instant.plan for instant in instants],
        [_INSTANT_VERSION] * len(instants),
    ]
    return pa.table(columns, schema=ARCHIVE_SCHEMA)


def encode_archive_file(instants: Sequence[ArchivedInstant]) -> bytes:
    """Return an archive file with these instants, which must be sorted by requested time."""
    requested = [instant.requested for instant in instants]
    assert requested == sorted(requested), "readers search archive files by requested time"
    return b"".join(encoded_archive_file([instants_table(instants)]))


def encoded_archive_file(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield an archive file of these rows, sorted by requested time, piece by piece.

    Row groups are small, so that a reader of one instant among a hundred thousand reads a few of
    them.
    """
    sink = PieceSink()
    # Without its own schema key pyarrow drops all others, hence the two set by hand. Statistics
    # and dictionaries of whole files would only store those files three times.
    with pq.ParquetWriter(
        sink,
        ARCHIVE_SCHEMA,
        compression="gzip",
        store_schema=False,
        use_dictionary=["action"],
        write_statistics=list(TIMES),
    ) as writer:
        for row_group in _row_groups(tables):
            writer.write_table(row_group, row_group_size=row_group.num_rows)
            yield sink.taken()
        writer.add_key_value_metadata(_FOOTER)
    yield sink.taken()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for start in range(0, table.num_rows, _PIECE_INSTANTS):
            piece = table.slice(start, _PIECE_INSTANTS)
            held.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= ROW_GROUP_INSTANTS or size >= ROW_GROUP_BYTES:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(held)


def archive_file_name(instants: Sequence[ArchivedInstant]) -> ArchiveFileName:
    """Return the name under which a file with these sorted instants is found again."""
    return ArchiveFileName(instants[0].requested, instants[-1].requested, 0)


def damaged_archive(what: str, why: str, path: str | None = None) -> CorruptTableError:
    next_step = "Restore the timeline's history folder from a copy of the table"
    return CorruptTableError(what, why=why, next_step=next_step, path=path)
