"""Changes gathered for the file groups they go to, as far as memory allows.

Input comes as a stream of batches and is evaluated once. Each batch is checked as it comes, so
what fits in memory is known to be good before anything is written. A write that is larger than
that puts out the fullest file groups, each as another log file of the same instant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import Place, Placed, latest_per_key, placed, refuse_null_ordering
from pyhudi.table.large_columns import one_batch
from pyhudi.table.rows.input_rows import conformed
from pyhudi.write.files.spec import DeleteRows, KeyedRows


def ordering_columns(config: TableConfig, names: Collection[str]) -> tuple[str, ...]:
    """The columns by which rows of these columns are ordered; none where the commit decides."""
    is_event_time = config.merge_mode is MergeMode.EVENT_TIME_ORDERING
    ordered = is_event_time and set(config.ordering_fields) <= set(names)
    return config.ordering_fields if ordered else ()


@dataclass(slots=True)
class _Pending:
    rows: list[Placed] = field(default_factory=list)
    bytes: int = 0


class GatheredRows:
    """Rows to write, by partition and bucket."""

    def __init__(self, config: TableConfig, schema: pa.Schema) -> None:
        assert config.buckets is not None
        self._config = config
        self._buckets = config.buckets
        self._schema = schema
        # An update need not have all columns; without its ordering value, the last row counts.
        self._ordering = ordering_columns(config, schema.names)
        self._groups: dict[Place, _Pending] = {}
        self.bytes = 0

    def fill(self, batches: Iterator[pa.RecordBatch], bytes_max: int | None) -> bool:
        """Take batches until there are so many bytes of them; True when there are no more."""
        for batch in batches:
            self._add(conformed(batch, self._schema))
            if bytes_max is not None and self.bytes >= bytes_max:
                return False
        return True

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        refuse_null_ordering(batch, self._ordering)
        count, fields = self._buckets.count, self._buckets.hash_fields
        for group in placed(batch, self._config, count, fields):
            pending = self._groups.setdefault((group.partition, group.bucket), _Pending())
            size = max(1, batch.nbytes * group.rows.num_rows // batch.num_rows)
            pending.rows.append(group)
            pending.bytes += size
            self.bytes += size

    def partitions(self) -> list[str]:
        return sorted({partition for partition, _ in self._groups})

    def taken(self, bytes_left: int = 0) -> Iterator[tuple[Place, KeyedRows]]:
        """Groups, taken out until no more than so many bytes are left; all of them for 0."""
        places = sorted(self._groups)
        if bytes_left:
            places.sort(key=lambda place: -self._groups[place].bytes)
        for place in places:
            if bytes_left and self.bytes <= bytes_left:
                return
            pending = self._groups.pop(place)
            self.bytes -= pending.bytes
            yield place, self._one_per_key(pending.rows)

    def kept(self) -> Iterator[tuple[Place, KeyedRows]]:
        """All groups, which stay here: the write may have to be repeated."""
        for place in sorted(self._groups):
            yield place, self._one_per_key(self._groups[place].rows)

    def _one_per_key(self, groups: list[Placed]) -> KeyedRows:
        keys, rows = groups[0].keys, groups[0].rows
        if len(groups) > 1:
            rows = one_batch([group.rows for group in groups])
            keys = pa.concat_arrays([group.keys for group in groups])
        keys, rows = latest_per_key(keys, rows, self._ordering, event_time=bool(self._ordering))
        return KeyedRows(rows, keys)


@dataclass(frozen=True, slots=True)
class GatheredDeletes:
    """Deletes to write, by partition and bucket."""

    groups: dict[Place, DeleteRows]

    def partitions(self) -> list[str]:
        return sorted({partition for partition, _ in self.groups})
