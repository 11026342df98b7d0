"""Make a table with Apache Hudi, and take down how it was made and what Hudi reads from it.

A `Maker` does the steps of one table through the judge (README.md) and notes each. Afterwards it
asks Hudi for every read that the tests repeat, and keeps its rows, or its error.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
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

_TYPES = {"mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"}
_WRITES = ("commit", "deltacommit", "replacecommit")


class Maker:
    """One table in the making."""

    def __init__(self, judge: Any, name: str) -> None:
        self.judge = judge
        self.name = name
        self.path = WORKSHOP / name
        self.options: Options = {}
        self.steps: list[dict[str, Any]] = []
        self.refused: str | None = None  # what pyhudi has to name when it refuses the table
        self.ranges = True  # read the changes from each write to the next
        self.extra_reads: dict[str, dict[str, Any]] = {}

    # -- steps

    def begin(self, kind: str, *, key: str = "id", **words: str | None) -> None:
        """Choose the options of all writes. Words stand for Hudi's longer names."""
        names = {
            "partition": "hoodie.datasource.write.partitionpath.field",
            "ordering": "hoodie.table.ordering.fields",
            "payload": "hoodie.datasource.write.payload.class",
            "mode": "hoodie.write.record.merge.mode",
        }
        self.options = {
            **QUIET,
            **(BUCKET if kind == "mor" else {}),
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": key,
            "hoodie.datasource.write.table.type": _TYPES[kind],
            **{names[word]: value for word, value in words.items() if value is not None},
        }

    def write(
        self, schema: str, rows: Sequence[Row], op: str = "upsert", options: Options | None = None
    ) -> list[dict[str, Any]]:
        """Write rows, given as tuples in the order of the schema; the instants that this added."""
        names = [column.split()[0] for column in _columns(schema)]
        records = [dict(zip(names, row, strict=True)) for row in rows]
        chosen = {**self.options, **(options or {})}
        added = self.judge.write(str(self.path), records, chosen, op=op, schema=schema)
        self._note(step="write", operation=op, schema=schema, rows=records, options=options)
        return list(added)

    def sql(self, text: str, settings: Options | None = None) -> None:
        """Run SQL in which TABLE_NAME is the table's name and LOCATION_OF its path."""
        session, chosen = self.judge.spark, {**QUIET, **(settings or {})}
        for key, value in chosen.items():
            session.conf.set(key, value)
        try:
            filled = text.replace("TABLE_NAME", self.name).replace("LOCATION_OF", str(self.path))
            session.sql(filled).collect()
        finally:
            for key in chosen:
                session.conf.unset(key)
        self._note(step="sql", text=text, settings=settings)

    def call(self, procedure: str, **arguments: Any) -> None:
        """Call one of Hudi's procedures."""
        self.judge.call(procedure, str(self.path), arguments)
        self._note(step="call", procedure=procedure, arguments=arguments)

    def compact(self) -> None:
        options = {**QUIET, "hoodie.compact.inline.max.delta.commits": "1"}
        text = ",".join(f"{key}={value}" for key, value in options.items())
        self.call("compaction", op="schedule", options=text)
        self.call("compaction", op="run", options=text)

    def edit_properties(self, values: Options) -> None:
        """Change `hoodie.properties` by hand, for what Hudi does not write itself."""
        path = self.path / ".hoodie" / "hoodie.properties"
        kept = [x for x in path.read_text().splitlines() if x.partition("=")[0] not in values]
        edited = [f"{key}={value}" for key, value in values.items()]
        path.write_text("\n".join([*kept, *edited]) + "\n")
        (path.parent / ".hoodie.properties.crc").unlink(missing_ok=True)
        self._note(step="edit", properties=values)

    def _note(self, **step: Any) -> None:
        self.steps.append({key: value for key, value in step.items() if value is not None})

    # -- the description

    @property
    def properties(self) -> dict[str, str]:
        text = (self.path / ".hoodie" / "hoodie.properties").read_text()
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        return dict(sorted(line.split("=", 1) for line in lines))

    def completed_writes(self) -> list[dict[str, Any]]:
        instants = self.judge.timeline(str(self.path))
        return [i for i in instants if i["state"] == "COMPLETED" and i["action"] in _WRITES]

    def questions(self) -> dict[str, dict[str, Any]]:
        """The reads to record: each point in time, and each step from one to the next."""
        reads: dict[str, dict[str, Any]] = {"snapshot": {}}
        if self.properties["hoodie.table.type"] == "MERGE_ON_READ":
            reads["read_optimized"] = {"query_type": "read_optimized"}
        if self.refused is not None:
            return reads
        writes = self.completed_writes()
        for number, instant in enumerate(writes, 1):
            reads[f"as_of_{number}"] = {"as_of": instant["requested"]}
        ends = sorted(instant["completed"] for instant in writes)
        if ends:
            reads["incremental_all"] = changes("000", ends[-1])
        if len(ends) > 2 and self.ranges:
            reads["incremental_open"] = changes(ends[0])
        steps = pairwise(ends) if self.ranges else ()
        for number, (begin, end) in enumerate(steps, 2):
            reads[f"incremental_{number}"] = changes(begin, end)
        return {**reads, **self.extra_reads}

    def description(self, about: str) -> dict[str, Any]:
        reads, fails = [], []
        for name, how in self.questions().items():
            try:
                rows = self.judge.read(str(self.path), **how)
                reads.append({"name": name, "how": how, "rows": rows})
            except Exception as error:  # an answer too
                fails.append({"name": name, "how": how, "error": _reason(error)})
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


