"""Awkward by layout: what is refused, partition columns, schemas, history that was taken back."""

from __future__ import annotations

import shutil
from typing import Any

from awkward.recording import MODEL, PLAIN, WORKSHOP, Maker, table

KEY_GENERATOR = "hoodie.datasource.write.keygenerator.class"

# ---- what is refused


@table
def mor_virtual_keys(t: Maker) -> None:
    """Merge on read without meta columns (virtual keys)."""
    t.begin("mor", ordering="ts")
    t.options["hoodie.populate.meta.fields"] = "false"
    t.write(PLAIN, [("a", 1, "a1"), ("b", 1, "b1")])
    t.write(PLAIN, [("b", 2, "b2")])
    t.refused = "virtual keys"


@table
def cow_orc(t: Maker) -> None:
    """ORC base files."""
    t.begin("cow", ordering="ts")
    t.options["hoodie.table.base.file.format"] = "ORC"
    t.options["hoodie.base.file.format"] = "ORC"
    t.write(PLAIN, [("a", 1, "a1"), ("b", 1, "b1")])
    t.refused = "base file format ORC"


@table
def cow_bootstrap(t: Maker) -> None:
    """Metadata-only bootstrap: the data columns stay in parquet files outside of the table."""
    source = WORKSHOP / f"{t.name}_source"
    shutil.rmtree(source, ignore_errors=True)
    rows = [{"id": "a", "ts": 1, "v": "a1"}, {"id": "b", "ts": 1, "v": "b1"}]
    t.judge.frame(rows, PLAIN).coalesce(1).write.parquet(str(source))
    t.begin("cow", ordering="ts")
    t.options["hoodie.bootstrap.base.path"] = str(source)
    t.options[KEY_GENERATOR] = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
    t.write(PLAIN, [], op="bootstrap")
    t.refused = "bootstrap"


@table
def mor_version_6(t: Maker) -> None:
    """Table version 6, as Hudi 0.14 and 0.15 write it."""
    t.begin("mor", ordering="ts")
    t.options["hoodie.write.table.version"] = "6"
    t.options["hoodie.write.auto.upgrade"] = "false"
    t.write(PLAIN, [("a", 1, "a1"), ("b", 1, "b1")])
    t.write(PLAIN, [("b", 2, "b2")])
    t.refused = "table version 6"


@table
def mor_version_10(t: Maker) -> None:
    """Table version 10, which does not exist yet: version 9 with the number changed by hand."""
    t.begin("mor", ordering="ts")
    t.write(PLAIN, [("a", 1, "a1"), ("b", 1, "b1")])
    t.edit_properties({"hoodie.table.version": "10"})
    t.refused = "table version 10"


@table
def mor_custom_payload(t: Maker) -> None:
    """A payload class that decides by Java code which record wins."""
    t.begin("mor", ordering="ts", mode="CUSTOM", payload=f"{MODEL}ReverseOrderHoodieRecordPayload")
    t.write(PLAIN, [("a", 1, "a1"), ("b", 5, "b5")])
    t.write(PLAIN, [("a", 2, "a2"), ("b", 4, "b4")])
    t.refused = "ReverseOrderHoodieRecordPayload"


@table
def mor_custom_payload_v8(t: Maker) -> None:
    """A payload class that decides by Java code which record wins, table version 8."""
    t.begin("mor", ordering="ts", payload=f"{MODEL}ReverseOrderHoodieRecordPayload")
    t.options["hoodie.write.table.version"] = "8"
    t.write(PLAIN, [("a", 1, "a1"), ("b", 5, "b5")])
    t.write(PLAIN, [("a", 2, "a2"), ("b", 4, "b4")])
    t.refused = "ReverseOrderHoodieRecordPayload"


