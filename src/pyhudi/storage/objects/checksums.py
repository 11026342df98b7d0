"""Checksums that Hadoop writes beside each of its files on a local disk: `.NAME.crc` for `NAME`.

Hadoop does not read a file with a wrong checksum. So a process that replaces a file which Hudi
wrote removes its checksum first, and a process that removes the file removes the checksum too.
"""

from __future__ import annotations

from pyhudi.format.paths import file_name


def checksum_path(path: str) -> str:
    """
    >>> checksum_path("a/b")
    'a/.b.crc'
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def is_checksum(path: str) -> bool:
    name = file_name(path)
    return name.startswith(".") and name.endswith(".crc")


def checked_path(path: str) -> str:
    """Return the path of the file to which a checksum belongs.

    >>> checked_path("a/.b.crc")
    'a/b'
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name[1:].removesuffix('.crc')}"
