"""A run as data: what a seed decided, so that it can be stored, replayed and made smaller.

A seed is worth nothing once the code under test takes one step more or less. A recording of the
failure it found, made small, names the few faults and switches that were necessary, and lasts
longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyhudi.simulate.choices import ReplayedChoices, SeededChoices
from pyhudi.simulate.faults import DrawnFaults, Fault, FaultRates, FixedFaults
from pyhudi.simulate.simulation import Scenario, Simulation


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that decides a run beside the scenario. The seed still gives bytes and ticks."""

    seed: int
    choices: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    skews_ms: tuple[tuple[str, int], ...] = ()
    keeps_torn: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the error it raised, and the digest of its trace."""

    recording: Recording
    error: Exception | None
    digest: str


def run_seed(scenario: Scenario, seed: int, rates: FaultRates | None = None) -> Outcome:
    """Run the scenario as the seed decides; without rates there are no faults, only the order."""
    faults = FixedFaults() if rates is None else DrawnFaults(seed, rates)
    choices = SeededChoices(seed)
    simulation = Simulation(seed, choices=choices, faults=faults)
    return _outcome(scenario, simulation, choices.taken, faults)


def replay(scenario: Scenario, recording: Recording) -> Outcome:
    choices = ReplayedChoices(recording.choices)
    faults = FixedFaults(
        recording.faults,
        skews_ms=dict(recording.skews_ms),
        keeps_torn=recording.keeps_torn,
    )
    simulation = Simulation(recording.seed, choices=choices, faults=faults)
    return _outcome(scenario, simulation, choices.taken, faults)


def _outcome(
    scenario: Scenario, simulation: Simulation, taken: list[int], faults: FixedFaults | DrawnFaults
) -> Outcome:
    error = None
    with simulation:
        try:
            scenario(simulation)
        except Exception as raised:
            error = raised
    recording = Recording(
        simulation.seed,
        _without_last_zeros(taken),
        tuple(faults.struck),
        tuple(sorted((name, ms) for name, ms in faults.skews_ms.items() if ms)),
        faults.keeps_torn,
    )
    return Outcome(recording, error, simulation.trace.digest())


def _without_last_zeros(choices: list[int]) -> tuple[int, ...]:
    end = max((place + 1 for place, choice in enumerate(choices) if choice), default=0)
    return tuple(choices[:end])


def with_choices(recording: Recording, choices: list[int]) -> Recording:
    return replace(recording, choices=_without_last_zeros(choices))
