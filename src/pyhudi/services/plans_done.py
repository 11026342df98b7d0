"""What a call of a service did that makes a plan, and executes those that are pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from pyhudi.errors import HudiError, first_of

Preview = TypeVar("Preview")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PlansDone(Generic[Preview, Result]):
    """What a call of a service did, or would do."""

    preview: Preview  # of the plan that it made, or would make
    planned: str | None = None  # requested time of that plan
    pending: tuple[str, ...] = ()  # plans that are pending, of this call or of others
    results: tuple[Result, ...] = ()
    errors: tuple[HudiError, ...] = ()  # why a plan was not made, or not executed

    def or_raise(self) -> Self:
        """Return this result, or raise the first error if something failed."""
        if self.errors:
            raise first_of(self.errors, self.results)
        return self

    def __str__(self) -> str:
        lines = [self._preview_words]
        if self.planned:
            lines.append(f"planned as {self.planned}")
        lines += [str(result) for result in self.results]
        lines += [f"plan {requested} is pending" for requested in self.pending]
        return "\n".join(lines)

    @property
    def _preview_words(self) -> str:
        return str(self.preview)
