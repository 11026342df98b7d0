"""Makes a failing run small: fewer faults, right clocks, fewer switches, and the same error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pyhudi.simulate.recording import Recording, replay, with_choices
from pyhudi.simulate.simulation import Scenario

Candidates = Iterator[Recording]
_Simplification = Callable[[Recording], Candidates]


def shrink(scenario: Scenario, recording: Recording, *, attempts_max: int = 400) -> Recording:
    """Return the smallest recording found that still raises an error of the same class.

    Each attempt leaves something out. The accepted one decides what is tried next, until nothing
    more can be left out or the attempts are used up.
    """
    error = replay(scenario, recording).error
    if error is None:
        raise ValueError("the recording does not fail, so there is nothing to make smaller")
    search = _Search(scenario, type(error), attempts_max)
    smaller = recording
    while True:
        before = smaller
        for simpler in (_calmer, _shorter, _straighter):
            smaller = search.smallest(smaller, simpler)
        if smaller == before or search.attempts_left <= 0:
            return smaller


class _Search:
    def __init__(self, scenario: Scenario, kind: type[Exception], attempts_max: int) -> None:
        self.attempts_left = attempts_max
        self._scenario = scenario
        self._kind = kind

    def smallest(self, recording: Recording, simpler: _Simplification) -> Recording:
        """Follow the first simplification that still fails, and begin again from there."""
        found = True
        while found:
            found = False
            for candidate in simpler(recording):
                if self.attempts_left <= 0:
                    return recording
                if self._fails(candidate):
                    recording, found = candidate, True
                    break
        return recording

    def _fails(self, recording: Recording) -> bool:
        self.attempts_left -= 1
        return type(replay(self._scenario, recording).error) is self._kind


def _calmer(recording: Recording) -> Candidates:
    """Yield recordings without any fault, then without one of them, then with right clocks."""
    if len(recording.faults) > 1:
        yield replace(recording, faults=())
    for place in range(len(recording.faults)):
        rest = (*recording.faults[:place], *recording.faults[place + 1 :])
        yield replace(recording, faults=rest)
    if recording.skews_ms:
        yield replace(recording, skews_ms=())
    for place in range(len(recording.skews_ms)):
        others = (*recording.skews_ms[:place], *recording.skews_ms[place + 1 :])
        yield replace(recording, skews_ms=others)


def _shorter(recording: Recording) -> Candidates:
    """Yield recordings of which only the beginning is decided; then every actor runs on."""
    length = len(recording.choices)
    for kept in (0, length // 4, length // 2, length * 3 // 4, length - 1):
        if 0 <= kept < length:
            yield with_choices(recording, list(recording.choices[:kept]))


def _straighter(recording: Recording) -> Candidates:
    """Yield recordings without the switches of some range: long ranges first, then single ones."""
    switches = [place for place, choice in enumerate(recording.choices) if choice]
    stretch = len(switches) // 2
    while stretch > 0:
        for begin in range(0, len(switches), stretch):
            choices = list(recording.choices)
            for place in switches[begin : begin + stretch]:
                choices[place] = 0
            yield with_choices(recording, choices)
        stretch //= 2