@table
def mor_custom_merger(t: Maker) -> None:
    """A record merger with a strategy id of its own."""
    t.begin("mor", ordering="ts", mode="CUSTOM")
    t.options["hoodie.write.record.merge.strategy.id"] = "fb092649-0fdc-4c14-9113-acde3034a6c4"
    t.options["hoodie.write.record.merge.custom.implementation.classes"] = (
        "org.apache.spark.sql.hudi.command.HoodieSparkValidateDuplicateKeyRecordMerger"
    )
    t.write(PLAIN, [("a", 1, "a1"), ("b", 5, "b5")])
    t.write(PLAIN, [("a", 2, "a2"), ("b", 4, "b4")])
    t.refused = "custom merge strategy"


# ---- partition columns


def _dropped(t: Maker, type_: str, first: Any, second: Any) -> None:
    t.begin("cow", ordering="ts", partition="part")
    t.options["hoodie.datasource.write.drop.partition.columns"] = "true"
    schema = f"id string, ts bigint, v string, part {type_}"
    t.write(schema, [("a", 1, "a1", first), ("b", 1, "b1", second)])
    t.write(schema, [("b", 2, "b2", second)])


@table
def cow_dropped_text(t: Maker) -> None:
    """Copy on write; the partition column, a text, is not in the files."""
    _dropped(t, "string", "eu", "us west")


@table
def cow_dropped_int(t: Maker) -> None:
    """Copy on write; the partition column, an int, is not in the files."""
    _dropped(t, "int", 7, 2026)


@table
def cow_dropped_two(t: Maker) -> None:
    """Copy on write; two partition columns, hive style and encoded, are not in the files."""
    t.begin("cow", ordering="ts", partition="n,s")
    t.options["hoodie.datasource.write.drop.partition.columns"] = "true"
    t.options["hoodie.datasource.write.hive_style_partitioning"] = "true"
    t.options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    schema = "id string, ts bigint, v string, n bigint, s string"
    t.write(schema, [("a", 1, "a1", 1, "x/y"), ("b", 1, "b1", 20, None), ("c", 1, "c1", 3, "")])
    t.write(schema, [("b", 2, "b2", 20, None)])


@table
def mor_dropped(t: Maker) -> None:
    """Merge on read; columns int, date and text are not in the files. SQL alone can make one."""
    t.sql(
        "CREATE TABLE TABLE_NAME (id string, ts bigint, v string, n int, d date, s string)"
        " USING hudi PARTITIONED BY (n, d, s) TBLPROPERTIES (type = 'mor', primaryKey = 'id',"
        " preCombineField = 'ts', 'hoodie.datasource.write.drop.partition.columns' = 'true')"
        " LOCATION 'LOCATION_OF'"
    )
    one, two = "7, date'2026-01-31', '007'", "8, date'2026-02-01', 'us west'"
    t.sql(f"INSERT INTO TABLE_NAME VALUES ('a', 1, 'a1', {one}), ('b', 1, 'b1', {two})")
    t.sql("UPDATE TABLE_NAME SET v = 'b2', ts = 2 WHERE id = 'b'")


def _timestamped(t: Maker, kind: str, generator: str, partition: str) -> None:
    t.begin(kind, ordering="ts", partition=partition)
    t.options |= {
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.keygen.timebased.timezone": "UTC",
        KEY_GENERATOR: f"org.apache.hudi.keygen.{generator}KeyGenerator",
    }
    schema = "id string, ts bigint, v string, at bigint, zone string"
    noon = 1767268800000  # 2026-01-01T12:00Z
    t.write(schema, [("a", 1, "a1", noon, "eu"), ("b", 1, "b1", noon + 86_400_001, "us")])
    t.write(schema, [("b", 2, "b2", noon + 86_400_002, "us")])


def _typed(t: Maker, kind: str) -> None:
    t.begin(kind, ordering="ts", partition="n,l,d,b,m,f,w")
    schema = (
        "id string, ts bigint, v string, n int, l bigint, d date, b boolean, m decimal(6,2),"
        " f double, w timestamp"
    )
    one = (7, 10**15, "2026-01-31", True, "1.50", 2.5, "2026-01-31T12:00:00.5Z")
    two = (-7, 0, "1969-12-31", False, "-1.00", 1e10, "1969-12-31T23:59:59Z")
    t.write(schema, [("a", 1, "a1", *one), ("b", 1, "b1", *two)])
    t.write(schema, [("b", 2, "b2", *two)])


