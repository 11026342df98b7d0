"""A read as a source of Polars: what a lazy query needs of the columns and rows is read, no more.

Polars says which columns a query uses and by which filter. The conjuncts of the filter that can be
translated skip files and row groups. Polars applies the whole filter to what was read.
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
            why=f"polars {pl.__version__} takes no sources from others",
            next_step="Install a newer one with pip install -U polars, or take to_polars()",
        ) from None

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        first = min((n for n in (limit, rows) if n is not None), default=None)
        # A limit counts rows before they are filtered, so such a read takes them as they come.
        chosen = plan if predicate is None or first is not None else _skipping(plan, predicate)
        chosen = narrowed(chosen, columns) if columns else chosen
        for batch in read_rows(storage, chosen, first):
            frame = pl.DataFrame(batch)
            yield frame if predicate is None else frame.filter(predicate)

    schema = pl.DataFrame(plan.spec.output.empty_table()).schema
    return register_io_source(frames, schema=schema)


def _skipping(plan: ScanPlan, predicate: pl.Expr) -> ScanPlan:
    """The plan without what cannot match, as far as the predicate can be translated."""
    for conjunct in translated_conjuncts(predicate):
        try:
            plan = narrowed(plan, where=conjunct)
        except InvalidRequestError:  # it compares what `where` does not compare
            continue
    return plan
