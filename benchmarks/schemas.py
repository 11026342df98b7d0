"""Schemas of 2,000 columns: what a commit that meets another schema has to work out.

Three schemas differ: another write added columns and widened some, and so did the own one. Timed
are the strategies, and all that a completion does: parse, resolve, encode, fingerprint.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from measure import verdict

from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas, schema_to_record
from pyhudi.conflict.schemas import ReconcileSchemaStrategy, SchemaStrategy, SimpleSchemaStrategy
from pyhudi.format.avro.schema import avro_record_schema

COLUMNS = 2_000
TURNS = 20
RESOLVE_MS_MAX = 20.0

_TYPES = (pa.string(), pa.int32(), pa.float32(), pa.decimal128(10, 2), pa.list_(pa.int32()))


def text_of(schema: pa.Schema) -> TableSchemaText:
    return TableSchemaText(json.dumps(avro_record_schema(schema, "wide")))


def start_schema() -> pa.Schema:
    fields = [pa.field(f"c{n}", _TYPES[n % len(_TYPES)]) for n in range(COLUMNS - 1)]
    return pa.schema([pa.field("id", pa.string(), nullable=False), *fields])


def evolved(schema: pa.Schema, name: str, nth: int) -> pa.Schema:
    """Every nth int becomes a long, and ten columns are added."""
    fields = [
        field.with_type(pa.int64()) if field.type == pa.int32() and n % nth == 0 else field
        for n, field in enumerate(schema)
    ]
    return pa.schema([*fields, *(pa.field(f"{name}{n}", pa.string()) for n in range(10))])


def median_ms(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(TURNS):
        began = time.perf_counter()
        act()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def main() -> bool:
    print(f"schemas: {COLUMNS:,} columns, which two writes evolved at the same time")
    schema = start_schema()
    start = text_of(schema)
    now = text_of(evolved(schema, "theirs", 2))
    own = text_of(evolved(schema, "ours", 3))
    strategies: dict[str, SchemaStrategy] = {
        "reconcile": ReconcileSchemaStrategy(),
        "simple": SimpleSchemaStrategy(),
    }
    met = []
    for name, strategy in strategies.items():
        schemas = (start.arrow, now.arrow, own.arrow)
        taken = median_ms(lambda strategy=strategy, schemas=schemas: strategy.resolve(*schemas))
        met.append(verdict(f"milliseconds to resolve, {name}", taken, RESOLVE_MS_MAX))
    completion = WriteSchemas(start, own, fixed=("id",), table_name="wide")
    whole = median_ms(lambda: schema_to_record(completion, now))
    print(f"  all of a completion that reconciles, parsed schemas cached: {whole:.0f} ms")
    same = WriteSchemas(start, start, fixed=("id",), table_name="wide")
    print(f"  where nothing changed: {median_ms(lambda: schema_to_record(same, start)):.2f} ms")
    return all(met)


if __name__ == "__main__":
    raise SystemExit(not main())
