"""Tables in Spark's catalog: what a reader of one knows, and from where.

For `CREATE TABLE t USING pyhudi LOCATION '...'` Spark asks the source for a schema, and adds the
table's properties to the options. When it reads `t`, it gives the source neither: only the schema
that it kept, with the metadata of its columns. So the first column carries address and options.

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

#: Properties that Spark gives every table of its catalog. The first says that it asks for one.
_PROVIDER = "provider"
_PROPERTIES = {
    *(_PROVIDER, "owner", "location", "external", "comment", "collation"),
    *("table_type", "is_managed_location"),
}
#: Spark repeats each option of `OPTIONS (...)` with this prefix.
_REPEATED = "option."
#: The metadata of the first column under which address and options are kept.
_KEPT = "pyhudi.table"


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Whether Spark asks on behalf of a `CREATE TABLE`."""
    return _PROVIDER in options


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the user of a `CREATE TABLE` said; InvalidRequestError if that cannot be kept."""
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
                f"the option {name} cannot be kept in Spark's catalog",
                why="everyone who may read the table would see it in the table's schema",
                next_step="Give credentials by the environment of Spark's processes",
            )
    return given


def kept_in_schema(schema: StructType, uri: str, options: Mapping[str, str]) -> StructType:
    """The schema for the catalog, from which `options_of` finds the table again."""
    first, *others = schema.fields
    kept = {**first.metadata, _KEPT: json.dumps({**options, PATH: uri})}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def options_of(schema: StructType) -> dict[str, str]:
    """What `kept_in_schema` kept; empty for any other schema."""
    kept = schema.fields[0].metadata.get(_KEPT) if schema.fields else None
    return {} if kept is None else dict(json.loads(kept))
