"""What services that make base files by a plan share: their work, and what a call of them did.

Compactions and resizes are called alike. A call makes a plan and executes all that are pending,
each even if others fail. The work of a plan is in parts, a file group or a split each, which this
process makes one after the other if Spark does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pyhudi.errors import HudiError, InvalidRequestError, fault
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Instant, InstantTime
from pyhudi.plan.scan import CommitFolders, merge_rule
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.merge_slice import CompactionSpec
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import FileSlice
from pyhudi.timeline.completion import visible_now

Result = TypeVar("Result")
Done = TypeVar("Done", covariant=True)
Part = TypeVar("Part")


class Executing(Protocol[Done]):
    """A service that executes plans."""

    @property
    def called(self) -> str: ...
    def pending(self) -> list[Instant]: ...
    def input_bytes(self, requested: str) -> float: ...
    def execute(self, requested: str) -> Done | None: ...


def execute_pending(
    service: Executing[Result],
    planned: str | None,
    bytes_max: int | None,
    errors: list[HudiError],
) -> Iterator[Result]:
    """Execute the pending plans, each even if others fail, and yield the results.

    With `bytes_max`, leave out larger plans than that, except for `planned`, which was just made.
    """
    for plan in service.pending():
        requested = plan.requested
        try:
            is_free = bytes_max is None or requested == planned
            if not is_free and service.input_bytes(requested) > (bytes_max or 0):
                continue
            result = service.execute(requested)
        except HudiError as error:
            # A plan that was cancelled a moment ago is not a failure.
            if not isinstance(error, InvalidRequestError) or _is_pending(service, requested):
                errors.append(error)
        except Exception as error:  # a bug, here or in Spark, does not stop other plans
            errors.append(fault(f"the {service.called} {requested}", error))
        else:
            yield from [] if result is None else [result]


def _is_pending(service: Executing[Any], requested: str) -> bool:
    """True if the plan is still pending, in whatever state."""
    return requested in {plan.requested for plan in service.pending()}


def base_file_spec(
    session: TableSession, requested: str, schema: str, slices: Collection[FileSlice]
) -> CompactionSpec:
    """Return what tasks need to make base files of these slices."""
    with session.exclusive:
        state = session.current.load()
        return CompactionSpec(
            InstantTime(requested),
            schema,
            merge_rule(session.config),
            visible_now(state.timeline),
            CommitFolders.of(session.config),
            CommitRecords(session.loader).load(state, slices).sizes,
            session.schema.may_go(),
        )


class LocalWork(ABC, Generic[Part]):
    """Makes the base files of a plan in this process, one part of the plan after the other."""

    def __init__(self, session: TableSession, listener: Listener | None = None) -> None:
        self._session = session
        self._listener = listener

    def __call__(self, requested: str, schema: str, parts: Sequence[Part]) -> Iterator[WriteStat]:
        session = self._session
        spec = self._spec(requested, schema, parts)
        with ProgressBoard(self._listener, session.world) as board:
            for part in parts:
                for stat in self._made(spec, part):
                    board.add(rows=stat.num_writes or 0, bytes=stat.total_write_bytes or 0, files=1)
                    yield stat

    @abstractmethod
    def _spec(self, requested: str, schema: str, parts: Sequence[Part]) -> CompactionSpec:
        """Return what making the files needs."""

    @abstractmethod
    def _made(self, spec: CompactionSpec, part: Part) -> Iterable[WriteStat]:
        """Make the files of one part."""
