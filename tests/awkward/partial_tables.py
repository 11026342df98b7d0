"""Awkward by partial updates: rows that do not set all of their columns, and payload classes.

Many tables tell stories: each key is one, named after what happens to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from awkward.recording import MODEL, PLAIN, Maker, table

# ---- partial update modes


def _ignoring_defaults(t: Maker, payload: str, version: str = "9") -> None:
    """Each key is one story: what the base file has, and what the logs say of it."""
    t.begin("mor", ordering="ts", payload=f"{MODEL}{payload}")
    t.options["hoodie.write.table.version"] = version
    schema = "id string, ts bigint, a string, b int"
    t.write(
        schema,
        [
            ("equal", 10, "a10", 10),
            ("filled by late", 10, "a10", None),
            ("late", 10, "a10", 10),
            ("newer", 10, "a10", None),
            ("newer null", 10, "a10", 10),
            ("three logs", 10, "a10", 10),
            ("deleted, late", 10, "a10", 10),
            ("deleted, newer", 10, "a10", 10),
            ("deleted", 10, "a10", 10),
            ("untouched", 10, None, None),
        ],
    )
    t.write(
        schema,
        [
            ("equal", 10, None, 11),
            ("filled by late", 5, "a5", 5),
            ("late", 5, None, 5),
            ("newer", 20, "a20", 20),
            ("newer null", 20, None, None),
            ("three logs", 20, "a20", None),
            ("only logs", 20, "a20", None),
        ],
    )
    gone = ["deleted, late", "deleted, newer", "deleted"]
    t.write(schema, [(key, 10, None, None) for key in gone], op="delete")
    t.write(
        schema,
        [
            ("three logs", 30, None, 30),
            ("only logs", 15, "a15", 15),
            ("deleted, late", 5, "a5", None),
            ("deleted, newer", 20, None, 20),
        ],
    )
    t.write(schema, [("three logs", 25, "a25", 25), ("equal", 10, "a12", None)])
    t.compact()
    t.write(
        schema,
        [
            ("three logs", 28, "a28", None),
            ("newer", 40, None, 40),
            ("untouched", 5, "a5", 5),
        ],
    )


@table
def mor_ignore_defaults_event_time(t: Maker) -> None:
    """PartialUpdateAvroPayload: event time, and a null keeps the other version's value."""
    _ignoring_defaults(t, "PartialUpdateAvroPayload")


@table
def mor_ignore_defaults_commit_time(t: Maker) -> None:
    """OverwriteNonDefaultsWithLatestAvroPayload: commit time, and a null keeps the old value."""
    _ignoring_defaults(t, "OverwriteNonDefaultsWithLatestAvroPayload")


@table
def mor_ignore_defaults_event_time_v8(t: Maker) -> None:
    """PartialUpdateAvroPayload in a table of version 8, which names only the class."""
    _ignoring_defaults(t, "PartialUpdateAvroPayload", "8")


@table
def mor_ignore_defaults_commit_time_v8(t: Maker) -> None:
    """OverwriteNonDefaultsWithLatestAvroPayload in a table of version 8."""
    _ignoring_defaults(t, "OverwriteNonDefaultsWithLatestAvroPayload", "8")


def _postgres_debezium(t: Maker, version: str = "9") -> None:
    t.begin("mor", ordering="_event_lsn", payload=f"{MODEL}debezium.PostgresDebeziumAvroPayload")
    t.options["hoodie.write.table.version"] = version
    schema = (
        "id string, _event_lsn bigint, _change_operation_type string, a string, y binary,"
        " s struct<t:string>"
    )
    marker = "__debezium_unavailable_value"
    coded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # the marker as base64
    old, new = ("a10", "YTEw", {"t": "a10"}), (marker, coded, {"t": marker})
    t.write(
        schema,
        [(key, 10, "c", *old) for key in ("newer", "late", "equal", "deleted", "late delete")],
    )
    t.write(
        schema,
        [
            ("newer", 20, "u", *new),
            ("late", 5, "u", *new),
            ("equal", 10, "u", *new),
            ("deleted", 20, "d", None, None, None),
            ("late delete", 5, "d", None, None, None),
            ("only log", 20, "u", *new),
        ],
    )
    t.write(schema, [("newer", 15, "u", "a15", "YTE1", None), ("only log", 30, "u", *old)])
    t.compact()
    t.write(schema, [("newer", 40, "u", *new), ("only log", 25, "d", None, None, None)])


