"""The golden archives and their descriptions belong together."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from golden_tables import FOLDER, NAMES, GoldenTables, load_description, unpack


def test_every_archive_has_a_description() -> None:
    archives = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))
    assert archives == NAMES
    assert len(NAMES) == 28


@pytest.mark.parametrize("name", NAMES)
def test_archive_holds_exactly_the_files_described(name: str, golden: GoldenTables) -> None:
    table = golden.path(name)
    sizes = {
        path.relative_to(table).as_posix(): path.stat().st_size
        for path in table.rglob("*")
        if path.is_file()
    }
    assert sizes == golden.description(name)["files"]


def test_every_recorded_read_is_there() -> None:
    recorded = [read["how"] for name in NAMES for read in load_description(name)["reads"]]
    assert sum(how.get("query_type") != "cdc" for how in recorded) == 300


def test_an_archive_that_leaves_its_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaping = tmp_path / "escaping.tar.gz"
    with tarfile.open(escaping, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    monkeypatch.setattr("golden_tables.FOLDER", tmp_path)
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack("escaping", tmp_path / "inside")
