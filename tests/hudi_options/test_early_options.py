"""Hudi's and the RFC's options of early detection, as settings of a write."""

from __future__ import annotations

from typing import Any

import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.early_options import STRATEGY_CLASSES
from pyhudi.hudi_options.write_options import parse_write_options
from pyhudi.settings import EARLY_STRATEGIES, EarlyDetection, Markers, MarkerService

HUDI, RFC = "hoodie.write.concurrency.early.conflict.", "hoodie.write.lock.early.conflict."
ON = {f"{HUDI}detection.enable": "true"}
SERVER = {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}
DETECTOR = "hoodie.write.concurrency.async.conflict.detector."

CASES: dict[str, tuple[dict[str, str], EarlyDetection]] = {
    "nothing": ({}, EarlyDetection()),
    "off": ({f"{HUDI}detection.enable": "false"}, EarlyDetection()),
    "on": (ON, EarlyDetection(strategy="simple_direct")),
    "on, the RFC's name": (
        {f"{RFC}detection.enable": "TRUE"},
        EarlyDetection(strategy="simple_direct"),
    ),
    "on, with a server": ({**ON, **SERVER}, EarlyDetection(strategy="async_server")),
    "a strategy that is off": (
        {f"{HUDI}detection.strategy": STRATEGY_CLASSES["async_server"][0]},
        EarlyDetection(),
    ),
    "no look at commits": (
        {f"{RFC}check.commit": "false"},
        EarlyDetection(check_commits=False),
    ),
    "looks at commits": ({f"{HUDI}check.commit.conflict": "true"}, EarlyDetection()),
    "times": (
        {f"{DETECTOR}initial_delay_ms": "7", f"{DETECTOR}period_ms": "9"},
        EarlyDetection(initial_delay_ms=7, period_ms=9),
    ),
    "the RFC's times": (
        {f"{RFC}async.checker.batch.interval": "30000", f"{RFC}async.checker.period": "30000"},
        EarlyDetection(initial_delay_ms=30_000, period_ms=30_000),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_options_of_both_names_are_settings(case: str) -> None:
    options, expected = CASES[case]
    assert parse_write_options(options).settings.early_detection == expected


@pytest.mark.parametrize("strategy", EARLY_STRATEGIES)
@pytest.mark.parametrize("option", [f"{HUDI}detection.strategy", f"{RFC}detection.strategy"])
def test_each_strategy_has_its_classes(option: str, strategy: str) -> None:
    for name in STRATEGY_CLASSES[strategy]:
        parsed = parse_write_options({**ON, **SERVER, option: name})
        assert parsed.settings.early_detection.strategy == strategy


def test_markers_and_their_service_are_settings() -> None:
    given = {
        **SERVER,
        "hoodie.markers.timeline_server_based.batch.num_threads": "3",
        "hoodie.markers.timeline_server_based.batch.interval_ms": "70",
        "hoodie.embed.timeline.server.port": "7777",
    }
    settings = parse_write_options(given).settings
    assert settings.markers is Markers.SERVER
    assert settings.marker_service == MarkerService(threads=3, batch_ms=70, port=7777)
    settings = parse_write_options({"hoodie.write.markers.type": "direct"}).settings
    assert (settings.markers, settings.marker_service) == (Markers.DIRECT, MarkerService())


REFUSED: dict[str, dict[str, str]] = {
    "another class": {**ON, f"{HUDI}detection.strategy": "com.example.MyStrategy"},
    "a class even if it is off": {f"{RFC}detection.strategy": "os.system"},
    "no flag": {f"{HUDI}detection.enable": "yes"},
    "no period": {f"{DETECTOR}period_ms": "0"},
    "no number": {f"{RFC}async.checker.period": "30s"},
    "no port": {"hoodie.embed.timeline.server.port": "70000"},
    "no markers": {"hoodie.write.markers.type": "telepathy"},
    "no threads": {"hoodie.markers.timeline_server_based.batch.num_threads": "0"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_its_name(case: str) -> None:
    option = list(REFUSED[case])[-1]
    with pytest.raises(InvalidRequestError, match=option.replace(".", r"\.")):
        parse_write_options(REFUSED[case])


def test_two_names_of_one_thing_must_agree() -> None:
    given: dict[str, Any] = {f"{HUDI}detection.enable": "true", f"{RFC}detection.enable": "false"}
    with pytest.raises(InvalidRequestError, match="contradict"):
        parse_write_options(given)
