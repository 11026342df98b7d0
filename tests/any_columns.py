"""Any columns that Avro can store, for properties of schemas."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

scalars = st.sampled_from(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.timestamp("ms", "UTC"),
        pa.decimal128(10, 2),
        pa.decimal128(38, 10),
        pa.binary(7),
    ]
)
names = st.sampled_from(["a", "b", "c", "d"])


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.builds(pa.field, names, inner, st.booleans()), min_size=1, max_size=3)
    return fields.map(lambda found: pa.struct({f.name: f for f in found}.values()))


types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), inner, st.booleans()),
        st.builds(lambda t, n: pa.map_(pa.string(), pa.field("value", t, n)), inner, st.booleans()),
    ),
    max_leaves=5,
)
#: Up to four columns of different names.
columns_of_all_types = st.lists(
    st.builds(pa.field, names, types, st.booleans()), max_size=4, unique_by=lambda f: f.name
)