@table
def cow_typed_partitions(t: Maker) -> None:
    """Copy on write; partition columns of many types, whose values Hudi takes from the path."""
    _typed(t, "cow")


@table
def mor_typed_partitions(t: Maker) -> None:
    """Merge on read; partition columns of many types, whose values Hudi takes from the path."""
    _typed(t, "mor")


@table
def cow_slashed_partition(t: Maker) -> None:
    """Copy on write; a partition value with slashes, not encoded: a path of three folders."""
    t.begin("cow", ordering="ts", partition="p")
    schema = "id string, ts bigint, v string, p string"
    t.write(schema, [("a", 1, "a1", "2026/01/31"), ("b", 1, "b1", "2026/02/01")])
    t.write(schema, [("b", 2, "b2", "2026/02/01")])


@table
def cow_timestamp_keys(t: Maker) -> None:
    """Copy on write; paths yyyy/MM/dd made from a column of milliseconds (TIMESTAMP keys)."""
    _timestamped(t, "cow", "TimestampBased", "at")


@table
def mor_timestamp_keys(t: Maker) -> None:
    """Merge on read; paths yyyy/MM/dd made from a column of milliseconds (TIMESTAMP keys)."""
    _timestamped(t, "mor", "TimestampBased", "at")


@table
def cow_custom_keys(t: Maker) -> None:
    """Paths of a plain and of a formatted number (CUSTOM keys): Hudi itself cannot read them."""
    _timestamped(t, "cow", "Custom", "zone:SIMPLE,at:TIMESTAMP")


@table
def mor_custom_keys(t: Maker) -> None:
    """Merge on read; paths of a plain and of a formatted column (CUSTOM keys)."""
    t.begin("mor", ordering="ts", partition="zone:SIMPLE,at:TIMESTAMP")
    t.options |= {
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd HH:mm",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM",
        "hoodie.keygen.timebased.timezone": "UTC",
        KEY_GENERATOR: "org.apache.hudi.keygen.CustomKeyGenerator",
    }
    schema = "id string, ts bigint, v string, at string, zone string"
    one, two = ("2026-01-31 12:00", "eu"), ("2026-02-01 00:00", "us")
    t.write(schema, [("a", 1, "a1", *one), ("b", 1, "b1", *two)])
    t.write(schema, [("b", 2, "b2", "2026-02-02 00:00", "us")])


@table
def mor_odd_partitions(t: Maker) -> None:
    """Two record keys, two partition columns, hive style, values that need encoding."""
    t.begin("mor", key="id,sub", ordering="ts", partition="p,q")
    t.options["hoodie.datasource.write.hive_style_partitioning"] = "true"
    t.options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    schema = "id string, sub int, ts bigint, v string, p string, q string"
    odd = [("a/b", "x=y"), ("50%", "with space"), ("é日", ""), (None, "a:b"), ("%2F", "q?&#")]
    t.write(schema, [("a", n, 1, "first", p, q) for n, (p, q) in enumerate(odd)])
    t.write(schema, [("a", n, 2, "second", p, q) for n, (p, q) in enumerate(odd) if n])
    t.write(schema, [("a", 0, 3, "gone", *odd[0])], op="delete")


@table
def cow_odd_partitions(t: Maker) -> None:
    """Copy on write; values that need encoding, not hive style."""
    t.begin("cow", ordering="ts", partition="p")
    t.options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    schema = "id string, ts bigint, v string, p string"
    odd = ["a/b", "x=y", "50%", "with space", "é日", "a:b"]
    t.write(schema, [(f"k{n}", 1, "first", p) for n, p in enumerate(odd)])
    t.write(schema, [(f"k{n}", 2, "second", p) for n, p in enumerate(odd) if n % 2])


# ---- schemas


