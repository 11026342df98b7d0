"""Which documentation does a schema have that was made of those of several writes?

Documentation is no part of what Hudi compares, so no strategy judges it, and two writes never
contradict each other in it. A column that this write documented anew since it began is documented
so; any other as the table has it now. Of two columns that were added beside each other, the one
that has documentation lends it to the other.
"""

from __future__ import annotations

import pyarrow as pa

from pyhudi.format.avro.documentation import documented_columns, redocumented


def merged_documentation(
    made: pa.Schema, start: pa.Schema | None, now: pa.Schema, own: pa.Schema
) -> pa.Schema:
    """Return the schema made of the three, with what comes of their documentation."""
    before, table, ours = (
        {} if schema is None else documented_columns(schema) for schema in (start, now, own)
    )
    texts = {}
    for path in {**before, **table, **ours}:
        was, is_now, mine = (known.get(path, "") for known in (before, table, ours))
        texts[path] = is_now if mine == was else mine
    return redocumented(made, texts)
