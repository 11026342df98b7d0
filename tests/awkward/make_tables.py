"""Make the awkward tables with Apache Hudi itself, and record what its reads return.

Each function below `# ---- tables` makes one table by ordinary writes of the Spark bundle; its
docstring becomes the description's `about`. Afterwards every read that the tests repeat is done by
Hudi and kept with its rows, or with its error. Nothing here uses pyhudi: the recordings are
evidence only if they come from somebody else.

    python make_tables.py --judge FOLDER [--into FOLDER] [NAME ...]

`FOLDER` of the judge holds `judge.py`, a thin layer over PySpark 3.5 with the Hudi 1.2.0 bundle
whose class `SparkJudge` has `write`, `sql`, `call`, `read`, `timeline` and `schema`. Spark runs in
UTC, so instants are UTC.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Options = dict[str, str]
Row = tuple[Any, ...]

#: Where tables are made. Hudi writes this path into some plans, so it says nothing of its maker.
WORKSHOP = Path("/tmp/tables")

#: No service runs unless a table asks for it, and files stay small.
QUIET: Options = {
    "hoodie.archive.automatic": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.metadata.enable": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.parquet.compression.codec": "zstd",
}
#: One bucket: the first write makes a base file, every later one a log file.
BUCKET: Options = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "1",
}
#: The columns of tables whose columns do not matter.
PLAIN = "id string, ts bigint, v string"
MODEL = "org.apache.hudi.common.model."
_WRITES = ("commit", "deltacommit", "replacecommit", "compaction", "clustering")


class Maker:
    """One table in the making: does the steps and takes notes of them."""

    def __init__(self, judge: Any, name: str) -> None:
        self.judge = judge
        self.name = name
        self.path = WORKSHOP / name
        self.options: Options = {}
        self.steps: list[dict[str, Any]] = []
        self.refused: str | None = None
        self.extra_reads: dict[str, dict[str, Any]] = {}

    # -- steps

    def begin(self, kind: str, *, key: str = "id", **words: str | None) -> None:
        """Choose the options of all writes. Words stand for Hudi's longer names."""
        names = {
            "partition": "hoodie.datasource.write.partitionpath.field",
            "ordering": "hoodie.table.ordering.fields",
            "payload": "hoodie.datasource.write.payload.class",
            "mode": "hoodie.record.merge.mode",
        }
        self.options = {
            **QUIET,
            **(BUCKET if kind == "mor" else {}),
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": key,
            "hoodie.datasource.write.table.type": {
                "mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"
            }[kind],
            **{names[word]: value for word, value in words.items() if value is not None},
        }

    def write(
        self, schema: str, rows: Sequence[Row], op: str = "upsert", **options: str
    ) -> list[dict[str, Any]]:
        """Write rows, given as tuples in the order of the schema."""
        names = [re.match(r"\w+", column.strip())[0] for column in _columns(schema)]  # type: ignore[index]
        records = [dict(zip(names, row, strict=True)) for row in rows]
        own = {key.replace("__", "."): value for key, value in options.items()}
        instants = self.judge.write(
            str(self.path), records, {**self.options, **own}, op=op, schema=schema
        )
        self._note(step="write", operation=op, schema=schema, rows=records, options=own)
        return list(instants)

    def sql(self, text: str, **settings: str) -> None:
        """Run SQL in which TABLE is the table's name and LOCATION its path."""
        self.judge.sql(f"SET hoodie.bulk.insert.sort.mode=NONE")  # the session exists
        for key, value in {**QUIET, **settings}.items():
            self.judge.spark.conf.set(key.replace("__", "."), value)
        try:
            done = text.replace("TABLE_NAME", self.name).replace("LOCATION_OF", str(self.path))
            self.judge.spark.sql(done).collect()
        finally:
            for key in {**QUIET, **settings}:
                self.judge.spark.conf.unset(key.replace("__", "."))
        self._note(step="sql", text=text, settings=settings)

    def call(self, procedure: str, **arguments: Any) -> list[dict[str, Any]]:
        """Call one of Hudi's procedures."""
        rows = self.judge.call(procedure, str(self.path), arguments)
        self._note(step="call", procedure=procedure, arguments=arguments)
        return list(rows)

    def compact(self) -> None:
        options = {**QUIET, "hoodie.compact.inline.max.delta.commits": "1"}
        text = ",".join(f"{key}={value}" for key, value in options.items())
        self.call("compaction", op="schedule", options=text)
        self.call("compaction", op="run", options=text)

    def edit_properties(self, **values: str | None) -> None:
        """Change `hoodie.properties` by hand, for what Hudi does not write itself."""
        edited = {key.replace("__", "."): value for key, value in values.items()}
        path = self.path / ".hoodie" / "hoodie.properties"
        kept = [x for x in path.read_text().splitlines() if x.partition("=")[0] not in edited]
        path.write_text("\n".join([*kept, *(f"{k}={v}" for k, v in edited.items() if v)]) + "\n")
        (path.parent / ".hoodie.properties.crc").unlink(missing_ok=True)
        self._note(step="edit", properties=edited)

    def _note(self, **step: Any) -> None:
        self.steps.append({key: value for key, value in step.items() if value not in ({}, None)})

    # -- the description

    @property
    def properties(self) -> dict[str, str]:
        text = (self.path / ".hoodie" / "hoodie.properties").read_text()
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        return dict(sorted(line.split("=", 1) for line in lines))

    def questions(self) -> dict[str, dict[str, Any]]:
        """The reads to record: each point in time and each step from one to the next."""
        reads: dict[str, dict[str, Any]] = {"snapshot": {}}
        if self.properties["hoodie.table.type"] == "MERGE_ON_READ":
            reads["read_optimized"] = {"query_type": "read_optimized"}
        if self.refused is not None:
            return reads
        done = [
            i for i in self.judge.timeline(str(self.path))
            if i["state"] == "COMPLETED" and i["action"] in _WRITES
        ]
        for number, instant in enumerate(done, 1):
            reads[f"as_of_{number}"] = {"as_of": instant["requested"]}
        ends = sorted(instant["completed"] for instant in done)
        if ends:
            reads["incremental_all"] = {
                "query_type": "incremental", "begin": "000", "end": ends[-1]
            }
        for number, (begin, end) in enumerate(zip(ends, ends[1:], strict=False), 2):
            reads[f"incremental_{number}"] = {
                "query_type": "incremental", "begin": begin, "end": end
            }
        return {**reads, **self.extra_reads}

    def description(self, about: str) -> dict[str, Any]:
        reads, fails = [], []
        for name, how in self.questions().items():
            try:
                rows = self.judge.read(str(self.path), **how)
                reads.append({"name": name, "how": how, "rows": rows})
            except Exception as error:  # an answer too
                fails.append({"name": name, "how": how, "error": str(error).splitlines()[0][:200]})
        return {
            "name": self.name,
            "about": " ".join(about.split()),
            "archive": f"{self.name}.tar.gz",
            "hudi_version": "1.2.0",
            "options": self.options,
            "steps": self.steps,
            "properties": self.properties,
            "schema": self._schema(),
            "reads": reads,
            "reads_hudi_fails": fails,
            **({"refused": self.refused} if self.refused is not None else {}),
        }

    def _schema(self) -> str | None:
        try:
            return str(self.judge.schema(str(self.path)))
        except Exception:
            return None  # Hudi itself cannot open it


