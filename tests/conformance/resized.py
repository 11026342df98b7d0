"""A table of consistent buckets that is resized, what it must hold, and what readers say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient, Question
from conformance.rows import assert_same_rows, encoded_rows, spark_columns
from conformance.writing import QUIET
from golden_reads import hudi_options
from golden_tables import load_description, unpack
from many_writers.scene import HeldWrite, Stop
from opened_tables import session_on
from pyhudi.commit.proposals import Close, Decided
from pyhudi.format.table.ring_file import Ring
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.index.ring_changes import RingChange, merge
from pyhudi.services.resizing.execute import Resizes
from pyhudi.services.resizing.result import ResizeResult
from pyhudi.services.resizing.run import resizes
from pyhudi.session.session import TableSession
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.world import new_uuid, real_world
from resize_tables import begin_resize, splits

Row = dict[str, Any]
Claim = tuple[pa.Table, Question]  # what pyhudi reads, and what to ask a judge
Range = tuple[str, str]  # of completion times: after the first, up to the second

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int64()),
    ]
)
DAYS = ("mo", "tu", "we")
#: A lock that keeps nobody else away. Hudi asks for one by the table's mode.
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"


@dataclass(frozen=True)
class Kind:
    """What kind of table is resized."""

    is_partitioned: bool = True
    is_optimistic: bool = False
    is_ordered: bool = True
    owners: dict[str, list[str]] | None = None
    schema: pa.Schema = SCHEMA
    partitions: int = 2

    @property
    def days(self) -> tuple[str, ...]:
        """The partitions' paths."""
        return DAYS[: self.partitions] if self.is_partitioned else ("",)

    def create(self, path: Path, initial: int) -> pyhudi.Table:
        modes: dict[str, Any] = {"concurrency": "optimistic"} if self.is_optimistic else {}
        modes |= {"ordering": "ts"} if self.is_ordered else {}
        modes |= {"owners": self.owners} if self.owners else {}
        return pyhudi.create_table(
            path,
            self.schema,
            name="t",
            record_key="id",
            partition_by="day" if self.is_partitioned else (),
            buckets=pyhudi.ConsistentBuckets(initial),
            upkeep=False,
            **modes,
        )


class Died(BaseException):
    """What ends an executor in the midst of its work."""


class _Dying:
    """A storage whose process dies when it is about to create the nth such file."""

    def __init__(self, storage: Storage, at: str, nth: int) -> None:
        self._storage = storage
        self._at = at
        self._left = nth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def create(self, path: str, data: bytes) -> bool:
        self._look(path)
        return self._storage.create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._look(path)
        return self._storage.create_from(path, chunks)

    def _look(self, path: str) -> None:
        self._left -= self._at in path and not path.startswith(".hoodie/")  # not its marker
        if not self._left:
            raise Died


