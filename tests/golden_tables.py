"""The golden tables: small tables that Apache Hudi wrote, with the rows it reads from them.

`golden/README.md` is their catalogue. Each is an archive `NAME.tar.gz` and a description
`NAME.json`. Test modules take `NAMES` from here to parametrize, and the fixture `golden` to read.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def load_description(name: str) -> dict[str, Any]:
    """How the table was made, what it holds, and what every recorded read returned."""
    description: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return description


def unpack(name: str, into: Path) -> Path:
    """Write the table `name` below `into` and return its base path."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / name


class GoldenTables:
    """Unpacks a table the first time a test asks for it. Tests read these and never write them."""

    names = NAMES

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        unpacked = self._folder / name
        return unpacked if unpacked.exists() else unpack(name, self._folder)

    def description(self, name: str) -> dict[str, Any]:
        return load_description(name)
