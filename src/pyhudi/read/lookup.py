"""Looking up, beside the data, what a table holds for some buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pyhudi.index.routing import Place
from pyhudi.index.simple_bucket import bucket_of_file
from pyhudi.plan.scan import ReadSpec, ScanPlan, SliceRead, Split
from pyhudi.read.slice import read_split
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import RECORD_KEY


class Lookup:
    """The rows of each bucket as of one moment. A plan that travels with a task."""

    def __init__(self, spec: ReadSpec, reads: Mapping[Place, SliceRead]) -> None:
        self._spec = spec
        self._reads = reads

    @classmethod
    def of(cls, plan: ScanPlan) -> Lookup:
        places = ((read.slice.partition, bucket_of_file(read.slice.file_id)) for read in plan.reads)
        return cls(plan.spec, dict(zip(places, plan.reads, strict=True)))

    def rows(self, storage: Storage, place: Place) -> Iterator[pa.RecordBatch]:
        if place in self._reads:
            yield from read_split(storage, self._spec, Split((self._reads[place],)))

    def keys(self, storage: Storage, place: Place) -> pa.Array:
        """The record keys of a bucket."""
        found = [batch.column(RECORD_KEY) for batch in self.rows(storage, place)]
        return pa.concat_arrays(found) if found else pa.array([], pa.string())

    def places_of(self, bucket: int) -> list[Place]:
        """The bucket in all partitions."""
        return sorted(place for place in self._reads if place[1] == bucket)
