"""Every error pyhudi raises on purpose, as five kinds.

    HudiError
    ├── ConflictError          another writer won: begin again from the table as it is now
    │   └── EarlyConflictError   ... and the write stopped while it ran
    ├── UnavailableError       storage or a lock did not answer: repeat the same call
    │   └── OutcomeUnknownError  ... while a write was being committed
    ├── InvalidRequestError    the call cannot be served: change the call
    │   ├── TableNotFoundError   ... there is no table at the address
    │   └── TableExistsError     ... there is one already
    ├── CorruptTableError      bytes break the format: no retry helps, repair the table
    └── UnsupportedTableError  the table is sound, but needs what this engine lacks

A kind says what the caller can do; match on the class, never on the text. The text says what
happened, why, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from traceback import format_exc
from typing import Any


class HudiError(Exception):
    """Base of every error raised on purpose."""

    def __init__(self, what: str, *, why: str, next_step: str) -> None:
        super().__init__(f"{what}: {why}. {next_step}{'' if next_step.endswith('?') else '.'}")
        self.what = what
        self.why = why
        self.next_step = next_step

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark tasks); the default would lose the keywords.
        return _rebuild, (type(self), self.what, self.why, self.next_step, dict(self.__dict__))


def _rebuild(
    kind: type[HudiError], what: str, why: str, next_step: str, state: dict[str, object]
) -> HudiError:
    error = HudiError.__new__(kind)
    HudiError.__init__(error, what, why=why, next_step=next_step)
    error.__dict__.update(state)
    return error


class ConflictError(HudiError):
    """Another writer won. Begin again from the table as it is now.

    `facts` has what is known about the conflict, in plain values that go into JSON;
    docs/concurrency.md explains them. It is empty where no write was lost, for example when a table
    service finds another one at work.
    """

    def __init__(
        self, what: str, *, why: str, next_step: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.facts: dict[str, Any] = dict(facts or {})


class EarlyConflictError(ConflictError):
    """The write stopped while it ran, because of another one that has completed or is ahead of it.

    `facts["found"]` is `early`. `facts["strategy"]` names the strategy that found a write which has
    only announced a file; it is None if the other write has completed.
    """


class ConcurrentSchemaEvolutionError(ConflictError):
    """Two writes evolved the table's schema at the same time, in ways that contradict.

    `facts` also has `schemas` (start, now and own, as Avro), `changes` (theirs and ours, by column)
    and `columns` (those that contradict, and why).
    """


class UnavailableError(HudiError):
    """Storage, a lock or a service did not answer. The same call may succeed later."""


class OutcomeUnknownError(UnavailableError):
    """Storage failed while a write was being committed, so it may be visible, or become so.

    `instant` is its requested time. Repeating the write with the same `write_id` finds out, and
    writes only if it has to.
    """

    def __init__(self, what: str, *, why: str, next_step: str, instant: str) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.instant = instant


class InvalidRequestError(HudiError):
    """The table cannot serve the call. Change the call."""


class TableNotFoundError(InvalidRequestError):
    """There is no Hudi table at the address."""


class TableExistsError(InvalidRequestError):
    """There is a Hudi table at the address where one was to be created.

    With `exist_ok=True` it differs from the requested one, and the text names each difference.
    """


class CorruptTableError(HudiError):
    """The bytes of the table break the format. No retry helps.

    `path` is relative to the table and `offset` counts bytes from the start of that file, where
    the reader knows them.
    """

    def __init__(
        self,
        what: str,
        *,
        why: str,
        next_step: str,
        path: str | None = None,
        offset: int | None = None,
    ) -> None:
        location = "" if path is None else f" in {path!r}"
        location += "" if offset is None else f" at byte {offset}"
        super().__init__(f"{what}{location}", why=why, next_step=next_step)
        self.path = path
        self.offset = offset


class UnsupportedTableError(HudiError):
    """The table is sound, but it uses a feature that this engine does not have."""


def fault(what: str, error: Exception) -> HudiError:
    """Return an unexpected exception as a HudiError that names what failed and has its traceback.

    To be called where the exception is handled.
    """
    wrapped = HudiError(
        f"{what} ended unexpectedly",
        why=f"{type(error).__name__}: {error}",
        next_step=f"Report it if this is a fault of pyhudi. {format_exc().rstrip()}",
    )
    wrapped.__cause__ = error
    return wrapped


def first_of(errors: Sequence[HudiError], done: Iterable[object]) -> HudiError:
    """Return the first error, with notes of the others, and of what was done nevertheless."""
    first, *others = errors
    for other in others:
        first.add_note(f"and: {other}")
    for result in done:
        first.add_note(f"done nevertheless: {result}")
    return first
