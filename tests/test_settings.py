"""Settings: whole numbers within their ranges, words from their lists, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from pyhudi import (
    EarlyDetection,
    FailedWrites,
    InvalidRequestError,
    LogBlockFormat,
    Markers,
    MarkerService,
    SchemaMode,
    SimpleSchemaStrategy,
    WriteSettings,
)
from pyhudi.conflict.early_strategies import STRATEGIES, looks_of
from pyhudi.settings import EARLY_STRATEGIES

LOWEST = {
    "log_file_bytes_max": 1,
    "buffer_bytes_max": 1,
    "heartbeat_interval_ms": 1_000,  # Hudi refuses less
    "heartbeat_misses": 1,
    "commit_rounds": 1,
    "conflict_retries": 0,
    "lock_wait_ms": 0,
    "priority": 0,
}
TEXTS = {"job"}
WORDS: dict[str, type[LogBlockFormat] | type[FailedWrites] | type[SchemaMode] | type[Markers]] = {
    "log_block_format": LogBlockFormat,
    "failed_writes": FailedWrites,
    "schema_mode": SchemaMode,
    "markers": Markers,
}
OBJECTS = {"schema_strategy", "early_detection", "marker_service"}


def test_every_setting_is_a_number_a_word_a_text_or_an_object() -> None:
    known = {*LOWEST, *WORDS, *TEXTS, *OBJECTS}
    assert {field.name for field in fields(WriteSettings)} == known


@pytest.mark.parametrize("given", ["reconcile", "simple", SimpleSchemaStrategy()])
def test_a_strategy_is_a_word_or_an_object_that_resolves(given: object) -> None:
    assert WriteSettings(schema_strategy=given).schema_strategy is given


@pytest.mark.parametrize("given", ["union", "", None, 1, object()])
def test_what_is_no_strategy_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"schema_strategy=.*resolve\(start, now, own\)"):
        WriteSettings(schema_strategy=given)


class Lenient:
    looks = "bloom_direct"

    def yields(self, facts: Mapping[str, Any], /) -> bool:
        return False


@pytest.mark.parametrize("given", [None, *EARLY_STRATEGIES, Lenient()])
def test_an_early_strategy_is_a_word_or_an_object_that_says_how_it_looks(given: object) -> None:
    assert EarlyDetection(strategy=given).strategy is given
    looks = looks_of(given)
    names = [None if looks is None else looks.name]
    assert names == [given if not isinstance(given, Lenient) else Lenient.looks]
    assert tuple(STRATEGIES) == EARLY_STRATEGIES


@pytest.mark.parametrize("given", ["simple", "", 1, True, object(), Lenient, EarlyDetection()])
def test_what_is_no_early_strategy_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"strategy=.*'simple_direct'.*yields\(facts\)"):
        EarlyDetection(strategy=given)


@pytest.mark.parametrize(
    "given",
    [{"threads": 0}, {"batch_ms": 0}, {"port": 65_536}, {"port": -1}, {"threads": True}],
    ids=str,
)
def test_what_no_marker_service_can_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="must be a whole number"):
        MarkerService(**given)


@pytest.mark.parametrize(("name", "lowest"), LOWEST.items())
def test_the_lowest_number_is_accepted_and_the_one_below_refused(name: str, lowest: int) -> None:
    given: dict[str, Any] = {name: lowest}
    assert getattr(WriteSettings(**given), name) == lowest
    given[name] = lowest - 1
    with pytest.raises(InvalidRequestError, match=f"{name}={lowest - 1} .*at least {lowest}"):
        WriteSettings(**given)


@pytest.mark.parametrize("value", [None, True, False, "5000", 5e3, 1.5, float("nan"), [5000], b"5"])
@pytest.mark.parametrize("name", LOWEST)
def test_what_is_not_a_whole_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name}=.*it must be a whole number"):
        WriteSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "word"), [(name, word) for name, words in WORDS.items() for word in words]
)
def test_a_word_may_be_given_as_plain_text(name: str, word: Any) -> None:
    for given in (word, str(word.value)):
        settings: dict[str, Any] = {name: given}
        assert getattr(WriteSettings(**settings), name) is word


@pytest.mark.parametrize("value", [None, 5, "", "PARQUET", "soon", ["lazy"], {}])
@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_is_not_known_is_refused_and_the_others_are_named(
    name: str, value: Any
) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name}=.* is not known") as error:
        WriteSettings(**{name: value})
    assert all(repr(word.value) in str(error.value) for word in WORDS[name])


def test_a_writer_is_silent_after_its_interval_has_passed_so_many_times() -> None:
    settings = WriteSettings(heartbeat_interval_ms=5_000, heartbeat_misses=3)
    assert settings.heartbeat_timeout_ms == 15_000


@pytest.mark.parametrize("job", [None, 5, b"orders", "x" * 201])
def test_a_job_is_named_by_a_short_text(job: Any) -> None:
    with pytest.raises(InvalidRequestError, match="this job cannot be used"):
        WriteSettings(job=job)
    assert WriteSettings(job="x" * 200).job == "x" * 200


def test_a_priority_has_an_upper_bound() -> None:
    assert WriteSettings(priority=100).priority == 100
    with pytest.raises(InvalidRequestError, match=r"priority=101 .*at most 100"):
        WriteSettings(priority=101)
