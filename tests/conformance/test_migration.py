"""A table that pyhudi migrates from simple to consistent buckets: both judges read it at every
moment, and Apache Hudi goes on with it as with any table of consistent buckets."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.rows import assert_same_rows, encoded_rows, spark_columns
from conformance.test_consistent_buckets import SCHEMA, Judged, hudi_options, rows
from opened_tables import opening_on
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.services.migration import run
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world
from pyhudi.write.begin import ready

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

RINGS = pyhudi.ConsistentBuckets(4)


class Migrated(Judged):
    """A table with simple buckets, and what it must hold."""

    def create(self, partition_by: str) -> pyhudi.Table:
        return pyhudi.create_table(
            self.path,
            SCHEMA,
            name="t",
            record_key="id",
            partition_by=partition_by or (),
            ordering="ts",
            concurrency="optimistic",
            buckets=3,
            upkeep=False,
        )

    def begin(self) -> None:
        """Leave the table as a process does that dies when it has begun to migrate."""
        opening = opening_on(open_storage(str(self.path)), real_world())
        session = opening.session()
        run._announce(opening, session, run._target(session.config, RINGS))
        assert isinstance(ready(opening).config.buckets, MigratingBuckets)

    def migrate_one(self, partition: str) -> None:
        """Give one partition its ring, and die."""
        opening = opening_on(open_storage(str(self.path)), real_world())
        run._Migration(opening, RINGS, lambda _: None)._migrate(ready(opening), partition)

    def agree_by_key(self, key: str) -> None:
        """A reader that looks for one key must not take the file groups by the wrong kind."""
        where = f"id = '{key}'"
        ours = pyhudi.open_table(self.path).read(where=where, meta=True).to_arrow()
        assert ours.num_rows == 1
        name = f"t{uuid4().hex}"  # the judge knows a name for as long as it runs
        text, tables = f"SELECT * FROM {name} WHERE {where}", {name: str(self.path)}
        found = self._judge.ask("sql", text=text, tables=tables)
        assert_same_rows(ours, found)


@pytest.mark.parametrize("partition_by", ["day", ""], ids=["by day", "not partitioned"])
def test_hudi_reads_a_table_while_it_is_migrated_and_writes_it_afterwards(
    judge: JudgeClient, tmp_path: Path, partition_by: str
) -> None:
    judged = Migrated(judge, tmp_path / "t")
    table = judged.create(partition_by)
    table.upsert(judged.holding(rows(0, 40, 1)))
    table.upsert(judged.holding(rows(20, 60, 2)))
    judged.begin()
    judged.agree()
    judged.migrate_one("monday" if partition_by else "")
    table.upsert(judged.holding(rows(50, 80, 3)))
    judged.agree()
    for key in ("k2", "k3"):
        judged.agree_by_key(key)
    assert table.services.migrate_buckets().is_done
    judged.agree()
    table.upsert(judged.holding(rows(70, 90, 4)))
    table.alter.use_lock("file")

    def hudi_upserts(given: pa.Table) -> None:
        options = hudi_options(partition_by, 4)
        judge.hudi_write(judged.path, encoded_rows(given), spark_columns(SCHEMA), options)

    hudi_upserts(judged.holding(rows(0, 100, 5)))
    judged.agree()
    table.upsert(judged.holding(rows(10, 30, 6)))
    hudi_upserts(judged.holding(rows(20, 50, 7)))
    judged.agree()


@pytest.mark.parametrize("engine", [None, "SIMPLE", "CONSISTENT_HASHING"])
def test_hudi_does_not_write_a_table_that_is_being_migrated(
    judge: JudgeClient, tmp_path: Path, engine: str | None
) -> None:
    judged = Migrated(judge, tmp_path / "t")
    table = judged.create("day")
    table.upsert(judged.holding(rows(0, 40, 1)))
    judged.begin()
    options = hudi_options("day", 4)
    del options["hoodie.index.bucket.engine"]
    options |= {} if engine is None else {"hoodie.index.bucket.engine": engine}
    with pytest.raises(JudgeError):
        judge.hudi_write(judged.path, encoded_rows(rows(0, 80, 2)), spark_columns(SCHEMA), options)
    judged.agree()