#: Column → its type before and after, and a value before and after.
PROMOTED: dict[str, tuple[str, str, Any, Any]] = {
    "int_long": ("int", "bigint", 7, 10**12),
    "int_float": ("int", "float", 16777217, 0.5),
    "int_double": ("int", "double", 7, 0.5),
    "int_text": ("int", "string", -7, "seven"),
    "long_float": ("bigint", "float", 10**12, 0.5),
    "long_double": ("bigint", "double", 2**53 + 1, 0.5),
    "long_text": ("bigint", "string", 10**12, "many"),
    "float_double": ("float", "double", 0.1, 0.1),
    "float_text": ("float", "string", 0.1, "a tenth"),
    "double_text": ("double", "string", 1e10, "ten thousand million"),
    "small_text": ("double", "string", -1e-5, "less than nothing"),
    "bytes_text": ("binary", "string", "w6k=", "é"),
    "text_bytes": ("string", "binary", "é", "w6k="),
    "decimal_wider": ("decimal(5,2)", "decimal(9,2)", "123.45", "1234567.89"),
    "decimal_scale": ("decimal(5,2)", "decimal(9,4)", "123.45", "12345.6789"),
    "int_list": ("array<int>", "array<bigint>", [1, 2], [10**12]),
    "int_map": ("map<string,int>", "map<string,bigint>", {"k": 1}, {"k": 10**12}),
    "struct_grown": (
        "struct<x:int>",
        "struct<x:bigint,y:string>",
        {"x": 1},
        {"x": 10**12, "y": "new"},
    ),
    "list_of_struct": (
        "array<struct<x:int>>",
        "array<struct<x:bigint,y:string>>",
        [{"x": 1}],
        [{"x": 10**12, "y": "new"}],
    ),
}


_OLD = ", ".join(f"{name} {kind[0]}" for name, kind in PROMOTED.items())
_NEW = ", ".join(f"{name} {kind[1]}" for name, kind in PROMOTED.items())
_BEFORE = [kind[2] for kind in PROMOTED.values()]
_AFTER = [kind[3] for kind in PROMOTED.values()]


@table
def mor_promoted(t: Maker) -> None:
    """Columns widened after a base file and a log file were written."""
    t.begin("mor", ordering="ts")
    old, new = f"id string, ts bigint, {_OLD}", f"id string, ts bigint, {_NEW}"
    nulls = [None] * len(PROMOTED)
    t.write(old, [("base", 1, *_BEFORE), ("log", 1, *nulls), ("new log", 1, *_BEFORE)])
    t.write(old, [("log", 2, *_BEFORE)])
    t.write(new, [("new log", 2, *_AFTER)])
    t.compact()
    t.write(new, [("new log", 3, *nulls)])


@table
def cow_promoted(t: Maker) -> None:
    """Copy on write; columns widened in one partition, the other's file stays as it was."""
    t.begin("cow", ordering="ts", partition="part")
    old, new = (f"id string, ts bigint, part string, {columns}" for columns in (_OLD, _NEW))
    t.write(old, [("kept", 1, "p", *_BEFORE), ("rewritten", 1, "q", *_BEFORE)])
    t.write(new, [("new", 2, "q", *_AFTER)])


@table
def cow_plain_columns(t: Maker) -> None:
    """Columns that may not be null, and one with upper case letters."""
    t.sql(
        "CREATE TABLE TABLE_NAME (Id string NOT NULL, ts bigint NOT NULL, camelCase string,"
        " S struct<A:int> NOT NULL) USING hudi"
        " TBLPROPERTIES (type = 'cow', primaryKey = 'Id', preCombineField = 'ts')"
        " LOCATION 'LOCATION_OF'"
    )
    t.sql("INSERT INTO TABLE_NAME VALUES ('a', 1, 'a1', struct(1)), ('b', 1, null, struct(null))")
    t.sql("UPDATE TABLE_NAME SET camelCase = 'b2', ts = 2 WHERE Id = 'b'")


@table
def mor_plain_columns(t: Maker) -> None:
    """Merge on read; columns that may not be null, and one with upper case letters."""
    t.begin("mor", key="Id", ordering="Ts")
    schema = "Id string NOT NULL, Ts bigint NOT NULL, camelCase string NOT NULL"
    t.write(schema, [("a", 1, "a1"), ("b", 1, "b1")])
    t.write(schema, [("b", 2, "b2"), ("c", 2, "c2")])


