"""Paths made to escape, against every storage: none leaves the root, and most are refused."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from pyhudi.errors import CorruptTableError, HudiError
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

CLIMBS = [
    *["..", "../..", "a/..", "a/../..", "day=1/../../..", "./..", ".../..", "..//..", "a/./.."],
    *["", "/", "//", "///", ".", "./.", "a//", "a/.", "~/..", "..\\..", "a\\..\\..", "\\", "C:\\"],
    *["file:/", "file://", "file:///", "FILE:/", "s3://", "memory://", "http://host", "C:/"],
    *["..\0", "\0", "a\n..", "\r\n..", "\x1b[2J", "\x7f", "\x85", "..\t", "\ud800", "\udcff.."],
]
GOALS = ["canary", "outside/canary", "etc/passwd", "{outside}/canary", "canary\0", "x/../../canary"]
ENCODED = [
    *["..%2Fcanary", "%2e%2e/canary", "%2E%2E%2Fcanary", "..%252Fcanary", "%2fetc%2fpasswd"],
    *["day=..%2F..%2Foutside%2Fcanary", "%00", "a%5C..%5Ccanary", "..;/canary", "....//canary"],
    *["..%c0%af/canary", "\u2025/canary", "\uff0e\uff0e/canary", "..\u2215canary", "~root/canary"],
    *["$HOME/canary", "`id`", "$(id)", "| id", "; rm -rf *", "-rf", "--", "nul", "con/aux"],
    *["*", "?", "[a-z]", "{outside}canary", "x" * 4_000, "y/" * 2_040 + "y", "z" * 1_000_000],
]
HOSTILE = [f"{climb}/{goal}" for climb, goal in itertools.product(CLIMBS, GOALS)]
HOSTILE += [f"{climb}{goal}" for climb in CLIMBS[:10] for goal in GOALS[:2]]
HOSTILE += CLIMBS + ENCODED + [quote(climb, safe="") for climb in CLIMBS[:9]]

OPERATIONS: list[Callable[[Storage, str], object]] = [
    lambda storage, path: storage.create(path, b"dead"),
    lambda storage, path: storage.create_from(path, [b"dead"]),
    lambda storage, path: storage.write(path, b"dead"),
    lambda storage, path: storage.replace(path, b"dead", etag="x"),
    lambda storage, path: storage.read(path),
    lambda storage, path: storage.read_ranges(path, [(0, 1)]),
    lambda storage, path: storage.stat(path),
    lambda storage, path: list(storage.list(path)),
    lambda storage, path: list(storage.list("", after=path)),
    lambda storage, path: storage.list_folder(path),
    lambda storage, path: storage.open(path).close(),
    lambda storage, path: storage.delete(path),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, s3_options: dict[str, str]) -> World:
    return World(tmp_path_factory.mktemp("world"), s3_options)


class World:
    """A table on each storage, and canaries around the one on disk."""

    def __init__(self, folder: Path, s3_options: dict[str, str]) -> None:
        self.outside = folder / "outside"
        self.root = folder / "tables/table"
        self.canaries = [folder / "canary", self.outside / "canary", folder / "tables/canary"]
        for canary in self.canaries:
            canary.parent.mkdir(parents=True, exist_ok=True)
            canary.write_bytes(b"alive")
        self.before = self.seen()
        self.storages = [
            MemoryStorage(lambda: 0),
            open_storage(str(self.root)),
            open_storage("s3://a-bucket/hostile/table", s3_options),
        ]

    def seen(self) -> list[tuple[str, bytes]]:
        """Everything outside of the table on disk."""
        found = []
        for folder, folders, files in os.walk(self.outside.parent):
            folders[:] = [name for name in folders if Path(folder, name) != self.root]
            found += [Path(folder, name) for name in files]
        return sorted((str(path), path.read_bytes()) for path in found)


def test_there_are_enough_values() -> None:
    assert len(set(HOSTILE)) >= 300


@pytest.mark.parametrize("value", sorted(set(HOSTILE)), ids=lambda value: f"{value[:20]!a}")
def test_hostile_path_reaches_nothing_outside(world: World, value: str) -> None:
    path = value.replace("{outside}", str(world.outside))
    for storage in world.storages:
        refused = sum(is_refused(operation, storage, path) for operation in OPERATIONS)
        # The empty path is the root, which may be listed.
        assert refused in (0, len(OPERATIONS) if path else len(OPERATIONS) - 3)
    assert world.seen() == world.before


def is_refused(operation: Callable[[Storage, str], object], storage: Storage, path: str) -> bool:
    """Whether the path itself was refused; that nothing is there, or fits, is another matter."""
    try:
        operation(storage, path)
    except CorruptTableError:
        return True
    except (HudiError, FileNotFoundError):
        return False
    return False
