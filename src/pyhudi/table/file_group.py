"""File groups and file slices: the files that hold one set of record keys over time.

A file group has one file id. Its base files and log files form slices: a base file together with
the log files whose rows came after it. Slices are keyed by a base instant time, the requested time
of the base file, or of a pending compaction that will write one, or of the first log file where
there is no base file at all.
"""

from __future__ import annotations

from typing import NamedTuple

from pyhudi.format.files.file_names import BaseFileName, LogFileName


class BaseFile(NamedTuple):
    path: str
    size: int
    name: BaseFileName


class LogFile(NamedTuple):
    path: str
    size: int
    name: LogFileName


class FileSlice(NamedTuple):
    partition: str
    file_id: str
    base_instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...]

    @property
    def bytes(self) -> int:
        return (self.base.size if self.base else 0) + sum(log.size for log in self.logs)

    @property
    def old_logs(self) -> tuple[LogFile, ...]:
        """The logs that are older than their base file.

        Their writes began before it was planned and completed after that. Only their completion
        times say that they belong on top of it.
        """
        if self.base is None:
            return ()
        return tuple(log for log in self.logs if log.name.requested < self.base_instant)


class FileGroupFiles(NamedTuple):
    """All files of one group that a listing found, committed or not."""

    partition: str
    file_id: str
    bases: tuple[BaseFile, ...]
    logs: tuple[LogFile, ...]

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        return (*self.bases, *self.logs)
