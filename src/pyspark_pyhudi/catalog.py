"""Tables in Spark's catalog: what a reader of one knows, and from where.

For `CREATE TABLE t USING pyhudi LOCATION '...'` Spark asks the source for a schema, and adds the
table's properties to the options. When it reads `t`, it gives the source neither. It gives only the
schema that it recorded, with the metadata of its columns. So the metadata of the first column has
the address and the options.

A writer cannot use that. Spark gives it the schema of the query, whose columns may come from
another table of the catalog, with that table's address.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyhudi.errors import InvalidRequestError
from pyhudi.storage.redaction import secret_values
from pyspark_pyhudi.address import PATH, STORAGE_PREFIX

#: Properties that Spark gives every table of its catalog. The first shows that Spark asks for one.
_PROVIDER = "provider"
_PROPERTIES = {
    *(_PROVIDER, "owner", "location", "external", "comment", "collation"),
    *("table_type", "is_managed_location"),
}
#: Spark repeats each option of `OPTIONS (...)` with this prefix.
_REPEATED = "option."
#: The metadata of the first column in which address and options are recorded.
_RECORDED = "pyhudi.table"


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """True if Spark asks on behalf of a `CREATE TABLE`."""
    return _PROVIDER in options


def user_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the user's options of a `CREATE TABLE`.

    Raise InvalidRequestError if they cannot be recorded in the catalog.
    """
    given = {
        name: value
        for name, value in options.items()
        if name not in _PROPERTIES and not name.startswith(_REPEATED)
    }
    if PATH not in given:
        raise InvalidRequestError(
            "CREATE TABLE ... USING pyhudi has no location",
            why="it gives a Hudi table that exists a name in Spark's catalog",
            next_step="Create the table with pyhudi.create_table(path, ...), and then write"
            " CREATE TABLE ... USING pyhudi LOCATION 'path'",
        )
    for name in given:
        if name.startswith(STORAGE_PREFIX) and secret_values({name: "x"}):
            raise InvalidRequestError(
                f"the option {name} cannot be stored in Spark's catalog",
                why="every user with access to the table would see it in the table's schema",
                next_step="Give credentials by the environment of Spark's processes",
            )
    return given


def recorded_in_schema(schema: StructType, uri: str, options: Mapping[str, str]) -> StructType:
    """Return the schema for the catalog, from which `options_of` finds the table again."""
    first, *others = schema.fields
    metadata = {**first.metadata, _RECORDED: json.dumps({**options, PATH: uri})}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(schema: StructType) -> dict[str, str]:
    """Return what `recorded_in_schema` recorded; empty for any other schema."""
    recorded = schema.fields[0].metadata.get(_RECORDED) if schema.fields else None
    return {} if recorded is None else dict(json.loads(recorded))