def changes(begin: str, end: str | None = None) -> dict[str, Any]:
    how = {"query_type": "incremental", "begin": begin}
    return how if end is None else {**how, "end": end}


def _reason(error: Exception) -> str:
    """The innermost cause of a Java error, in one line."""
    text = str(error)
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        text = cause.toString() or text
        cause = cause.getCause()
    return text.strip().splitlines()[0][:200]


def _columns(schema: str) -> list[str]:
    """The columns of a Spark DDL text: split at commas outside of brackets."""
    return re.split(r",(?![^<(]*[>)])", schema)


# ---- files


def archive(table: Path) -> bytes:
    """The table as a .tar.gz, without checksum side files and without the maker's clock."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(p for p in table.rglob("*") if p.is_file() and p.suffix != ".crc"):
            entry = tarfile.TarInfo(f"{table.name}/{path.relative_to(table).as_posix()}")
            entry.size = path.stat().st_size
            with path.open("rb") as source:
                tar.addfile(entry, source)
    return gzip.compress(raw.getvalue(), mtime=0)


def pretty(value: Any, depth: int = 0) -> str:
    """JSON with one line for each row, step and property."""
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not value or not isinstance(value, dict | list):
        return flat
    items = value.values() if isinstance(value, dict) else value
    if depth > 1 and not any(isinstance(item, dict | list) for item in items):
        return flat
    if isinstance(value, dict):
        inside = [f"{json.dumps(k)}: {pretty(v, depth + 1)}" for k, v in sorted(value.items())]
    else:
        inside = [pretty(item, depth + 1) for item in value]
    pad = "\n" + " " * (depth + 1)
    body = f"{pad}{f',{pad}'.join(inside)}\n{' ' * depth}"
    return f"{{{body}}}" if isinstance(value, dict) else f"[{body}]"


def make(judge: Any, name: str, into: Path) -> None:
    """Make the table anew and write its archive and its description."""
    judge.spark.sql(f"DROP TABLE IF EXISTS {name}")
    shutil.rmtree(WORKSHOP / name, ignore_errors=True)
    maker = Maker(judge, name)
    TABLES[name](maker)
    text = pretty(maker.description(TABLES[name].__doc__ or ""))
    (into / f"{name}.json").write_text(re.sub(f"(file:/*)?{WORKSHOP}", "/tables", text) + "\n")
    (into / f"{name}.tar.gz").write_bytes(archive(maker.path))


Steps = Callable[[Maker], None]
_tables: dict[str, Steps] = {}
TABLES: Mapping[str, Steps] = _tables


def table(steps: Steps) -> Steps:
    """Register the steps of a table; name and docstring are the table's."""
    _tables[steps.__name__] = steps
    return steps