def _columns(schema: str) -> list[str]:
    """The columns of a Spark DDL text: split at commas outside of brackets."""
    return re.split(r",(?![^<(]*[>)])", schema)


def archive(table: Path) -> bytes:
    """The table as a .tar.gz without checksum side files and without the maker's clock."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(p for p in table.rglob("*") if p.is_file() and p.suffix != ".crc"):
            entry = tarfile.TarInfo(f"{table.name}/{path.relative_to(table).as_posix()}")
            entry.size = path.stat().st_size
            with path.open("rb") as source:
                tar.addfile(entry, source)
    return gzip.compress(raw.getvalue(), mtime=0)


def pretty(description: dict[str, Any]) -> str:
    """JSON with one line for each row, step and property, and without the maker's paths."""

    def layout(value: Any, depth: int) -> str:
        if not value or depth > 4 or not isinstance(value, (dict, list)):
            return json.dumps(value, sort_keys=True, ensure_ascii=False)
        nested = any(isinstance(item, (dict, list)) for item in items(value))
        if depth > 1 and not nested:
            return json.dumps(value, sort_keys=True, ensure_ascii=False)
        if isinstance(value, list):
            inside = [layout(item, depth + 1) for item in value]
        else:
            inside = [f"{json.dumps(k)}: {layout(v, depth + 1)}" for k, v in sorted(value.items())]
        opening, closing = "[]" if isinstance(value, list) else "{}"
        pad = "\n" + " " * (depth + 1)
        return f"{opening}{pad}{f',{pad}'.join(inside)}\n{' ' * depth}{closing}"

    def items(value: dict[str, Any] | list[Any]) -> Any:
        return value.values() if isinstance(value, dict) else value

    return re.sub(f"(file:/*)?{WORKSHOP}", "/tables", layout(description, 0)) + "\n"


def make(judge: Any, name: str, into: Path) -> None:
    shutil.rmtree(WORKSHOP / name, ignore_errors=True)
    maker = Maker(judge, name)
    TABLES[name](maker)
    description = maker.description(TABLES[name].__doc__ or "")
    (into / f"{name}.json").write_text(pretty(description))
    (into / f"{name}.tar.gz").write_bytes(archive(maker.path))


TABLES: dict[str, Callable[[Maker], None]] = {}


def table(function: Callable[[Maker], None]) -> Callable[[Maker], None]:
    """Register a table under the function's name."""
    TABLES[function.__name__] = function
    return function


