"""How does a write look for rivals that have announced files? RFC-56's five strategies, as values.

They are answers to two questions, and one extra:

                              who looks                    what is read first    check and marker
    simple_direct             a task, before each file     markers               one by one
    transaction_direct        a task, before each file     markers               under a claim
    bloom_direct              a task, before each file     filters, then markers one by one
    async_server              the writer, now and then     markers               apart
    bloom_async_server        the writer, now and then     filters, then markers apart

Under a claim of the file group no two writers check at once. A write with a smaller instant that
comes later takes the claim over. The larger one, which may have its marker by then, finds that out
because its writer looks now and then, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pyhudi.errors import InvalidRequestError


class EarlyStrategy(Protocol):
    """A user's strategy: it may let a write go on that would yield to a rival.

    It is pickled if tasks run in other processes.
    """

    @property
    def looks(self) -> str:
        """The name of the strategy by which rivals are looked for."""
        ...

    def yields(self, facts: Mapping[str, Any], /) -> bool:
        """Return whether the write yields to the rival that these facts name."""
        ...


@dataclass(frozen=True, slots=True)
class Looks:
    """How a write looks for rivals."""

    name: str
    by_task: bool = False  # each task looks before each file; else the writer does now and then
    filters_first: bool = False
    claims: bool = False
    judge: EarlyStrategy | None = None  # the user's, asked last

    @property
    def by_writer(self) -> bool:
        return self.claims or not self.by_task

    def is_judged(self, facts: Mapping[str, Any]) -> bool:
        """True if the user's strategy, if there is one, lets the write yield."""
        if self.judge is None:
            return True
        try:
            answer = self.judge.yields(facts)
        except Exception as error:
            raise _bad_judge(f"it raised {type(error).__name__}: {error}") from error
        if not isinstance(answer, bool):
            raise _bad_judge(f"yields(facts) returned {answer!r:.100}, which is not True or False")
        return answer


STRATEGIES: Final[Mapping[str, Looks]] = {
    looks.name: looks
    for looks in (
        Looks("simple_direct", by_task=True),
        Looks("transaction_direct", by_task=True, claims=True),
        Looks("bloom_direct", by_task=True, filters_first=True),
        Looks("async_server"),
        Looks("bloom_async_server", filters_first=True),
    )
}


def looks_of(strategy: object) -> Looks | None:
    """Return how a write with this setting looks; None if it does not.

    The setting is valid (`pyhudi.settings`).
    """
    if strategy is None:
        return None
    if isinstance(strategy, str):
        return STRATEGIES[strategy]
    judge: Any = strategy
    return replace(STRATEGIES[judge.looks], judge=judge)


def by_tasks_alone(looks: Looks) -> Looks:
    """Return how tasks look for a write whose own process cannot look while they run."""
    if looks.by_task:
        return looks
    name = "bloom_direct" if looks.filters_first else "simple_direct"
    return replace(STRATEGIES[name], judge=looks.judge)


def _bad_judge(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the strategy of early detection cannot be used",
        why=why,
        next_step="Correct the object in EarlyDetection(strategy=...), or leave it out; nothing of"
        " this write is visible",
    )