class ResizedTable:
    """The table, and a plain model of its rows, which goes by the order of writes."""

    def __init__(
        self, judge: JudgeClient, path: Path, schema: pa.Schema, days: tuple[str, ...]
    ) -> None:
        self._judge = judge
        self.path = path
        self.schema = schema
        self.days = days
        self.is_joined = False
        #: What a Hudi job needs that has the table to itself.
        self.job = {**QUIET, "hoodie.metadata.enable": "false"}
        self._rows: dict[str, Row] = {}
        self._stamp = 0

    # -- writes

    def made(self, numbers: Iterable[int]) -> pa.Table:
        """Rows that count more than all before."""
        self._stamp += 1
        return pa.Table.from_pylist([self._row(number) for number in numbers], self.schema)

    def _row(self, number: int) -> Row:
        raise NotImplementedError

    def holds(self, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            before = self._rows.get(row["id"], dict.fromkeys(self.schema.names))
            self._rows[row["id"]] = {**before, **row}

    def upsert(
        self, numbers: Iterable[int], owner: str | None = None, **how: Any
    ) -> pyhudi.WriteResult:
        """Write rows, of a joined table the columns of an owner."""
        rows = self._given(numbers, owner)
        result = self.open().upsert(rows, owner=owner, **how)
        self.holds(rows)
        return result

    def _given(self, numbers: Iterable[int], owner: str | None) -> pa.Table:
        """What an owner gives of the rows."""
        assert owner is None
        return self.made(numbers)

    def delete(self, numbers: Iterable[int]) -> pyhudi.WriteResult:
        keys = [self._row(number)["id"] for number in numbers]
        result = self.open().delete(pa.table({"id": keys}))
        for key in keys:
            self._rows.pop(key, None)
        return result

    def overwrite(self, numbers: Iterable[int]) -> pyhudi.WriteResult:
        """Replace the whole table."""
        rows = self.made(numbers)
        result = self.open().overwrite(rows, partitions="all")
        self._rows = {}
        self.holds(rows)
        return result

    def hudi_upsert(self, numbers: Iterable[int], options: Mapping[str, str]) -> None:
        rows, columns = self.made(numbers), spark_columns(self.schema)
        self._judge.hudi_write(self.path, encoded_rows(rows), columns, {**options, **self.job})
        self.holds(rows)

    def hudi_call(self, procedure: str, **arguments: Any) -> None:
        """Have Hudi run one of its procedures."""
        job = {**self.job, "hoodie.compact.inline.max.delta.commits": "1"}
        options = ",".join(f"{key}={value}" for key, value in job.items())
        self._judge.hudi_call(procedure, self.path, options=options, **arguments)

    def held(
        self, numbers: Iterable[int], owner: str | None = None, **how: Any
    ) -> Callable[[], pyhudi.WriteResult]:
        """Let a writer write its files and wait; return what lets it complete."""
        rows, own = self._given(numbers, owner), self.open()
        write = HeldWrite(lambda: own.upsert(rows, owner=owner, **how)).run_to(Stop.WRITTEN)

        def finish() -> pyhudi.WriteResult:
            result = write.finish()
            self.holds(rows)
            return result

        return finish

    def open(self) -> pyhudi.Table:
        return pyhudi.open_table(self.path)

    # -- resizes

    def plan_split(self, parts: int, days: Sequence[str] | None = None) -> str:
        """Plan a split of every bucket; return the requested time."""
        return self._plan(days, lambda ring: splits(ring, parts, self._new_id))

    def plan_merge(self, days: Sequence[str] | None = None, *, run: int = 0) -> str:
        """Plan a merge of all buckets of a partition, or of so many from the first."""
        return self._plan(
            days, lambda ring: [merge(ring, range(run or len(ring.nodes)), self._new_id())]
        )

    def _plan(
        self, days: Sequence[str] | None, changes: Callable[[Ring], Iterable[RingChange]]
    ) -> str:
        return begin_resize(self.session(), days or self.days, changes)

    def _new_id(self) -> str:
        return new_uuid(real_world())

    def execute(self, requested: str) -> ResizeResult:
        result = self.resizes().execute(requested, is_forced=True)
        assert result is not None
        return result

    def dies_at(self, requested: str, at: str, nth: int = 1) -> None:
        """Execute the resize up to the nth of such data files."""
        dying: Any = _Dying(open_storage(str(self.path)), at, nth)
        with pytest.raises(Died):
            resizes(session_on(dying, real_world())).execute(requested, is_forced=True)

    def close(self, requested: str) -> None:
        """Close it, as an executor does that dies then; its base files are there."""
        outcome = self.session().log.append(Close(requested, lambda live: None))
        assert isinstance(outcome, Decided), outcome

    def cancel(self, requested: str) -> None:
        self.resizes().cancel(requested, is_forced=True)

    def resizes(self) -> Resizes:
        return resizes(self.session())

    def session(self) -> TableSession:
        return session_on(open_storage(str(self.path)), real_world())

    def files_of(self, requested: str) -> list[str]:
        """The data files that bear this instant's name."""
        found = (path for path in self.path.rglob(f"*_{requested}*") if path.suffix != ".crc")
        return sorted(p.name for p in found if ".hoodie" not in p.relative_to(self.path).parts)

    # -- what readers say

    def agree(self, *, is_verified: bool = True) -> None:
        """All readers give the rows of the model, and Hudi those of base files as pyhudi does."""
        table = self.open()
        ours = table.read(meta=True).to_arrow()
        names = self.schema.names
        found = sorted(ours.select(names).to_pylist(), key=lambda row: row["id"])
        assert found == sorted(self._rows.values(), key=lambda row: row["id"])
        base_files = table.read(meta=True, read_optimized=True).to_arrow()
        self.hear(
            [
                (ours, self.question("read")),
                (ours, self.question("rs-read")),
                (base_files, self.question("read", query_type="read_optimized")),
            ]
        )
        if is_verified:
            assert table.services.verify().findings == ()

    def agree_on_the_past(self) -> None:
        """As of every request and every completion, but for what is pending."""
        table = self.open()
        claims = []
        for time in self.times():
            ours = table.read(as_of=pyhudi.RequestedTime(time), meta=True).to_arrow()
            # hudi-rs has the columns of today at every time.
            claims += [
                (ours, self.question("read", as_of=time)),
                (ours, self.question("rs-read", as_of=time, columns=ours.column_names)),
            ]
        self.hear(claims)

    def agree_on_changes(self, ranges: Iterable[Range]) -> None:
        self.hear([claim for one in ranges for claim in self.changes(one)])

    def changes(self, one: Range) -> list[Claim]:
        """What to ask Hudi, and then hudi-rs, about a range."""
        how = {"query_type": "incremental", "begin": one[0], "end": one[1]}
        ours = self.open().read_with_hudi_options(hudi_options(how)).to_arrow()
        return [(ours, self.question(who, **how)) for who in ("read", "rs-read")]

    def ranges(self) -> list[Range]:
        """All between two completions, and from the beginning."""
        ends = ["000", *(instant.completed or "" for instant in self.completed())]
        return list(combinations(ends, 2))

    def hear(self, claims: Sequence[Claim]) -> None:
        """Have the judges answer every question as pyhudi did."""
        meta = not self.is_joined  # a row of several parts has not one writer
        for ours, question, theirs in self.asked(claims):
            try:
                assert_same_rows(ours, theirs, meta=meta)
            except AssertionError as error:
                raise AssertionError(f"{question}: {error}") from error

    def asked(self, claims: Sequence[Claim]) -> list[tuple[pa.Table, Question, list[Row]]]:
        """What pyhudi read, each question, and the judges' answer."""
        answers = self._judge.ask_all([question for _, question in claims])
        return [(*claim, theirs) for claim, theirs in zip(claims, answers, strict=True)]

    def question(self, who: str, **how: Any) -> Question:
        return {"cmd": who, "path": str(self.path), **how}

    # -- the timeline

    def completed(self) -> list[Instant]:
        """What completed and changed what readers see, in that order."""
        instants = self.session().log.live.completed_after("0")
        seen = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
        return sorted(
            (i for i in instants if i.action in seen), key=lambda instant: instant.completed or ""
        )

    def times(self) -> list[str]:
        """Every request and every completion."""
        instants = self.completed()
        return sorted({time for i in instants for time in (i.requested, i.completed or "")})


class OwnTable(ResizedTable):
    """A table that pyhudi creates."""

    def __init__(self, judge: JudgeClient, path: Path, kind: Kind, *, initial: int = 1) -> None:
        super().__init__(judge, path, kind.schema, kind.days)
        self.kind = kind
        self.is_joined = kind.owners is not None
        if kind.is_optimistic:
            self.job |= {
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.write.lock.provider": IN_PROCESS,
            }
        kind.create(path, initial)

    def add_column(self, name: str) -> None:
        """Let the rows have one more column from now on."""
        self.schema = self.schema.append(pa.field(name, pa.string()))
        self._rows = {key: {**row, name: None} for key, row in self._rows.items()}

    def _row(self, number: int) -> Row:
        n = 1000 * self._stamp + number
        row = {
            "id": f"k{number}",
            "day": DAYS[number % self.kind.partitions],
            "ts": self._stamp,
            "n": n,
        }
        more = set(self.schema.names) - row.keys()
        return {**row, **{name: f"{name}{n}" for name in more}}

    def _given(self, numbers: Iterable[int], owner: str | None) -> pa.Table:
        rows, owners = self.made(numbers), self.kind.owners
        return rows if owners is None else rows.select(["id", "day", *owners[owner or ""]])


class GoldenTable(ResizedTable):
    """A table that Hudi made, and perhaps resized."""

    def __init__(self, judge: JudgeClient, name: str, folder: Path) -> None:
        path = unpack(name, folder)
        self.description = load_description(name)
        table = pyhudi.open_table(path)
        rows = table.read().to_arrow()
        days = sorted({*rows["part"].to_pylist()}) if table.partition_by else [""]
        super().__init__(judge, path, rows.schema, tuple(days))
        self.holds(rows)
        self._known = rows.to_pylist()
        self._stamp = 100  # above all that Hudi wrote

    def _row(self, number: int) -> Row:
        """A later one of a known row, or a new one."""
        known = self._known[number % len(self._known)]
        id_ = known["id"] if number < len(self._known) else f"new{number}"
        changed = {"ver": self._stamp, "name": f"n{number}", "amount": number / 4}
        return {"id": id_, "part": known["part"], **changed}
