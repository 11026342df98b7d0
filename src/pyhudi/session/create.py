"""Creating a table, however many processes do so at once.

One create-if-absent of `hoodie.properties` decides. A process that loses it compares the existing
table with the requested one, and opens it if the two are alike in all that matters. A file in the
history folder comes first: Hudi's readers fail where there is no timeline folder, and object stores
have no empty ones. So at whatever step a creator dies, there is no table yet, or a whole one, and
the next creator continues from there.

The properties carry an id of their creation. A storage client that repeats a request may find the
name taken by its own first attempt, and a reply may get lost. The id distinguishes our bytes from
those of another creator.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyhudi.errors import TableExistsError, UnavailableError
from pyhudi.format.avro.schema import decode_arrow_schema
from pyhudi.format.table.bucket_migration import target_of
from pyhudi.format.table.properties import decode_table_properties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.new_table import table_properties
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.plan.table_differences import definition_differences, schema_differences
from pyhudi.read.load import HOODIE, PROPERTIES, TableLoader, is_table, load_config
from pyhudi.read.plan import Reader
from pyhudi.read.schema_history import schema_changes
from pyhudi.session.properties import load_properties_file, stamped_properties
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import META_COLUMNS, table_schema
from pyhudi.timeline.completion import visible_now
from pyhudi.world import World

#: Makes the folders of the timeline and its history exist; readers of either skip it.
FOLDER_KEEPER: Final = f"{HOODIE}/timeline/history/.keep"


def create_table_files(
    storage: Storage,
    definition: TableDefinition,
    world: World,
    *,
    exist_ok: bool,
    left_open: Collection[str] = (),
) -> TableConfig:
    """Create the table, or with `exist_ok` open the existing one if it is the same.

    What was `left_open`, "lock" or "buckets", may be different there: a lock may have been changed
    since, and the default of buckets is for new tables.
    TableExistsError if there is a table and that is not allowed, or it differs from the definition.
    """
    if not is_table(storage):
        data = stamped_properties(table_properties(definition), world, "Properties saved on")
        storage.create(FOLDER_KEEPER, b"")
        if _wins(storage, data):
            return TableConfig.of(decode_table_properties(data, PROPERTIES))
    if not exist_ok:
        raise TableExistsError(
            f"there is a table at {storage.uri} already",
            why=f"{PROPERTIES} exists there",
            next_step="Open it, choose another path, or pass exist_ok=True",
        )
    found = load_config(storage)
    if "lock" in left_open:
        definition = replace(definition, lock=found.lock, lock_address=found.lock_address)
    if "buckets" in left_open and found.buckets is not None:
        definition = replace(definition, buckets=target_of(found.buckets))
    _refuse_differences(storage, definition, found)
    return found


def _wins(storage: Storage, data: bytes) -> bool:
    """Create the properties; return whether those that are there now are these."""
    try:
        if storage.create(PROPERTIES, data):
            return True
    except UnavailableError:
        if load_properties_file(storage) is None:
            raise  # it did not happen, as far as can be known
    return load_properties_file(storage) == data


def _refuse_differences(storage: Storage, asked: TableDefinition, found: TableConfig) -> None:
    differences = (
        *definition_differences(asked, found),
        *_schema_differences(storage, asked, found),
    )
    if differences:
        raise TableExistsError(
            f"the table at {storage.uri} exists and is different",
            why="; ".join(differences),
            next_step="Open it as it is, or choose another path for the new table",
        )


def _schema_differences(
    storage: Storage, definition: TableDefinition, found: TableConfig
) -> tuple[str, ...]:
    """Return no differences if the columns are those that the table has now or once had.

    A job that creates its table whenever it runs continues after the table has evolved. Its history
    is read only if the first columns and those of now are others.
    """
    asked = decode_arrow_schema(definition.schema_json, PROPERTIES)
    from_first: tuple[str, ...] | None = None
    if found.create_schema is not None:
        first = decode_arrow_schema(found.create_schema, PROPERTIES)
        from_first = schema_differences(asked, first)
    if from_first == ():
        return ()
    loader = TableLoader(storage, found)
    state = loader.load()
    if from_first is not None and not state.timeline.writes:
        return from_first
    now = Reader(loader).schema_at(state, visible_now(state.timeline))
    if differences := _from(asked, now):
        former = (change.write for change in schema_changes(loader, state.timeline))
        if any(not _from(asked, table_schema(w.avro_json, w.requested)) for w in former):
            return ()
    return differences


def _from(asked: pa.Schema, found: pa.Schema) -> tuple[str, ...]:
    columns = pa.schema([field for field in found if field.name not in META_COLUMNS])
    return schema_differences(asked, columns, nulls=False)  # a read makes all columns nullable
