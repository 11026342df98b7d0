"""The logs of a write that are copied where a resize has put, or is to put, their rows."""

from __future__ import annotations

from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.table.file_group import LogFile


def group_of(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id or "")


def log_of(stat: WriteStat) -> LogFile:
    name = parse_data_file(file_name(stat.data_path))
    assert isinstance(name, LogFileName), stat.data_path
    assert stat.file_size_in_bytes is not None, stat.data_path
    return LogFile(stat.data_path, stat.file_size_in_bytes, name)


def log_order(log: LogFile) -> tuple[int, str, str]:
    """Order logs as readers do in a file group; those of several groups share no key."""
    return log.name.version, log.name.write_token, log.name.file_id