# ---- tables: what is refused


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
    t.options["hoodie.datasource.write.keygenerator.class"] = (
        "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
    )
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
    t.edit_properties(hoodie__table__version="10")
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
    t.options["hoodie.record.merge.strategy.id"] = "4a1e6a5c-33f9-4c6e-9a39-5a3d3f0e8c11"
    t.options["hoodie.write.record.merge.custom.implementation.classes"] = (
        "org.apache.hudi.DefaultSparkRecordMerger"
    )
    t.write(PLAIN, [("a", 1, "a1"), ("b", 5, "b5")])
    t.write(PLAIN, [("a", 2, "a2"), ("b", 4, "b4")])
    t.refused = "custom merge strategy"


# ---- tables: partition columns


def _dropped(t: Maker, kind: str, type_: str, first: Any, second: Any) -> None:
    t.begin(kind, ordering="ts", partition="part")
    t.options["hoodie.datasource.write.drop.partition.columns"] = "true"
    schema = f"id string, ts bigint, v string, part {type_}"
    t.write(schema, [("a", 1, "a1", first), ("b", 1, "b1", second)])
    t.write(schema, [("b", 2, "b2", second)])


@table
def cow_dropped_text(t: Maker) -> None:
    """Copy on write; the partition column, a text, is not in the files."""
    _dropped(t, "cow", "string", "eu", "us west")


@table
def cow_dropped_int(t: Maker) -> None:
    """Copy on write; the partition column, an int, is not in the files."""
    _dropped(t, "cow", "int", 7, 2026)


@table
def mor_dropped_text(t: Maker) -> None:
    """Merge on read; the partition column, a text that looks like a number, is not in the files."""
    _dropped(t, "mor", "string", "007", "us west")


@table
def mor_dropped_int(t: Maker) -> None:
    """Merge on read; the partition column, an int, is not in the files."""
    _dropped(t, "mor", "int", 7, 2026)


@table
def mor_dropped_date(t: Maker) -> None:
    """Merge on read; the partition column, a date, is not in the files."""
    _dropped(t, "mor", "date", "2026-01-31", "2026-02-01")


@table
def mor_dropped_two(t: Maker) -> None:
    """Merge on read; two partition columns, hive style and encoded, are not in the files."""
    t.begin("mor", ordering="ts", partition="n,s")
    t.options["hoodie.datasource.write.drop.partition.columns"] = "true"
    t.options["hoodie.datasource.write.hive_style_partitioning"] = "true"
    t.options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    schema = "id string, ts bigint, v string, n bigint, s string"
    t.write(schema, [("a", 1, "a1", 1, "x/y"), ("b", 1, "b1", 20, None)])
    t.write(schema, [("b", 2, "b2", 20, None)])


_TIMESTAMP = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}


def _timestamped(t: Maker, kind: str, generator: str, partition: str) -> None:
    t.begin(kind, ordering="ts", partition=partition)
    t.options.update(_TIMESTAMP)
    t.options["hoodie.datasource.write.keygenerator.class"] = (
        f"org.apache.hudi.keygen.{generator}KeyGenerator"
    )
    schema = "id string, ts bigint, v string, at bigint, zone string"
    noon = 1767268800000  # 2026-01-01T12:00Z
    t.write(schema, [("a", 1, "a1", noon, "eu"), ("b", 1, "b1", noon + 86_400_001, "us")])
    t.write(schema, [("b", 2, "b2", noon + 86_400_002, "us")])


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
    """Copy on write; paths of a plain and of a formatted column (CUSTOM keys)."""
    _timestamped(t, "cow", "Custom", "zone:SIMPLE,at:TIMESTAMP")


@table
def mor_custom_keys(t: Maker) -> None:
    """Merge on read; paths of a plain and of a formatted column (CUSTOM keys)."""
    _timestamped(t, "mor", "Custom", "zone:SIMPLE,at:TIMESTAMP")


@table
def mor_odd_partitions(t: Maker) -> None:
    """Two record keys, two partition columns, hive style, values that need encoding."""
    t.begin("mor", key="id,sub", ordering="ts", partition="p,q")
    t.options["hoodie.datasource.write.hive_style_partitioning"] = "true"
    t.options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    schema = "id string, sub int, ts bigint, v string, p string, q string"
    odd = [("a/b", "x=y"), ("50%", "with space"), ("é日", ""), (None, "a:b"), ("%2F", "q?&#")]
    t.write(schema, [("a", n, 1, "first", p, q) for n, (p, q) in enumerate(odd)])
    t.write(schema, [("a", n, 2, "second", p, q) for n, (p, q) in enumerate(odd) if n % 2])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", required=True, help="the folder of judge.py")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all tables if left out")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.judge)
    judge = importlib.import_module("judge").SparkJudge()
    try:
        for name in arguments.names or TABLES:
            make(judge, name, arguments.into)
            print(name, flush=True)
    finally:
        judge.stop()


if __name__ == "__main__":
    main()
