"""Names of data files and of the markers that announce them.

    base file   <file id>_<write token>_<requested>.<extension>
    log file    .<file id>_<requested>.log.<version>_<write token>[.cdc]
    marker      <path of the data file>.marker.<io type>

A listing of a large table holds hundreds of thousands of names, so parsing cuts the text at its
separators, uses no regular expression, and yields tuples. A name that does not fit exactly is not
that of a data file and gives None: partition metadata, checksum side files and unrelated files lie
in the same folders. Whatever parses is written back as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Self

from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import InstantTime, is_instant_time

BASE_EXTENSIONS = frozenset({"parquet", "orc", "hfile", "lance"})
CDC_SUFFIX = ".cdc"

_VERSION_DIGITS_MAX = 10  # a 32-bit number
_WRITE_TOKEN_LENGTH_MAX = 64  # three 64-bit numbers and two hyphens


class WriteToken(NamedTuple):
    """Which attempt of which task wrote a file: Spark's task partition, stage and attempt."""

    partition: int
    stage: int
    attempt: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        if not (text.isascii() and _is_write_token(text)):
            return None
        partition, stage, attempt = text.split("-")
        return cls(int(partition), int(stage), int(attempt))

    @property
    def text(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """A file group: its file id is unique within the partition path."""

    partition: str
    file_id: str


class BaseFileName(NamedTuple):
    """The name of a base file: the rows of a file group as of its requested time."""

    file_id: str
    write_token: str
    requested: InstantTime
    extension: str = "parquet"

    @property
    def file_name(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.requested}.{self.extension}"


class LogFileName(NamedTuple):
    """The name of a log file: changes that one instant wrote to a file group."""

    file_id: str
    requested: InstantTime
    version: int
    write_token: str
    suffix: str = ""  # or ".cdc": row images for change queries, never to be merged

    @property
    def file_name(self) -> str:
        name = f".{self.file_id}_{self.requested}.log.{self.version}_{self.write_token}"
        return name + self.suffix

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Return the sort key in merge order: versions compare as numbers, write tokens as text."""
        return (self.requested, self.version, self.write_token, self.suffix)


def parse_data_file(name: str) -> BaseFileName | LogFileName | None:
    """Return the data file that a bare file name (no folder) names; None if it names none.

    >>> parse_data_file("a1-0_0-21-19_20260102030405678.parquet").file_id
    'a1-0'
    >>> parse_data_file(".hoodie_partition_metadata") is None
    True
    """
    if not name.isascii() or "/" in name:
        return None
    return _parse_log_file(name) if name[:1] == "." else _parse_base_file(name)


def _parse_base_file(name: str) -> BaseFileName | None:
    stem, _, extension = name.rpartition(".")
    parts = stem.split("_")
    if extension not in BASE_EXTENSIONS or len(parts) != 3 or "." in stem:
        return None
    file_id, token, requested = parts
    if is_instant_time(requested) and _is_write_token(token) and file_id:
        return BaseFileName(file_id, token, InstantTime(requested), extension)
    return None


def _parse_log_file(name: str) -> LogFileName | None:
    parts = name.split("_")
    if len(parts) != 3:
        return None
    file_id, middle, token = parts
    requested, _, version = middle.partition(".log.")
    token, dot, kind = token.partition(".")
    if (dot and kind != "cdc") or not _is_number(version) or "." in file_id[1:]:
        return None
    if is_instant_time(requested) and _is_write_token(token) and file_id != ".":
        suffix = CDC_SUFFIX if dot else ""
        return LogFileName(file_id[1:], InstantTime(requested), int(version), token, suffix)
    return None


def _is_number(text: str) -> bool:
    """True if the text is decimal without leading zeros.

    Then the number alone gives the text back.
    """
    if not text.isdigit() or len(text) > _VERSION_DIGITS_MAX:
        return False
    return text[0] != "0" or text == "0"


def _is_write_token(text: str) -> bool:
    parts = text.split("-")
    if len(parts) != 3 or len(text) > _WRITE_TOKEN_LENGTH_MAX:
        return False
    return parts[0].isdigit() and parts[1].isdigit() and parts[2].isdigit()


@lru_cache(maxsize=1024)  # the markers of a write under way are listed again and again
def group_of_path(path: str) -> FileGroupId | None:
    """Return the file group of a data file by its path in the table; None for other files.

    >>> group_of_path("day=1/a-0_0-1-2_20260101000000000.parquet")
    FileGroupId(partition='day=1', file_id='a-0')
    """
    partition, _, name = path.rpartition("/")
    file = parse_data_file(name)
    return None if file is None else FileGroupId(partition, file.file_id)


class IoType(StrEnum):
    """What the writer did to the file group. Since table version 8 logs are CREATE too."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


_IO_TYPES = {io_type.value: io_type for io_type in IoType}


@dataclass(frozen=True, slots=True)
class MarkerName:
    """A file that an instant may leave behind, announced before it exists."""

    data_file: str  # path relative to the table: <partition>/<name>, or the bare name
    io_type: IoType

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Parse a path below the instant's marker folder; None for other files there."""
        data_file, _, io_type = path.rpartition(".marker.")
        found = _IO_TYPES.get(io_type)
        name = file_name(data_file)
        if found is None or parse_data_file(name) is None:
            return None
        return cls(data_file, found)

    @property
    def path(self) -> str:
        """The path below the instant's marker folder."""
        return f"{self.data_file}.marker.{self.io_type}"

    @property
    def is_of_base(self) -> bool:
        """True if the file is a base file; otherwise it is a log."""
        return isinstance(parse_data_file(file_name(self.data_file)), BaseFileName)

    @property
    def file_group(self) -> FileGroupId:
        """The file group that the instant touches."""
        group = group_of_path(self.data_file)
        assert group is not None, "a marker names a data file"
        return group
