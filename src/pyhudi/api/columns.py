"""The columns of a table, as a user sees them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.format.table.column_owners import RANK_COLUMN


class TableSchema:
    """The table's columns, as `read()` returns them: without Hudi's five meta columns.

    `read(meta=True).schema` has those too.
    """

    def __init__(self, arrow: pa.Schema) -> None:
        self.arrow = arrow

    @property
    def data_columns(self) -> list[str]:
        """The names of the user's columns, without the rank that pyhudi adds to a joined table."""
        return [name for name in self.arrow.names if name != RANK_COLUMN]

    def __arrow_c_schema__(self) -> Any:
        return self.arrow.__arrow_c_schema__()

    def __repr__(self) -> str:
        return str(self.arrow)
