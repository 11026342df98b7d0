"""Awkward by merging: ordering values of all types, duplicates, log compaction.

Many tables tell stories: each key is one, named after what happens to it.
"""

from __future__ import annotations

from typing import Any

from awkward.recording import PLAIN, Maker, Row, changes, table

# ---- ordering values


def _ordered(
    t: Maker, type_: str, low: Any, middle: Any, high: Any, *more: Row, deletes: bool = True
) -> None:
    """Stories of updates and deletes around a middle value; `more` are (key, old, new) values."""
    t.begin("mor", ordering="o")
    schema = f"id string, o {type_}, v string, _hoodie_is_deleted boolean"
    stories = {
        "newer": (middle, high),
        "late": (middle, low),
        "equal": (middle, middle),
        **{key: (old, new) for key, old, new in more},
    }
    flagged = {"newer delete": high, "late delete": low, "equal delete": middle} if deletes else {}
    t.write(
        schema,
        [(key, old, "base", False) for key, (old, _) in stories.items()]
        + [(key, middle, "base", False) for key in [*flagged, "deleted", "deleted twice"]],
    )
    t.write(
        schema,
        [(key, new, "log 1", False) for key, (_, new) in stories.items()]
        + [(key, value, "log 1", True) for key, value in flagged.items()]
        + [("two logs", high, "log 1", False), ("delete in logs", high, "log 1", False)],
    )
    t.write(
        schema,
        [("deleted", middle, "log 2", False), ("deleted twice", low, "", False)],
        op="delete",
    )
    t.write(
        schema,
        [
            ("two logs", low, "log 3", False),
            ("delete in logs", low, "log 3", deletes),
            ("deleted twice", low, "log 3", deletes),
        ],
    )
    t.compact()


@table
def mor_ordering_int(t: Maker) -> None:
    """An int orders, sometimes null, sometimes 0."""
    _ordered(
        t,
        "int",
        -5,
        5,
        50,
        ("zero after", 5, 0),
        ("zero before", 0, -5),
        ("null after", 5, None),
        ("null before", None, -5),
        ("null before 0", None, 0),
        ("null after 0", 0, None),
        ("null twice", None, None),
        ("null after -5", -5, None),
    )


@table
def mor_ordering_int_zero(t: Maker) -> None:
    """An int orders, and deletes carry the value 0, which Hudi takes for "no value"."""
    _ordered(t, "int", 0, 5, 50)


@table
def mor_ordering_long_zero(t: Maker) -> None:
    """A long orders, and deletes carry the value 0."""
    _ordered(t, "bigint", 0, 5, 50)


@table
def mor_ordering_long_null(t: Maker) -> None:
    """A long orders and is null in some rows: Hudi compares an int with a long, and fails."""
    t.begin("mor", ordering="ts")
    t.write(PLAIN, [("null before", None, "base"), ("null after", 1, "base")])
    t.write(PLAIN, [("null before", 1, "log"), ("null after", None, "log")])


@table
def mor_ordering_text(t: Maker) -> None:
    """A text orders, by its UTF-8 bytes."""
    _ordered(t, "string", "10", "5", "é", ("empty", "5", ""), ("astral", "\uffff", "\U00010000"))


@table
def mor_ordering_double(t: Maker) -> None:
    """A double orders: NaN, infinities and the two zeros too."""
    _ordered(
        t,
        "double",
        -1.5,
        2.5,
        1e300,
        ("zeros", 0.0, -0.0),
        ("zeros back", -0.0, 0.0),
        ("NaN after", "Infinity", "NaN"),
        ("NaN before", "NaN", "Infinity"),
    )


@table
def mor_ordering_float(t: Maker) -> None:
    """A float orders."""
    _ordered(t, "float", -1.5, 0.1, 1e30)


@table
def mor_ordering_decimal(t: Maker) -> None:
    """A decimal orders."""
    _ordered(t, "decimal(12,3)", "-1.500", "2.500", "100000.001")


@table
def mor_ordering_date(t: Maker) -> None:
    """A date orders. Hudi cannot write a delete that has one."""
    _ordered(t, "date", "1969-12-31", "2026-01-31", "2026-02-01", deletes=False)


@table
def mor_ordering_timestamp(t: Maker) -> None:
    """A timestamp orders."""
    _ordered(
        t,
        "timestamp",
        "1969-12-31T23:59:59.999999Z",
        "2026-01-31T12:00:00.000001Z",
        "2026-01-31T12:00:00.000002Z",
    )


