"""Writes that cannot go well: the error says why, and the table is as before."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, sha2

import pyhudi
from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.spark.worker_setup import worker_python
from pyhudi.version import __version__
from spark.drivers.verbs import SCHEMA, create, row, rows_of, unknown_files

pytestmark = pytest.mark.spark

_FIRST = [row(number) for number in range(12)]
_NOBODY = 65534  # the user id that owns nothing
_FILE_BYTES = 64 << 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with some rows."""
    table = create(str(tmp_path / "table"))
    table.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in _FIRST]))
    return tmp_path / "table"


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Rows that could be written."""
    columns = "id string, day string, ts long, note string, size long"
    return spark.createDataFrame([row(number, 2, "b") for number in range(6, 18)], columns)


Change = Callable[[DataFrame], DataFrame]

_WRONG: dict[str, tuple[Change, str]] = {
    "no record key": (lambda rows: rows.drop("id"), "id"),
    "no ordering value": (lambda rows: rows.drop("ts"), "ts"),
    "no partition column": (lambda rows: rows.drop("day"), "day"),
    "a column that the table lacks": (lambda rows: rows.withColumn("odd", lit(1)), "odd"),
    "a column of another type": (lambda rows: rows.withColumn("ts", col("note")), "ts"),
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_rows_of_a_wrong_schema_are_refused_before_anything_begins(
    wrong: str, rows: DataFrame, path: Path
) -> None:
    change, named = _WRONG[wrong]
    before = _files(path)
    with pytest.raises(InvalidRequestError, match=named):
        pyhudi.open_table(path).upsert(change(rows))
    assert _files(path) == before


def _files(path: Path) -> dict[str, int]:
    """All that is there, with its size; but not what openers leave for each other."""
    return {
        found.relative_to(path).as_posix(): found.stat().st_size
        for found in path.rglob("*")
        if found.is_file() and ".pyhudi" not in found.parts
    }


def test_a_folder_that_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(HudiError, match=str(tmp_path)):
        pyhudi.open_table(tmp_path)


def test_storage_that_is_read_only_is_told(rows: DataFrame, path: Path) -> None:
    pyhudi.open_table(path).upsert(rows)
    before = _files(path)
    again = rows.withColumn("note", lit("c"))
    with _read_only(path), pytest.raises(HudiError, match=r"(?i)permission"):
        pyhudi.open_table(path).upsert(again)
    assert _files(path) == before
    pyhudi.open_table(path).upsert(again)
    assert {r[3] for r in rows_of(str(path))} == {"a", "c"}
    assert not unknown_files(path)


@contextmanager
def _read_only(path: Path) -> Iterator[None]:
    """Nobody may write below the folder. Permissions do not bind root, who becomes nobody."""
    is_root = os.geteuid() == 0
    closed = [path, *(found for found in path.rglob("*") if found.is_dir())]
    passed = [found for found in path.parents if not found.stat().st_mode & 0o001]
    changed = dict.fromkeys(closed, 365) | {p: 0o711 for p in passed if is_root}
    modes = {folder: folder.stat().st_mode for folder in changed}
    for folder, mode in changed.items():
        folder.chmod(mode)
    try:
        if is_root:
            os.seteuid(_NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for folder, mode in modes.items():
            folder.chmod(mode)


def test_executors_with_another_release_are_refused(
    spark: SparkSession, rows: DataFrame, path: Path, tmp_path: Path
) -> None:
    package = Path(pyhudi.__file__).parent
    other = tmp_path / "other" / package.name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, other, ignore=ignored)
    (other / "version.py").write_text('__version__ = "99.1"\n')
    with _workers_find(other.parent, spark), pytest.raises(InvalidRequestError) as refused:
        pyhudi.open_table(path).upsert(rows)
    assert "99.1" in str(refused.value)
    assert __version__ in str(refused.value)
    shutil.rmtree(other / "spark")  # as if the release did not have it yet
    with (
        _workers_find(other.parent, spark),
        pytest.raises(UnavailableError, match="the executors do not have this pyhudi") as missing,
    ):
        pyhudi.open_table(path).upsert(rows)
    assert f"their Python, {os.environ['PYSPARK_PYTHON']}, cannot load it" in str(missing.value)
    assert f"this process runs {sys.executable} with pyhudi {__version__}" in str(missing.value)
    assert rows_of(str(path)) == frozenset(_FIRST)
    assert not unknown_files(path)


def test_a_python_of_the_executors_that_was_not_chosen_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert worker_python(spark) == "python3 (PYSPARK_PYTHON is not set)"


@contextmanager
def _workers_find(folder: Path, spark: SparkSession) -> Iterator[None]:
    """Python workers look there first, as with `spark.executorEnv.PYTHONPATH`."""
    environment = spark.sparkContext.environment
    environment["PYTHONPATH"] = str(folder)
    # Another environment takes other workers; this makes it another one each time.
    environment["PYHUDI_TEST_WORKERS"] = str(uuid.uuid4())
    try:
        yield
    finally:
        del environment["PYTHONPATH"], environment["PYHUDI_TEST_WORKERS"]


def test_a_full_disk_in_a_task_is_told_and_the_next_writer_cleans_up(
    spark: SparkSession, path: Path
) -> None:
    rows = _incompressible(spark)
    pyhudi.open_table(path).upsert(rows.limit(10))  # so that there are workers to disturb
    before = rows_of(str(path))
    with _files_limited(), pytest.raises(UnavailableError, match=r"(?i)large|space"):
        pyhudi.open_table(path).upsert(rows)
    assert rows_of(str(path)) == before
    assert not unknown_files(path)
    pyhudi.open_table(path).upsert(rows)
    assert len(rows_of(str(path))) == len(_FIRST) + rows.count()
    assert not unknown_files(path)
    assert not list(path.rglob("*.tmp*"))


def _incompressible(spark: SparkSession) -> DataFrame:
    """Rows whose files are larger than the limit."""
    text = concat(*(sha2((col("id") + n).cast("string"), 512) for n in range(4)))
    return spark.range(1_000, 7_000, 1, 2).select(
        concat(lit("k"), "id").alias("id"),
        concat(lit("d"), col("id") % 2).alias("day"),
        lit(2).cast("long").alias("ts"),
        text.alias("note"),
        lit(7).cast("long").alias("size"),
    )


@contextmanager
def _files_limited() -> Iterator[None]:
    """No Python worker of Spark may write a file larger than the limit.

    To the program that is as if the disk were full; only the error's number differs. Processes
    that start later take the limit over from the one that starts them.
    """
    pids = _python_workers()
    assert pids
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, most) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FILE_BYTES, most))
    try:
        yield
    finally:
        for pid in {*pids, *_python_workers()}:
            with suppress(ProcessLookupError):
                most = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


def _python_workers() -> list[int]:
    """Spark's, among the descendants of this process."""
    parents: dict[int, int] = {}
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            stat = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        parents[int(place.name)] = int(stat[1])
        if b"pyspark.daemon" in command:
            found.append(int(place.name))
    return [pid for pid in found if _descends(pid, parents)]


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
