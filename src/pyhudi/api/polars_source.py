"""A read as a source of Polars: only the columns and rows that a lazy query needs are read.

Polars passes the columns that a query uses and its filter. The conjuncts of the filter that can be
translated skip files and row groups. Polars applies the whole filter to the rows that were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.from_polars import translated_conjuncts
from pyhudi.plan.scan import ScanPlan, narrowed
from pyhudi.read.slice import read_rows
from pyhudi.storage.protocol import Storage

if TYPE_CHECKING:
    import polars as pl


def lazy_frame(storage: Storage, plan: ScanPlan, limit: int | None) -> pl.LazyFrame:
    import polars as pl

    try:
        from polars.io.plugins import register_io_source
    except ImportError:
        raise InvalidRequestError(
            "the rows cannot be given to Polars as a lazy frame",
            why=f"polars {pl.__version__} does not support sources of other libraries",
            next_step="Install a newer one with pip install -U polars, or call to_polars()",
        ) from None

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        first = min((n for n in (limit, rows) if n is not None), default=None)
        # A limit counts rows before they are filtered, so such a read skips nothing.
        chosen = plan if predicate is None or first is not None else _skipping(plan, predicate)
        chosen = narrowed(chosen, columns) if columns else chosen
        for batch in read_rows(storage, chosen, first):
            frame = pl.DataFrame(batch)
            yield frame if predicate is None else frame.filter(predicate)

    schema = pl.DataFrame(plan.spec.output.empty_table()).schema
    return register_io_source(frames, schema=schema)


def _skipping(plan: ScanPlan, predicate: pl.Expr) -> ScanPlan:
    """Return the plan without what cannot match, as far as the predicate can be translated."""
    for conjunct in translated_conjuncts(predicate):
        try:
            plan = narrowed(plan, where=conjunct)
        except InvalidRequestError:  # it has a comparison that `where` does not have
            continue
    return plan
