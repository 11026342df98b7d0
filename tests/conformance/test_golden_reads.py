"""Every read that Apache Hudi recorded of its own tables, by the local engine."""

from __future__ import annotations

import pytest

import pyhudi
from golden_reads import differences, hudi_options, keep_score, recorded_reads
from golden_tables import NAMES, GoldenTables, load_description

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_read_gives_hudis_rows(golden: GoldenTables, name: str) -> None:
    table = pyhudi.open_table(golden.path(name))
    reads = recorded_reads(golden.description(name))
    wrong = {}
    for read in reads:
        scan = table.read_with_hudi_options(hudi_options(read["how"]))
        rows = scan.to_arrow().to_pylist(maps_as_pydicts="strict")
        if difference := differences(read["rows"], rows):
            wrong[read["name"]] = difference
    keep_score("local", name, len(reads) - len(wrong), len(reads))
    assert not wrong


def test_all_three_hundred_recorded_reads_are_there() -> None:
    assert sum(len(recorded_reads(load_description(name))) for name in NAMES) == 300


@pytest.mark.parametrize("name", NAMES)
def test_slices_hold_the_files_that_hudi_joins(golden: GoldenTables, name: str) -> None:
    description = golden.description(name)
    merged = {
        (s["partition"], s["file_id"], s["base_file"], *sorted(_data_logs(s["log_files"])))
        for s in description["file_slices"]
        if s["view"] == "merged"
    }
    plan = pyhudi.open_table(golden.path(name)).read().plan
    ours = {
        (
            read.slice.partition,
            read.slice.file_id,
            read.slice.base.name.file_name if read.slice.base else None,
            *sorted(log.name.file_name for log in read.slice.logs),
        )
        for read in plan.reads
    }
    assert ours == merged


def _data_logs(names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".cdc")]