@table
def mor_postgres_debezium(t: Maker) -> None:
    """PostgresDebeziumAvroPayload: a marker text keeps the old value, an operation deletes."""
    _postgres_debezium(t)


@table
def mor_postgres_debezium_v8(t: Maker) -> None:
    """The same class in a table of version 8, where its code merges otherwise."""
    _postgres_debezium(t, "8")
    t.refused = "payload class org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload"


@table
def mor_event_time_payload_v8(t: Maker) -> None:
    """EventTimeAvroPayload in a table of version 8."""
    t.begin("mor", ordering="ts", payload=f"{MODEL}EventTimeAvroPayload")
    t.options["hoodie.write.table.version"] = "8"
    t.write(PLAIN, [(key, 5, "base") for key in ("newer", "late", "equal", "deleted", "again")])
    t.write(PLAIN, [("newer", 6, "log"), ("late", 4, "log"), ("equal", 5, "log")])
    t.write(PLAIN, [("deleted", 1, ""), ("again", 1, "")], op="delete")
    t.write(PLAIN, [("again", 4, "log"), ("newer", 5, "late log")])


@table
def mor_mysql_debezium(t: Maker) -> None:
    """MySqlDebeziumAvroPayload: two ordering columns, and an operation that deletes."""
    t.begin("mor", payload=f"{MODEL}debezium.MySqlDebeziumAvroPayload")
    t.options["hoodie.table.ordering.fields"] = "_event_bin_file,_event_pos"
    schema = (
        "id string, _event_bin_file string, _event_pos bigint, _change_operation_type string,"
        " a string"
    )
    keys = ("later file", "earlier file", "later place", "earlier place", "deleted")
    t.write(schema, [(key, "bin.000002", 50, "c", "old") for key in keys])
    t.write(
        schema,
        [
            ("later file", "bin.000003", 10, "u", "new"),
            ("earlier file", "bin.000001", 90, "u", "new"),
            ("later place", "bin.000002", 60, "u", "new"),
            ("deleted", "bin.000002", 60, "d", None),
            ("earlier place", "bin.000002", 40, "u", "new"),
        ],
    )


def _aws_dms(t: Maker, version: str = "9") -> None:
    t.begin("mor", ordering="ts", payload=f"{MODEL}AWSDmsAvroPayload")
    t.options["hoodie.write.table.version"] = version
    schema = "id string, ts bigint, v string, Op string"
    t.write(schema, [("a", 1, "a1", "I"), ("b", 1, "b1", "I"), ("c", 1, "c1", None)])
    t.write(schema, [("a", 2, "a2", "D"), ("b", 0, "b0", "U"), ("d", 1, "d1", "D")])


@table
def mor_aws_dms(t: Maker) -> None:
    """AWSDmsAvroPayload: commit time, and Op=D deletes."""
    _aws_dms(t)


@table
def mor_aws_dms_v8(t: Maker) -> None:
    """AWSDmsAvroPayload: commit time, and Op=D deletes. Version 8."""
    _aws_dms(t, "8")


@table
def mor_delete_marker(t: Maker) -> None:
    """Event time with a delete marker of the table's own."""
    t.begin("mor", ordering="ts", payload=f"{MODEL}DefaultHoodieRecordPayload")
    t.options["hoodie.payload.delete.field"] = "op"
    t.options["hoodie.payload.delete.marker"] = "gone"
    schema = "id string, ts bigint, v string, op string"
    t.write(schema, [(key, 10, "v10", "here") for key in ("kept", "deleted", "late delete")])
    t.write(
        schema,
        [
            ("deleted", 20, "v20", "gone"),
            ("late delete", 5, "v5", "gone"),
            ("only log", 20, "v20", "gone"),
        ],
    )


@table
def mor_delete_marker_in_rows(t: Maker) -> None:
    """A delete marker that the table got later: its rows are in data blocks.

    Hudi heeds it only when it is repeated as a read option.
    """
    t.begin("mor", ordering="ts")
    schema = "id string, ts bigint, v string, op string"
    t.write(schema, [(key, 10, "v10", "here") for key in ("kept", "deleted", "late delete")])
    t.write(
        schema,
        [
            ("deleted", 20, "v20", "gone"),
            ("late delete", 5, "v5", "gone"),
            ("only log", 20, "v20", "gone"),
        ],
    )
    marker = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "gone"}
    t.edit_properties({f"hoodie.record.merge.property.{k}": v for k, v in marker.items()})
    t.extra_reads["snapshot_with_options"] = {"options": marker}


