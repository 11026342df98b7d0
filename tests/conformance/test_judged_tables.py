"""Both judges and pyhudi read the same rows from tables that Hudi wrote and from handmade ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import (
    BlockFormat,
    Columns,
    Combination,
    KeyShape,
    MergeMode,
    Partitioning,
    TableKind,
    Version,
)
from conformance.rows import assert_same_rows, spark_columns
from conformance.sample_rows import ORDERING, Sample
from golden_reads import differences, hudi_options, recorded_reads
from golden_tables import NAMES, load_description, unpack
from handmade import HandmadeTable, at
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.partition_metadata import (
    PARTITION_METADATA_FILE,
    partition_metadata,
)
from pyhudi.format.timeline.instant import instant_time
from pyhudi.storage.open import open_storage

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

QUICK = ("cow_part_v9", "mor_parquet_logs", "mor_avro_logs_with_deletes", "mor_simple_bucket_v8")

#: Tables whose snapshot hudi-rs cannot read; `golden/README.md` says why.
RS_CANNOT_READ = ("mor_all_types", "mor_list_nulls", "mor_schema_evolved")


@pytest.mark.parametrize("name", QUICK)
def test_three_readers_agree_on_a_golden_table(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    path = unpack(name, tmp_path)
    ours = pyhudi.open_table(path).read(meta=True).to_arrow()
    assert_same_rows(ours, judge.hudi_rows(path))
    assert_same_rows(ours, judge.rs_rows(path))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_hudi_still_gives_every_recorded_read(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    path = unpack(name, tmp_path)
    table = pyhudi.open_table(path)
    for read in recorded_reads(load_description(name)):
        rows = judge.hudi_rows(path, **read["how"])
        assert not differences(read["rows"], rows), read["name"]
        ours = table.read_with_hudi_options(hudi_options(read["how"])).to_arrow()
        assert_same_rows(ours, rows)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in RS_CANNOT_READ])
def test_hudi_rs_agrees_on_every_golden_snapshot(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    path = unpack(name, tmp_path)
    assert_same_rows(pyhudi.open_table(path).read(meta=True).to_arrow(), judge.rs_rows(path))


@pytest.mark.long
@pytest.mark.parametrize("name", RS_CANNOT_READ)
def test_the_known_gaps_of_hudi_rs_are_still_there(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    path = unpack(name, tmp_path)
    with pytest.raises(JudgeError):
        judge.rs_rows(path)


def test_a_table_nobody_wrote_to_is_empty(judge: JudgeClient, tmp_path: Path) -> None:
    schema = _sample(Columns.SCALARS).schema
    created = {"hoodie.table.create.schema": json.dumps(avro_record_schema(schema, "handmade"))}
    HandmadeTable(open_storage(str(tmp_path)), schema, ordering=ORDERING, properties=created)
    (tmp_path / ".hoodie" / "timeline" / "history").mkdir(parents=True)
    assert pyhudi.open_table(tmp_path).read().to_arrow().num_rows == 0
    assert judge.hudi_rows(tmp_path) == []
    assert judge.rs_rows(tmp_path) == []
    assert judge.hudi_timeline(tmp_path) == []
    assert judge.hudi_schema(tmp_path) == spark_columns(schema)


@pytest.mark.parametrize("columns", Columns)
@pytest.mark.parametrize("blocks", BlockFormat)
def test_three_readers_agree_on_every_type_in_every_block(
    judge: JudgeClient, tmp_path: Path, columns: Columns, blocks: BlockFormat
) -> None:
    sample = _sample(columns)
    table = HandmadeTable(open_storage(str(tmp_path)), sample.schema, ordering=ORDERING)
    created = partition_metadata("", instant_time(at(1)))
    (tmp_path / PARTITION_METADATA_FILE).write_bytes(created)
    rows = [sample.row(n, written=1, seen_at=1) for n in range(40)]
    table.begin(1)
    table.complete(1, 2, [table.base(1, rows)])
    changed = [sample.row(n, written=2, seen_at=n % 3) for n in range(20, 60)]
    block = table.rows_block(3, changed, avro=blocks is BlockFormat.AVRO)
    table.begin(3)
    table.complete(3, 4, [table.log(3, block)])
    ours = pyhudi.open_table(tmp_path).read(meta=True).to_arrow()
    assert ours.num_rows == 60
    assert_same_rows(ours, judge.hudi_rows(tmp_path))
    assert_same_rows(ours, judge.rs_rows(tmp_path))
    assert judge.hudi_schema(tmp_path) == spark_columns(ours.schema)


def _sample(columns: Columns) -> Sample:
    return Sample(
        Combination(
            TableKind.MOR,
            Version.NINE,
            Partitioning.NONE,
            KeyShape.TEXT,
            MergeMode.EVENT_TIME,
            BlockFormat.PARQUET,
            columns,
        )
    )