@table
def mor_empty(t: Maker) -> None:
    """A table that SQL created and nobody wrote to."""
    t.sql(
        "CREATE TABLE TABLE_NAME (id string, ts bigint, v string, part int) USING hudi"
        " PARTITIONED BY (part) TBLPROPERTIES (type = 'mor', primaryKey = 'id',"
        " preCombineField = 'ts') LOCATION 'LOCATION_OF'"
    )


@table
def cow_only_delete_partition(t: Maker) -> None:
    """A table whose only commit deletes a partition that it does not have."""
    t.sql(
        "CREATE TABLE TABLE_NAME (id string, ts bigint, v string, part int) USING hudi"
        " PARTITIONED BY (part) TBLPROPERTIES (type = 'cow', primaryKey = 'id',"
        " preCombineField = 'ts') LOCATION 'LOCATION_OF'"
    )
    t.options = {"hoodie.table.name": t.name}
    t.write(
        "id string, ts bigint, v string, part int",
        [],
        op="delete_partition",
        options={"hoodie.datasource.write.partitions.to.delete": "part=1"},
    )


@table
def mor_deleted_partition(t: Maker) -> None:
    """A partition is deleted, then written again."""
    t.begin("mor", ordering="ts", partition="part")
    schema = "id string, ts bigint, v string, part int"
    t.write(schema, [("a", 1, "a1", 1), ("b", 1, "b1", 2)])
    t.write(schema, [("a", 2, "a2", 1), ("b", 2, "b2", 2)])
    t.write(
        schema,
        [],
        op="delete_partition",
        options={"hoodie.datasource.write.partitions.to.delete": "1"},
    )
    t.write(schema, [("c", 1, "c1", 1)])


# ---- history that was taken back


@table
def mor_restored(t: Maker) -> None:
    """A savepoint, writes after it, one of them rolled back, then a restore to the savepoint."""
    t.begin("mor", ordering="ts")
    t.write(PLAIN, [("a", 1, "a1"), ("b", 1, "b1")])
    (saved,) = t.write(PLAIN, [("a", 2, "a2")])
    t.call("savepoint", commit_time=saved["requested"])
    t.write(PLAIN, [("a", 3, "a3")])
    (taken_back,) = t.write(PLAIN, [("b", 4, "b4")])
    t.call("rollback", instant_time=taken_back["requested"])
    t.write(PLAIN, [("c", 5, "c5")])
    t.call("rollback_to_savepoint", instant_time=saved["requested"])
    t.write(PLAIN, [("b", 6, "b6")])


def _cleaned(t: Maker, kind: str, **policy: Any) -> None:
    t.begin(kind, ordering="ts")
    for ts in range(1, 5):
        t.write(PLAIN, [("a", ts, f"a{ts}"), (f"b{ts}", ts, "new")])
        if kind == "mor" and ts % 2 == 0:
            t.compact()
    t.call("clean", **policy)
    t.write(PLAIN, [("a", 5, "a5")])


@table
def cow_cleaned_by_commits(t: Maker) -> None:
    """Copy on write, cleaned so that two commits can be read."""
    _cleaned(t, "cow", clean_policy="KEEP_LATEST_COMMITS", retain_commits=2)


@table
def cow_cleaned_by_versions(t: Maker) -> None:
    """Copy on write, cleaned so that one file version is left."""
    _cleaned(t, "cow", clean_policy="KEEP_LATEST_FILE_VERSIONS", file_versions_retained=1)


@table
def mor_cleaned_by_commits(t: Maker) -> None:
    """Merge on read, cleaned so that two commits can be read."""
    _cleaned(t, "mor", clean_policy="KEEP_LATEST_COMMITS", retain_commits=2)


@table
def mor_cleaned_by_versions(t: Maker) -> None:
    """Merge on read, cleaned so that one file version is left."""
    _cleaned(t, "mor", clean_policy="KEEP_LATEST_FILE_VERSIONS", file_versions_retained=1)
