"""How a data file is announced is a value in the write's spec, and its verdict ends the write."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pyhudi.conflict.announced import Met
from pyhudi.conflict.rules import ConflictRule, WriteKind
from pyhudi.format.files.file_names import FileGroupId, IoType, MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.write_fence import raise_fence
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.files.announcing import MetRivalError, Stored, Verdict
from pyhudi.write.files.spec import WriteOverError, WriteSpec, create_marker

NOW = InstantTime("20260102030405678")
FILE = f"p/{'0' * 8}-aaaa-0_0-0-0_{NOW}.parquet"
MET = Met(
    "20260102030405000",
    WriteKind.WRITE,
    ConflictRule.SAME_FILE_GROUP,
    FileGroupId("p", "00000000-aaaa-0"),
    file="p/x.parquet",
    announced_ago_ms=7,
    strategy="simple_direct",
)


@dataclass(frozen=True)
class Answers:
    verdict: Verdict

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        return self.verdict


def test_a_write_that_is_known_to_be_open_is_not_looked_at() -> None:
    spec = WriteSpec(NOW, "", is_fenced=True, announcing=Answers(Stored(is_open=True)))
    create_marker(MemoryStorage(lambda: 0), spec, FILE, IoType.CREATE)  # there is no heartbeat


@pytest.mark.parametrize("is_open", [None, False])
def test_a_write_that_is_over_creates_no_file(is_open: bool | None) -> None:
    storage = MemoryStorage(lambda: 0)
    storage.create(heartbeat_path(NOW), b"")
    raise_fence(storage, NOW)
    spec = WriteSpec(NOW, "", is_fenced=True, announcing=Answers(Stored(is_open)))
    with pytest.raises(WriteOverError):
        create_marker(storage, spec, FILE, IoType.CREATE)


def test_a_verdict_of_a_conflict_ends_the_task_with_its_facts() -> None:
    spec = WriteSpec(NOW, "", announcing=Answers(MET))
    with pytest.raises(MetRivalError) as caught:
        create_marker(MemoryStorage(lambda: 0), spec, FILE, IoType.CREATE)
    assert pickle.loads(pickle.dumps(caught.value)).met == MET


@pytest.mark.parametrize(
    "change", [{"rule": "?"}, {"kind": "?"}, {"rival": 1}, {"priority": "1"}, {"partition": None}]
)
def test_facts_that_make_no_sense_are_no_conflict(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"facts|valid"):
        Met.of({**MET.facts, **change})


def test_a_spec_is_sent_with_its_way_of_announcing() -> None:
    spec = replace(WriteSpec(NOW, ""), announcing=Answers(MET))
    assert pickle.loads(pickle.dumps(spec)) == spec
