"""More than two thousand damaged files, each read through the front door.

Whatever happened to a file, the answer is rows or one of our own errors, within five seconds and
256 MB. Where only the framing of a log file was damaged, every row that comes back is one that was
written: a version may be missing, and none is made up. Flipped bits inside values get no such
promise, from us or from Hudi: the format has no checksum that could tell.

A failure names the seed, the file and the mutation; all of it happens again in the same order.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

import pyhudi
from fuzz.front_door import ROWS, VERBS, Answer, TookTooLong, answers, bounded, memory_in_use
from fuzz.mutations import Mutation, byte_mutations, log_mutations
from fuzz.subjects import Subject, Subjects, row_texts
from golden_tables import GoldenTables

SEED = "20260101"
GROWTH_MAX = 1024 * 1024 * 1024

#: Table → how many mutations of each log file; None for all there are.
LOGS: dict[str, int | None] = {
    "handmade by event time": None,
    "handmade by commit time": 40,
    "mor_parquet_logs": 12,
    "mor_avro_logs_with_deletes": 5,
    "mor_schema_evolved": 8,
    "mor_nbcc": 2,
    "mor_all_types": 8,
}
#: Table → how many mutations of each base file.
BASES = {"cow_nonpart_v9": 40, "cow_hive_style_v8": 30, "mor_compacted": 2, "mor_all_types": 4}
#: Table → how many mutations of each timeline file that a read opens.
TIMELINES = {
    "cow_insert_overwrite": 30,
    "cow_clustered": 15,
    "mor_with_rollback": 6,
    "mor_archived": 3,
}
#: Table → how many mutations of each file that no read needs.
OTHERS = {"cow_hive_style_v8": 2, "mor_consistent_hash_pending": 3, "mor_with_rollback": 2}


@pytest.fixture(scope="session")
def subjects(golden: GoldenTables) -> Subjects:
    return Subjects(golden)


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back() -> Iterator[None]:
    before = memory_in_use()
    yield
    assert memory_in_use() - before < GROWTH_MAX


Case = tuple[str, Mutation]


def log_cases(subject: Subject) -> Iterator[Case]:
    wanted = LOGS[subject.name]
    for path in subject.logs:
        found = list(log_mutations(subject.files[path], f"{SEED} {path}"))
        if wanted is not None:
            found = random.Random(f"{SEED} {path}").sample(found, wanted)
        yield from ((path, mutation) for mutation in found)


def byte_cases(subject: Subject, paths: Iterable[str], each: int) -> Iterator[Case]:
    for path in paths:
        for mutation in byte_mutations(subject.files[path], each, f"{SEED} {path}"):
            yield path, mutation


def base_cases(subject: Subject) -> Iterator[Case]:
    return byte_cases(subject, subject.bases, BASES[subject.name])


def timeline_cases(subject: Subject) -> Iterator[Case]:
    """Completed instants, plans, the archive and the properties."""
    paths = [path for path in subject.files if _is_read(path)]
    return byte_cases(subject, paths, TIMELINES[subject.name])


def other_cases(subject: Subject) -> Iterator[Case]:
    """Everything that a read has no need to open."""
    data = {*subject.logs, *subject.bases}
    paths = [path for path in subject.files if not _is_read(path) and path not in data]
    return byte_cases(subject, paths, OTHERS[subject.name])


def _is_read(path: str) -> bool:
    if path.startswith(".hoodie/timeline/"):
        return not path.endswith((".inflight", ".requested")) or "compaction.requested" in path
    return path == ".hoodie/hoodie.properties"


def judged(
    subject: Subject, path: str, mutation: Mutation, verbs: tuple[str, ...] = VERBS
) -> dict[str, Answer]:
    """The answers of the table with the one file damaged, which is whole again afterwards."""
    subject.storage.write(path, mutation.data)
    try:
        with bounded():
            return answers(subject.uri, subject.time, verbs)
    except (Exception, TookTooLong) as error:
        raise AssertionError(f"{_label(subject, path, mutation)}: {error!r}") from error
    finally:
        subject.restore(path)


def _label(subject: Subject, path: str, mutation: Mutation) -> str:
    return f"seed {SEED}, table {subject.name!r}, file {path!r}, {mutation.name}"


def kinds(found: Iterable[Answer]) -> Counter[str]:
    return Counter("rows" if isinstance(each, pa.Table) else type(each).__name__ for each in found)


def test_more_than_two_thousand_files_are_damaged(subjects: Subjects) -> None:
    logs = sum(1 for name in LOGS for _ in log_cases(subjects[name]))
    bases = sum(1 for name in BASES for _ in base_cases(subjects[name]))
    timelines = sum(1 for name in TIMELINES for _ in timeline_cases(subjects[name]))
    assert logs >= 1_500
    assert logs + bases + timelines >= 2_000


@pytest.mark.parametrize("name", LOGS)
def test_damaged_log_files_give_rows_that_were_written_or_a_typed_error(
    subjects: Subjects, name: str
) -> None:
    subject = subjects[name]
    seen: Counter[str] = Counter()
    verbs = ("read", "changes") if LOGS[name] is None else ROWS  # the one with most of the cases
    for path, mutation in log_cases(subject):
        found = judged(subject, path, mutation, verbs)
        seen += kinds(found.values())
        if mutation.is_structural:
            _assert_nothing_is_made_up(subject, found, _label(subject, path, mutation))
    assert seen["rows"] > seen.total() // 20  # most damage to a committed file is an error
    assert seen["CorruptTableError"] > seen.total() // 10


def _assert_nothing_is_made_up(subject: Subject, found: dict[str, Answer], label: str) -> None:
    for verb, answer in found.items():
        # At an older time the table may have had fewer columns.
        if isinstance(answer, pa.Table) and answer.schema.equals(subject.schema):
            rows = row_texts(answer)
            strange = [text for text in rows if text not in subject.written]
            assert not strange, f"{label}: {verb} made up {strange[0]}"
            keys = answer.select(["_hoodie_partition_path", "_hoodie_record_key"]).to_pylist()
            assert len(set(map(repr, keys))) == len(keys), f"{label}: {verb} has a key twice"


@pytest.mark.parametrize("name", BASES)
def test_damaged_base_files_give_rows_or_a_typed_error(subjects: Subjects, name: str) -> None:
    subject = subjects[name]
    cases = base_cases(subject)
    seen = sum((kinds(judged(subject, *case, ROWS).values()) for case in cases), Counter[str]())
    assert {"rows", "CorruptTableError"} == seen.keys() - {"UnsupportedTableError"}


@pytest.mark.parametrize("name", TIMELINES)
def test_damaged_timeline_files_give_rows_or_a_typed_error(subjects: Subjects, name: str) -> None:
    subject = subjects[name]
    cases = timeline_cases(subject)
    seen = sum((kinds(judged(subject, *case).values()) for case in cases), Counter[str]())
    assert seen["rows"]
    assert seen["CorruptTableError"]


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_a_read_does_not_need_may_hold_anything(subjects: Subjects, name: str) -> None:
    subject = subjects[name]
    for path, mutation in other_cases(subject):
        found = judged(subject, path, mutation, ("read",))["read"]
        assert isinstance(found, pa.Table), _label(subject, path, mutation)
        assert row_texts(found) == subject.rows, _label(subject, path, mutation)


# ---- names

#: No data file, or one of a write that nobody completed.
STRANGE_DATA_FILES = [
    *["x", "x.parquet", ".x.log.1_0-1-0", "_SUCCESS", "part-00000.snappy.parquet", "#HUDI#", "%"],
    *["f-0_0-1-0_20260101000000001.PARQUET", "f-0_0-1-0_2026.parquet", "f-0_0-1-0_.parquet"],
    *["_0-1-0_20260101000000001.parquet", "f-0__20260101000000001.parquet", "f-0_0-1-0.parquet"],
    *["f-0_0-1_20260101000000001.parquet", "f-0_0-1-0_20260101000000001.orc.parquet"],
    *[".f-0_20260101000000003.log.-1_0-1-0", ".f-0_20260101000000003.log.01_0-1-0"],
    *[".f-0_20260101000000003.log.99999999999999999999_0-1-0", ".f-0_x.log.1_0-1-0", "._x.log.1_0"],
    *[".f-0_20260101000000003.log.1_0-1-0.cdc", ".f-0_20260101000000003.log.1_0-1-0.tmp"],
    *[".f-0_20260101000000003.log.1_0-1-0.crc", ".f-0_20260101000000003.log.²_0-1-0"],
    *[
        "f-0_0-1-0_٢٠٢٦٠١٠١٠٠٠٠٠٠٠٠١.parquet",
        "\u202egnp.parquet",
        "é_0-1-0_20260101000000001.parquet",
    ],
    *["f-0_0-1-0_29990101000000001.parquet", ".f-0_29990101000000001.log.1_0-1-0", "x" * 1_000],
    *[
        ".hoodie_partition_metadata.parquet",
        ".hoodie_partition_metadata",
        "20260101000000001.commit",
    ],
]
STRANGE_TIMELINE_FILES = [
    *[
        "x",
        "hoodie.properties",
        ".20260101000000099.commit.crc",
        "_20260101000000099.commit",
        "a.b.c",
    ],
    *["20260101000000099.deltacommit.requested", "20260101000000099.inflight", "history.parquet"],
    *["00000000000000000.deltacommit.requested", "00010101000000000.deltacommit.requested"],
    *["99999999999999999.deltacommit.requested", "99999999999999.deltacommit.inflight"],
    *["20260101000000099.compaction.inflight", "20260101000000099.compaction.requested"],
]
REFUSED_TIMELINE_FILES = [
    *[
        "2",
        "20260101000000099",
        "20260101000000099.",
        "20260101000000099.commit",
        "99.commit.requested",
    ],
    *["20260101000000099_.commit", "20260101000000099_x.commit", "20260101000000099.commit.done"],
    *["20260101000000099_20260101000000100.commit.requested", "20260101000000099.parquet", "2²"],
    *["20260101000000099_20260101000000100.compaction", "20260101000000099_20260101000000100.x"],
    *["٢٠٢٦٠١٠١٠٠٠٠٠٠٠٩٩.commit.requested", "20260101000000099.commit.requested.crc", "0" * 1_000],
    *[
        "20260101000000099_20260101000000100.deltacommit",
        "20260101000000099_20260101000000100.commit",
    ],
]


@pytest.mark.parametrize("folder", ["", "deep/in/nowhere"])
@pytest.mark.parametrize("file_name", STRANGE_DATA_FILES, ids=ascii)
def test_a_strange_file_among_the_data_is_ignored(
    subjects: Subjects, file_name: str, folder: str
) -> None:
    path = f"{folder}/{file_name}" if folder else file_name
    _assert_ignored(subjects["handmade by event time"], path)


@pytest.mark.parametrize("file_name", STRANGE_TIMELINE_FILES, ids=ascii)
def test_a_strange_file_in_the_timeline_folder_is_ignored(
    subjects: Subjects, file_name: str
) -> None:
    _assert_ignored(subjects["handmade by event time"], f".hoodie/timeline/{file_name}")


def _assert_ignored(subject: Subject, path: str) -> None:
    for data in (b"", b"strange"):
        found = judged(subject, path, Mutation("strange file", data), ("read", "as of", "timeline"))
        assert kinds(found.values()) == {"rows": 3}, found
        assert row_texts(found["read"]) == subject.rows


@pytest.mark.parametrize("file_name", REFUSED_TIMELINE_FILES, ids=lambda name: ascii(name[:60]))
def test_a_file_that_poses_as_an_instant_is_refused_by_name(
    subjects: Subjects, file_name: str
) -> None:
    subject = subjects["handmade by event time"]
    path = f".hoodie/timeline/{file_name}"
    found = judged(subject, path, Mutation("strange instant", b""), ("read",))["read"]
    assert isinstance(found, pyhudi.CorruptTableError)
    assert file_name in str(found)


# ---- the harness itself


def test_the_bounds_can_fail() -> None:
    with pytest.raises(TookTooLong), bounded(seconds=0.05):
        time.sleep(60)
    with pytest.raises(AssertionError, match="memory grew"), bounded(bytes_max=1 << 20):
        assert len(bytes(1) * (64 << 20)) == 64 << 20


def test_a_row_that_nobody_wrote_is_noticed(subjects: Subjects) -> None:
    subject = subjects["handmade by event time"]
    sound = pyhudi.open_table(subject.uri).read(meta=True).to_arrow()
    forged = sound.set_column(sound.num_columns - 1, "v", pa.array(["forged"] * sound.num_rows))
    _assert_nothing_is_made_up(subject, {"read": sound}, "sound")
    with pytest.raises(AssertionError, match="made up"):
        _assert_nothing_is_made_up(subject, {"read": forged}, "forged")
    with pytest.raises(AssertionError, match="twice"):
        _assert_nothing_is_made_up(subject, {"read": pa.concat_tables([sound, sound])}, "doubled")
