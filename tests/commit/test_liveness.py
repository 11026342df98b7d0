"""Whether the owner of an instant is alive, by the store's clock."""

from __future__ import annotations

import pytest

from archived_tables import SETTINGS, Bench
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.liveness import Liveness

TIMEOUT_MS = SETTINGS.heartbeat_timeout_ms
OLD, NEW = "signs/old", "signs/new"


def opened() -> tuple[Bench, DecisionLog, Liveness]:
    bench = Bench()
    session = bench.session("asks")
    return bench, session.log, Liveness(session.log, SETTINGS)


@pytest.mark.parametrize(
    ("age_ms", "is_alive"), [(0, True), (TIMEOUT_MS - 100, True), (TIMEOUT_MS + 1, False)]
)
def test_the_last_sign_counts(age_ms: int, *, is_alive: bool) -> None:
    bench, _, liveness = opened()
    bench.storage.write(OLD, b"")
    bench.clock.ms += TIMEOUT_MS + 1
    bench.storage.write(NEW, b"")
    bench.clock.ms += age_ms
    assert liveness.is_alive(OLD, NEW) == liveness.seems_alive(OLD, NEW) == is_alive
    assert not liveness.is_alive(OLD)


def test_an_owner_without_a_sign_is_not_alive() -> None:
    _, _, liveness = opened()
    assert not liveness.is_alive(OLD)
    assert not liveness.seems_alive(OLD)


def test_an_estimate_writes_nothing() -> None:
    bench, _, liveness = opened()
    bench.storage.write(OLD, b"")
    before = bench.objects()
    assert liveness.seems_alive(OLD)
    assert bench.objects() == before


def test_an_owner_that_gives_a_sign_while_the_process_that_asks_sleeps_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock is read first: what comes after is younger than the reading."""
    bench, log, liveness = opened()
    bench.storage.write(OLD, b"")
    read_ms = log.clock.read_ms

    def slow() -> int:
        now = read_ms()
        bench.clock.ms += 2 * TIMEOUT_MS
        bench.storage.write(OLD, b"")
        bench.clock.ms += 2 * TIMEOUT_MS
        return now

    monkeypatch.setattr(log.clock, "read_ms", slow)
    assert liveness.is_alive(OLD)
