"""Record keys, partition paths and buckets of tables that Apache Hudi wrote, made again.

Every golden and awkward table holds what Hudi made of its columns, in the meta columns of each row.
What pyhudi makes of the same columns must be the same, or one key would have two rows.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import golden_tables
import pyhudi
from golden_tables import GoldenTables
from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import PARTITION_FIELDS, TableConfig
from pyhudi.index.layout import SimpleRule
from pyhudi.index.routing import Routing, prepared
from pyhudi.read.load import load_config
from pyhudi.storage.open import open_storage
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys
from pyhudi.table.schema import FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY

pytestmark = pytest.mark.conformance

AWKWARD = Path(__file__).parents[1] / "awkward"


def described(path: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads(path.read_bytes())
    return description


AWKWARD_NAMES = sorted(
    path.stem for path in AWKWARD.glob("*.json") if "refused" not in described(path)
)
#: Written with a key generator that formats times.
FORMATTED = ["cow_custom_keys", "cow_timestamp_keys", "mor_custom_keys", "mor_timestamp_keys"]
#: A partition field is a double, and its text is not for us to make.
WITH_DOUBLE = ["cow_typed_partitions", "mor_typed_partitions"]
#: Values with slashes, not encoded: Hudi writes them, pyhudi refuses.
SLASHED = ["cow_slashed_partition"]
PLAIN = [n for n in AWKWARD_NAMES if n not in (*FORMATTED, *WITH_DOUBLE, *SLASHED)]


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    for name in AWKWARD_NAMES:
        with tarfile.open(AWKWARD / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def config_of(table: Path) -> TableConfig:
    return load_config(open_storage(str(table)))


def rows_of(table: Path, config: TableConfig) -> list[pa.RecordBatch]:
    """The rows of a snapshot, and those of every base file, deleted ones among them."""
    found = [pyhudi.open_table(table).read(meta=True).to_arrow()]
    if not config.drop_partition_columns:
        files = (p for p in table.rglob("*.parquet") if ".hoodie" not in p.parts)
        found += [pq.ParquetFile(path).read() for path in files]
    return [batch for rows in found for batch in rows.combine_chunks().to_batches()]


def columns_of(batch: pa.RecordBatch, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


def assert_made_again(table: Path) -> None:
    config = config_of(table)
    for batch in rows_of(table, config):
        data = batch.drop_columns(list(META_COLUMNS))
        keys, paths = record_keys(data, config), partition_paths(data, config)
        made = list(zip(keys.to_pylist(), paths.to_pylist(), strict=True))
        assert made == columns_of(batch, RECORD_KEY, PARTITION_PATH)


@pytest.mark.parametrize("name", golden_tables.NAMES)
def test_golden_keys_and_paths_are_made_again(golden: GoldenTables, name: str) -> None:
    assert_made_again(golden.path(name))


@pytest.mark.parametrize("name", PLAIN)
def test_awkward_keys_and_paths_are_made_again(awkward: Path, name: str) -> None:
    assert_made_again(awkward / name)


@pytest.mark.parametrize("name", WITH_DOUBLE)
def test_paths_of_many_types_are_made_again_but_for_doubles(awkward: Path, name: str) -> None:
    config = config_of(awkward / name)
    fields = [field for field in config.partition_fields if field != "f"]
    values = {**config.properties.values, PARTITION_FIELDS: ",".join(fields)}
    without = TableConfig.of(TableProperties(values))
    place = config.partition_fields.index("f")
    for batch in rows_of(awkward / name, config):
        whole = [path.split("/") for path in batch.column(PARTITION_PATH).to_pylist()]
        want = ["/".join([*path[:place], *path[place + 1 :]]) for path in whole]
        assert partition_paths(batch, without).to_pylist() == want
        assert record_keys(batch, config) == batch.column(RECORD_KEY)
        with pytest.raises(InvalidRequestError, match="'f' cannot be a partition field"):
            partition_paths(batch, config)


@pytest.mark.parametrize("name", SLASHED)
def test_slashes_that_hudi_left_in_paths_are_refused(awkward: Path, name: str) -> None:
    config = config_of(awkward / name)
    for batch in rows_of(awkward / name, config):
        with pytest.raises(InvalidRequestError, match=r"a folder inside a folder.*'2026/0"):
            partition_paths(batch, config)


@pytest.mark.parametrize("name", FORMATTED)
def test_tables_whose_paths_are_formatted_are_not_written(awkward: Path, name: str) -> None:
    config = config_of(awkward / name)
    batch = rows_of(awkward / name, config)[0]
    for made in (record_keys, partition_paths):
        with pytest.raises(UnsupportedTableError, match=f"key generator {config.key_generator}"):
            made(batch, config)


@pytest.mark.parametrize("name", ["mor_simple_bucket_v8", "mor_simple_bucket_v9", "mor_nbcc"])
def test_golden_rows_are_routed_where_hudi_put_them(golden: GoldenTables, name: str) -> None:
    table = golden.path(name)
    config = config_of(table)
    count = int(golden.description(name)["options"]["hoodie.bucket.index.num.buckets"])
    rows = pyhudi.open_table(table).read(meta=True).to_arrow().combine_chunks().to_batches()[0]
    written = [
        FileGroupId(path, file.lstrip(".").partition("_")[0])
        for path, file in columns_of(rows, PARTITION_PATH, FILE_NAME)
    ]
    rule = SimpleRule(SimpleBuckets(count).resolved(config.record_key_fields))
    routing = Routing(rule, rule.layouts_of(written))
    groups = list(routing.split(prepared(rows, config)))
    assert sum(routed.rows.num_rows for routed in groups) == rows.num_rows
    for routed in groups:
        for key, path, file in columns_of(routed.rows, RECORD_KEY, PARTITION_PATH, FILE_NAME):
            assert key in routed.keys.to_pylist()
            assert FileGroupId(path, file.lstrip(".").partition("_")[0]) == routed.group