@table
def mor_ordering_two(t: Maker) -> None:
    """Two columns order, one after the other."""
    t.begin("mor", ordering="p,q")
    schema = "id string, p int, q string, v string, _hoodie_is_deleted boolean"
    news = {
        "first newer": (6, "a"),
        "first late": (4, "z"),
        "second newer": (5, "n"),
        "second late": (5, "l"),
        "equal": (5, "m"),
    }
    t.write(
        schema,
        [(f"{key}{n}", 5, "m", "base", False) for key in news for n in ("", " delete")]
        + [("deleted", 5, "m", "base", False), ("null before", None, "m", "base", False)]
        + [("null after", -1, "m", "base", False)],
    )
    t.write(
        schema,
        [(key, p, q, "log 1", False) for key, (p, q) in news.items()]
        + [(f"{key} delete", p, q, "log 1", True) for key, (p, q) in news.items()]
        + [("null before", -1, "z", "log 1", False), ("null after", None, "a", "log 1", False)],
    )
    t.write(schema, [("deleted", 5, "m", "log 2", False)], op="delete")
    t.write(schema, [("deleted", 4, "m", "log 3", False), ("equal", 5, "a", "log 3", False)])
    t.compact()


# ---- records


def _duplicated(t: Maker, ordering: str | None, index: str = "BUCKET") -> None:
    t.begin("mor", ordering=ordering)
    t.options["hoodie.index.type"] = index
    t.options["hoodie.combine.before.insert"] = "false"
    rows = [(key, ts, f"{key}{ts}") for key in "abcd" for ts in (3, 1, 2)]
    t.write(PLAIN, rows, op="bulk_insert")
    t.write(PLAIN, [("a", 2, "log"), ("b", 9, "log")])
    t.write(PLAIN, [("c", 0, "")], op="delete")
    t.compact()


@table
def mor_duplicates_event_time(t: Maker) -> None:
    """A base file with three rows of each key, then updates and a delete; event time."""
    _duplicated(t, "ts")


@table
def mor_duplicates_commit_time(t: Maker) -> None:
    """A base file with three rows of each key, then updates and a delete; commit time."""
    _duplicated(t, None)


@table
def mor_duplicates_by_position(t: Maker) -> None:
    """As before, with an index that finds every row: each update is in the log three times."""
    _duplicated(t, "ts", index="SIMPLE")


LOG_COMPACTION = {
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
}


def _log_compacted(t: Maker, ordering: str | None) -> None:
    t.begin("mor", ordering=ordering)
    t.write(PLAIN, [(key, 5, "base") for key in "abcde"])
    t.write(PLAIN, [("a", 6, "log 1"), ("b", 4, "log 1"), ("f", 6, "log 1")])
    t.write(PLAIN, [("c", 6, ""), ("d", 6, "")], op="delete")
    t.write(PLAIN, [("a", 7, "log 3"), ("c", 3, "log 3"), ("f", 5, "log 3")])
    t.write(PLAIN, [("e", 6, "log 4")], options=LOG_COMPACTION)
    t.write(PLAIN, [("a", 6, "log 5"), ("d", 8, "log 5")])
    *_, log_4, _, log_5 = sorted(i["completed"] for i in t.completed_writes())
    t.extra_reads["incremental_after_log_4"] = changes(log_4, log_5)


@table
def mor_log_compacted_event_time(t: Maker) -> None:
    """Log compaction: one log file stands for several; event time."""
    _log_compacted(t, "ts")


@table
def mor_log_compacted_commit_time(t: Maker) -> None:
    """Log compaction: one log file stands for several; commit time."""
    _log_compacted(t, None)


@table
def mor_changes_over_compaction(t: Maker) -> None:
    """Late rows in a range that begins before a compaction: its old rows are no match for them."""
    t.begin("mor", ordering="ts")
    t.write(PLAIN, [(key, 10, "base") for key in ("late", "newer", "other", "deleted")])
    t.write(PLAIN, [("other", 20, "log 1")])
    t.compact()
    t.write(PLAIN, [("late", 5, "log 2"), ("newer", 30, "log 2"), ("other", 15, "log 2")])
    t.write(PLAIN, [("deleted", 10, "")], op="delete")


@table
def mor_operation(t: Maker) -> None:
    """Rows that carry their change operation. Spark can write such a table, but not update it."""
    t.begin("mor", ordering="ts")
    t.options["hoodie.allow.operation.metadata.field"] = "true"
    schema = "_hoodie_operation string, id string, ts bigint, v string"
    t.write(schema, [(op, f"k{n}", 1, "v") for n, op in enumerate(["I", "-U", "U", "D"])])
