"""A deterministic simulator for code that takes a `Storage` and a `World`.

- `Simulation`: processes over one store in memory, in an order and with faults that a seed decides;
- `explore`: every order of operations that could make a difference, each once;
- `run_seed`, `replay`, `shrink`: a failing run as data, replayed and made small.
"""

from pyhudi.simulate.choices import Choices, Pending, ReplayedChoices, SeededChoices
from pyhudi.simulate.explore import Exploration, ExplorationError, conflicting, explore
from pyhudi.simulate.faults import (
    DrawnFaults,
    Effect,
    Fault,
    FaultPlan,
    FaultRates,
    FixedFaults,
    only,
    rates_with,
)
from pyhudi.simulate.recording import Outcome, Recording, replay, run_seed
from pyhudi.simulate.scheduler import Actor, Crashed, StuckError
from pyhudi.simulate.shrink import shrink
from pyhudi.simulate.simulation import Process, Scenario, Simulation
from pyhudi.simulate.trace import Event, Trace

__all__ = [
    "Actor",
    "Choices",
    "Crashed",
    "DrawnFaults",
    "Effect",
    "Event",
    "Exploration",
    "ExplorationError",
    "Fault",
    "FaultPlan",
    "FaultRates",
    "FixedFaults",
    "Outcome",
    "Pending",
    "Process",
    "Recording",
    "ReplayedChoices",
    "Scenario",
    "SeededChoices",
    "Simulation",
    "StuckError",
    "Trace",
    "conflicting",
    "explore",
    "only",
    "rates_with",
    "replay",
    "run_seed",
    "shrink",
]
