from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline import archive
from pyhudi.format.timeline.archive import (
    CONTENTS,
    TIMES,
    VERSION_FILE,
    ArchivedInstant,
    ArchiveFileName,
    Manifest,
    ManifestEntry,
    archive_file_name,
    decode_archive_file,
    decode_archive_version,
    decode_archived_instants,
    decode_manifest,
    encode_archive_file,
    encode_archive_version,
    encode_manifest,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import InstantTime

PATH = "history/a"
TIMES_17 = st.integers(0, 10**17 - 1).map(lambda n: InstantTime(f"{n:017}"))
T1, T2, T3 = (InstantTime(f"2026010100000000{n}") for n in (1, 2, 3))


@pytest.fixture(scope="module")
def history(golden: GoldenTables) -> Path:
    return golden.path("mor_archived") / ".hoodie/timeline/history"


def test_golden_manifest_and_version_encode_to_the_same_bytes(history: Path) -> None:
    version = (history / VERSION_FILE).read_bytes()
    assert encode_archive_version(decode_archive_version(version, PATH)) == version == b"7"
    manifests = sorted(history.glob("manifest_*"))
    assert [parse_manifest_name(path.name) for path in manifests] == [5, 6, 7]
    for path in manifests:
        assert encode_manifest(decode_manifest(path.read_bytes(), PATH)) == path.read_bytes()


def test_current_manifest_lists_every_golden_file_with_its_size(history: Path) -> None:
    manifest = decode_manifest((history / manifest_name(7)).read_bytes(), PATH)
    listed = {entry.file.file_name: entry.size for entry in manifest.entries}
    assert listed == {path.name: path.stat().st_size for path in history.glob("*.parquet")}


def test_golden_files_hold_the_instants_that_hudi_shows(
    golden: GoldenTables, history: Path
) -> None:
    found = [
        {"requested": i.requested, "completed": i.completed, "action": i.action}
        for path in sorted(history.glob("*.parquet"))
        for i in decode_archived_instants(path.read_bytes(), PATH)
    ]
    shown = golden.description("mor_archived")["archived_instants"]
    assert [{**instant, "state": "COMPLETED"} for instant in found] == shown


def test_golden_file_keeps_its_instants_and_name_when_written_again(history: Path) -> None:
    for path in history.glob("*.parquet"):
        instants = decode_archived_instants(path.read_bytes(), PATH)
        assert decode_archived_instants(encode_archive_file(instants), PATH) == instants
        assert archive_file_name(instants).file_name == path.name


def test_written_file_has_the_schema_and_footer_of_hudis(history: Path) -> None:
    theirs = pq.ParquetFile(next(history.glob("*.parquet")))
    ours = pq.ParquetFile(pa.BufferReader(encode_archive_file([ArchivedInstant(T1, T2, "commit")])))
    for a, b in zip(ours.schema, theirs.schema, strict=True):
        assert (a.name, a.physical_type, a.converted_type, a.max_definition_level) == (
            b.name, b.physical_type, b.converted_type, b.max_definition_level)  # fmt: skip
    footer, expected = ours.metadata.metadata, theirs.metadata.metadata
    assert footer.keys() == expected.keys()
    assert footer[b"writer.model.name"] == expected[b"writer.model.name"]
    hints = b'{"type":"string","avro.java.string":"String"}'
    assert footer[b"parquet.avro.schema"] == expected[b"parquet.avro.schema"].replace(
        hints, b'"string"'
    )


def test_times_are_read_without_contents(history: Path) -> None:
    data = next(history.glob("*.parquet")).read_bytes()
    assert decode_archive_file(data, PATH).column_names == list(TIMES)
    contents = decode_archive_file(data, PATH, CONTENTS)
    assert contents.column_names == list(CONTENTS)
    assert decode_commit_metadata(contents["metadata"][0].as_py(), PATH).write_stats


INSTANTS = st.lists(
    st.builds(
        ArchivedInstant,
        TIMES_17,
        TIMES_17,
        st.sampled_from(["commit", "deltacommit", "clean"]),
        st.none() | st.binary(max_size=50),
        st.none() | st.binary(max_size=50),
    ),
    max_size=5,
).map(lambda instants: tuple(sorted(instants, key=lambda instant: instant.requested)))


@given(INSTANTS)
@settings(deadline=None, max_examples=50)
def test_archive_file_round_trips(instants: tuple[ArchivedInstant, ...]) -> None:
    assert decode_archived_instants(encode_archive_file(instants), PATH) == instants


NAMES_OF_FILES = st.builds(
    lambda a, b, level: ArchiveFileName(min(a, b), max(a, b), level),
    TIMES_17,
    TIMES_17,
    st.integers(0, 99),
)


@given(NAMES_OF_FILES)
@settings(deadline=None, max_examples=100)
def test_archive_file_name_round_trips(name: ArchiveFileName) -> None:
    assert ArchiveFileName.parse(name.file_name) == name


@given(st.lists(st.builds(ManifestEntry, NAMES_OF_FILES, st.integers(0, 2**40)), max_size=4,
                unique_by=lambda entry: entry.file))  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_manifest_round_trips_and_is_json(entries: list[ManifestEntry]) -> None:
    manifest = Manifest(tuple(entries))
    data = encode_manifest(manifest)
    assert decode_manifest(data, PATH) == manifest
    assert json.loads(data) == {
        "files": [{"fileName": e.file.file_name, "fileLen": e.size} for e in entries]
    }


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(T1, T1, False), (T1, T2, True), (T2, T2, True), (T3, T3, True), ("3", "4", False)],
)
def test_range_of_a_file_name_tells_where_to_look(start: str, end: str, expected: bool) -> None:
    assert ArchiveFileName(T2, T3, 0).overlaps(start, end) is expected