# ---- partial blocks


def _partial_table(t: Maker, mode: str, keys: Sequence[str]) -> None:
    t.ranges = False  # Hudi cannot read partial blocks without their past: its memory bursts
    t.sql(
        "CREATE TABLE TABLE_NAME (id string, ts bigint, a string, b int, c string) USING hudi"
        " TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts',"
        f" 'hoodie.record.merge.mode' = '{mode}') LOCATION 'LOCATION_OF'"
    )
    rows = ", ".join(f"('{key}', 10, 'a10', 10, 'c10')" for key in keys)
    t.sql(f"INSERT INTO TABLE_NAME VALUES {rows}")


def _merge(t: Maker, column: str, rows: dict[str, tuple[int, str]]) -> None:
    """MERGE INTO of one column and `ts`: Hudi writes a block that holds only these."""
    values = ", ".join(f"('{key}', {ts}L, {value})" for key, (ts, value) in rows.items())
    t.sql(
        f"MERGE INTO TABLE_NAME t USING (SELECT * FROM VALUES {values} AS s(id, ts, x)) s"
        f" ON t.id = s.id WHEN MATCHED THEN UPDATE SET {column} = s.x, ts = s.ts",
        settings={"hoodie.spark.sql.merge.into.partial.updates": "true"},
    )


def _partially_updated(t: Maker, mode: str, compacted: bool = False, deleted: bool = True) -> None:
    """Each key is one story."""
    keys = ["late", "equal", "newer", "null", "two logs", "two logs, late", "all"]
    _partial_table(t, mode, [*keys, "deleted"])
    _merge(
        t,
        "a",
        {
            "late": (5, "'a5'"),
            "equal": (10, "'a11'"),
            "newer": (20, "'a20'"),
            "null": (20, "null"),
            "two logs": (20, "'a20'"),
            "two logs, late": (20, "'a20'"),
            "deleted": (20, "'a20'"),
            "all": (20, "'a20'"),
        },
    )
    t.sql("DELETE FROM TABLE_NAME WHERE id = 'deleted'")
    if compacted:
        t.compact()
    _merge(t, "b", {"two logs": (30, "30"), "two logs, late": (15, "15"), "all": (30, "null")})
    rows = ["('all', 40, 'a40', null, null)"]
    rows += ["('deleted', 15, 'a15', null, 'c15')"] if deleted else []
    t.sql(
        f"INSERT INTO TABLE_NAME VALUES {', '.join(rows)}",
        settings={"hoodie.spark.sql.insert.into.operation": "upsert"},
    )
    late = {"deleted": (16, "'c16'")} if deleted else {}
    _merge(t, "c", {"two logs": (25, "'c25'"), "all": (35, "'c35'"), **late})
    t.compact()


@table
def mor_partial_event_time(t: Maker) -> None:
    """Partial blocks under event time, compacted at the end."""
    _partially_updated(t, "EVENT_TIME_ORDERING")


@table
def mor_partial_event_time_compacted(t: Maker) -> None:
    """Partial blocks under event time, compacted between."""
    _partially_updated(t, "EVENT_TIME_ORDERING", compacted=True)


@table
def mor_partial_commit_time(t: Maker) -> None:
    """Partial blocks under commit time, compacted at the end."""
    _partially_updated(t, "COMMIT_TIME_ORDERING", deleted=False)


@table
def mor_partial_commit_time_compacted(t: Maker) -> None:
    """Partial blocks under commit time, compacted between."""
    _partially_updated(t, "COMMIT_TIME_ORDERING", compacted=True)


@table
def mor_partial_reinserted(t: Maker) -> None:
    """Commit time; a partial update, a delete, an insert of the same key: Hudi cannot read it."""
    _partial_table(t, "COMMIT_TIME_ORDERING", ["deleted", "kept"])
    _merge(t, "a", {"deleted": (20, "'a20'")})
    t.sql("DELETE FROM TABLE_NAME WHERE id = 'deleted'")
    t.sql(
        "INSERT INTO TABLE_NAME VALUES ('deleted', 15, 'a15', null, 'c15')",
        settings={"hoodie.spark.sql.insert.into.operation": "upsert"},
    )
