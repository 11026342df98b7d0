"""Columns change while a resize or a compaction is pending, and all readers find the same ones.

Hudi and hudi-rs take the columns of the commit with the greatest request, be it a write or a table
service, and as of a time Hudi takes those of the last commit requested by then.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.resized import SCHEMA, Kind, OwnTable, Row
from pyhudi.services.compaction.run import compactions

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

NARROW = pa.schema(
    [*SCHEMA, ("size", pa.int32()), ("share", pa.float32()), ("price", pa.decimal128(10, 2))]
)
WIDE = pa.schema(
    [*SCHEMA, ("size", pa.int64()), ("share", pa.float64()), ("price", pa.decimal128(20, 2))]
)
BEYOND_INT = 1 << 40
KIND = Kind(schema=NARROW)


class WideningTable(OwnTable):
    """A table whose number columns get wider."""

    def widen(self) -> None:
        """Let rows have wider types from now on, and values that need them."""
        self.schema = WIDE

    def _row(self, number: int) -> Row:
        is_wide = self.schema is WIDE
        size = number + (BEYOND_INT if is_wide else 0)
        share = number / 4 + (0.1 if is_wide else 0)
        price = Decimal(number) / 4 + (10**12 if is_wide else 0)
        more = {"size": size, "share": share, "price": price.quantize(Decimal("0.01"))}
        return {**super()._row(number), **more}

    def plan(self, service: str) -> str:
        """Plan a service of one partition's buckets, or of all that have logs."""
        if service == "resize":
            return self.plan_split(2, ("mo",))
        planned = compactions(self.session()).schedule()
        assert planned is not None
        return planned

    def carry_out(self, service: str, requested: str) -> None:
        if service == "resize":
            self.execute(requested)
        else:
            compactions(self.session()).execute(requested, is_forced=True)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("service", "ends"),
    [
        ("resize", "after it"),
        pytest.param("resize", "before its end", marks=LONG),
        pytest.param("compaction", "after it", marks=LONG),
        pytest.param("compaction", "before its end", marks=LONG),
    ],
)
def test_all_readers_find_the_wide_types_of_a_write_that_began_before_a_service(
    judge: JudgeClient, tmp_path: Path, service: str, ends: str
) -> None:
    """As of the service's request Hudi has its narrow types; docs/differences.md says so."""
    table = WideningTable(judge, tmp_path / "table", KIND)
    table.upsert(range(12))
    table.upsert(range(6))
    table.widen()
    early = table.held(range(7, 15, 2), schema_mode="add")
    requested = table.plan(service)
    if ends == "before its end":
        early()
    table.carry_out(service, requested)
    if ends == "after it":
        early()
    table.agree()
    ours = table.open().read(as_of=pyhudi.RequestedTime(requested)).to_arrow().to_pylist()
    theirs = judge.hudi_rows(table.path, as_of=requested, columns=["id", "size"])
    wide = {row["id"]: row["size"] for row in ours if row["size"] >= BEYOND_INT}
    assert len(wide) == 4
    cut = {row["id"]: row["size"] for row in theirs if row["id"] in wide}
    assert cut == {key: size - BEYOND_INT for key, size in wide.items()}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(KIND, id="non-blocking"),
        pytest.param(replace(KIND, is_optimistic=True), id="optimistic", marks=LONG),
    ],
)
def test_all_readers_agree_where_types_are_widened_while_a_resize_is_pending(
    judge: JudgeClient, tmp_path: Path, kind: Kind
) -> None:
    """Base files, copies and moved logs have rows of both types; then all are compacted."""
    table = WideningTable(judge, tmp_path / "table", kind)
    table.upsert(range(16))
    early = table.held([0, 1, 40, 41])
    resize = table.plan_split(2)
    early()
    table.upsert(range(8, 20))
    table.widen()
    table.upsert(range(12, 24), schema_mode="add")
    late = table.held([2, 3, 50, 51])
    table.agree()
    table.execute(resize)
    assert late().moved == 4
    table.upsert(range(4, 8))
    table.agree()
    table.agree_on_the_past()
    table.agree_on_changes(table.ranges()[-3:])
    table.open().services.compact()
    table.agree()