def test_unsorted_instants_are_not_written() -> None:
    with pytest.raises(AssertionError, match="requested time"):
        encode_archive_file([ArchivedInstant(T2, T3, "commit"), ArchivedInstant(T1, T3, "commit")])


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.parquet",
        f"{T1}_{T2}_0",
        f"{T1}_{T2}.parquet",
        f"{T2}_{T1}_0.parquet",
        f"{T1}_{T2}_-1.parquet",
        f"{T1}_{T2}_00.parquet",
        f"{T1}_{T2}_9999999999.parquet",
        f"{T1}_{T2}_0_1.parquet",
        f"../{T1}_{T2}_0.parquet",
        f"{T1}_{T2}_0.parquet/x.parquet",
        f"{T1}_{T2}_٣.parquet",
        f"{T1}_{T2}_0.parquet\n",
    ],
)
def test_other_name_is_not_an_archive_file(name: str) -> None:
    with pytest.raises(CorruptTableError):
        ArchiveFileName.parse(name)
    with pytest.raises(CorruptTableError):
        decode_manifest(json.dumps({"files": [{"fileName": name, "fileLen": 1}]}).encode(), PATH)


@pytest.mark.parametrize("name", ["manifest_", "manifest_x", "manifest_01", "_7", "manifest_-1"])
def test_other_name_is_not_a_manifest(name: str) -> None:
    assert parse_manifest_name(name) is None


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"1.0", b"9" * 30, b"\xff", b"7\0", b"1 2"])
def test_version_that_is_no_number_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_archive_version(data, PATH)
    assert caught.value.path == PATH


GOOD_NAME = f"{T1}_{T2}_0.parquet"
MANIFESTS = {
    "nothing": b"",
    "not json": b"{",
    "not text": b"\xff\xff",
    "deep": b"[" * 100_000,
    "list": b"[]",
    "no files": b"{}",
    "files of a number": b'{"files": 7}',
    "file of a number": b'{"files": [7]}',
    "no name": b'{"files": [{"fileLen": 1}]}',
    "no length": json.dumps({"files": [{"fileName": GOOD_NAME}]}).encode(),
    "negative length": json.dumps({"files": [{"fileName": GOOD_NAME, "fileLen": -1}]}).encode(),
    "length of a truth": json.dumps({"files": [{"fileName": GOOD_NAME, "fileLen": True}]}).encode(),
    "file twice": json.dumps({"files": [{"fileName": GOOD_NAME, "fileLen": 1}] * 2}).encode(),
}


@pytest.mark.parametrize("data", MANIFESTS.values(), ids=MANIFESTS)
def test_damaged_manifest_is_refused(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(CorruptTableError):
        decode_manifest(data, PATH)
    assert time.process_time() - begun < 1


def parquet(table: pa.Table, **options: str) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


GOOD = encode_archive_file([ArchivedInstant(T1, T2, "commit", b"m" * 100, b"p")])
TIMES_ONLY = {"instantTime": [T1], "completionTime": [T2], "action": ["commit"]}
WHOLE = {**TIMES_ONLY, "metadata": [b""], "plan": [b""]}
FILES = {
    "nothing": b"",
    "garbage": b"\xff" * 500,
    "magic alone": b"PAR1" + b"\0" * 8 + b"PAR1",
    "absurd footer": GOOD[:-8] + b"\xff\xff\xff\x7fPAR1",
    "no contents": parquet(pa.table(TIMES_ONLY)),
    "contents that are lists": parquet(pa.table({**WHOLE, "metadata": [[1]]})),
    "time that is null": parquet(pa.table({**WHOLE, "instantTime": pa.nulls(1, pa.string())})),
    "time that is no time": parquet(pa.table({**WHOLE, "instantTime": ["../x"]})),
    "no action": parquet(pa.table({**WHOLE, "action": pa.nulls(1, pa.string())})),
    "bomb": parquet(pa.table({**WHOLE, "metadata": [bytes(30_000_000)]}), compression="zstd"),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_damaged_archive_file_is_refused(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(CorruptTableError) as caught:
        decode_archived_instants(data, PATH)
    assert time.process_time() - begun < 1
    assert caught.value.path == PATH


def test_archive_file_cut_anywhere_is_refused() -> None:
    for size in range(0, len(GOOD), 50):
        with pytest.raises(CorruptTableError):
            decode_archived_instants(GOOD[:size], PATH)


@pytest.mark.parametrize(
    ("cap", "decode"),
    [("MANIFEST_BYTES_MAX", decode_manifest), ("FILE_BYTES_MAX", decode_archive_file)],
)
def test_input_above_its_cap_is_refused(
    monkeypatch: pytest.MonkeyPatch, cap: str, decode: object
) -> None:
    monkeypatch.setattr(archive, cap, 3)
    assert callable(decode)
    with pytest.raises(CorruptTableError, match="more than 3"):
        decode(b"long", PATH)
