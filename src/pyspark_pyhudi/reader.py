"""Reading through Spark 4's Python Data Source: the same plans and tasks as `table.read()`.

Spark gives such a source no column pruning. Name the columns by `.schema(...)` or by the option
`columns`; `table.read(columns=[...]).to_spark()` is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as api

from pyhudi.api.open import open_table
from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.read_options import COLUMNS, WHERE
from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.sql import to_sql
from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Operator,
    Predicate,
)
from pyhudi.plan.scan import Split
from pyhudi.read.slice import read_split
from pyhudi.spark.scan import refuse_other_release
from pyhudi.version import __version__
from pyspark_pyhudi.address import parse_address

_NO_PATH = (
    "Spark gives no location for a table of its catalog that was created with columns",
    "Write .format(\"pyhudi\").load(path); in SQL, CREATE TABLE ... USING pyhudi LOCATION 'path',"
    " without columns",
)


def opened_table(options: dict[str, str]) -> tuple[Table, dict[str, str]]:
    """Return the table, and the options that describe the read."""
    address, others = parse_address(options, unless=_NO_PATH)
    return open_table(address.uri, storage_options=address.storage_options), others


class PyhudiPartition(api.InputPartition):
    """A split with all that its task needs, because only the split is sent to the task."""

    def __init__(self, split: Split, scan: Scan) -> None:
        super().__init__(None)
        self.split = split
        self.spec = scan.plan.spec
        self.storage = scan.storage


class PyhudiReader(api.DataSourceReader):
    def __init__(self, options: dict[str, str], columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed: tuple[Predicate, ...] = ()
        self._release = __version__

    def partitions(self) -> Sequence[api.InputPartition]:
        table, options = opened_table(self._options)
        options[COLUMNS] = ",".join(self._columns)
        if where := self._where(options.get(WHERE)):
            options[WHERE] = where
        scan = table.read_with_hudi_options(options)
        return [PyhudiPartition(split, scan) for split in scan.plan.splits()]

    def _where(self, given: str | None) -> str | None:
        parts = [*((parse_predicate(given),) if given else ()), *self._pushed]
        if not parts:
            return None
        return to_sql(parts[0] if len(parts) == 1 else And(tuple(parts)))

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PyhudiPartition)
        refuse_other_release(self._release)
        return read_split(partition.storage, partition.spec, partition.split)


class PushdownReader(PyhudiReader):
    """A reader that Spark may push its filters to.

    Spark refuses any reader that has this method while `spark.sql.python.filterPushdown.enabled` is
    false, its default. So the user confirms by an option that it is on.
    """

    def pushFilters(  # noqa: N802  # the name is Spark's
        self, filters: list[api.Filter]
    ) -> Iterable[api.Filter]:
        """Prune and filter by these. Return them all, so that Spark applies them again."""
        known = (_predicate(pushed) for pushed in filters)
        self._pushed = tuple(predicate for predicate in known if predicate is not None)
        return filters


#: By the names of Spark's classes, because Spark 4.0 does not have them.
_OPERATORS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.NULL_SAFE_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
}


def _predicate(pushed: Any) -> Predicate | None:
    """Return Spark's filter as our tree; None for filters that are left to Spark."""
    try:
        return _known_predicate(pushed)
    except InvalidRequestError:  # the tree does not accept some values, such as NaN
        return None


def _known_predicate(pushed: Any) -> Predicate | None:
    kind = type(pushed).__name__
    if kind in _OPERATORS:
        return Comparison(_OPERATORS[kind], Column(pushed.attribute), Literal(pushed.value))
    if kind == "In":
        return In(Column(pushed.attribute), tuple(map(Literal, pushed.value)))
    if kind in ("IsNull", "IsNotNull"):
        return IsNull(Column(pushed.attribute), negated=kind == "IsNotNull")
    return None
