"""How is a data file announced before it is created?

Each file has a marker first, so that a rollback knows which files may exist. How the marker gets
into storage is a value in the write's spec, and is sent with it to wherever the tasks run. What
comes back is a verdict:

    stored    the marker is in storage, and the file may follow; perhaps with the answer to whether
              the write is still open. Without it a task of a fenced write looks itself.
    met       another write is ahead in the file group, and this one yields: no file is created
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pyhudi.conflict.announced import Met
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import marker_path
from pyhudi.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class Stored:
    """The marker is in storage."""

    is_open: bool | None = None  # the write is pending still; None if that is not known


Verdict: TypeAlias = Stored | Met


class Announcing(Protocol):
    """A way to announce files. It can be pickled, and is used by any number of tasks."""

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        """Store the marker, unless the write has to yield.

        An earlier attempt may have stored it, which does no harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class DirectMarkers:
    """One object for each file, and no look at other writes."""

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        storage.create(marker_path(requested, marker), b"")
        return Stored()


DIRECT: Final = DirectMarkers()


class MetRivalError(ConflictError):
    """A task stops because its write yields. `facts` are those of `conflict.announced.Met`.

    The write's own process reports it as an EarlyConflictError, or repeats the write.
    """

    @classmethod
    def of(cls, met: Met) -> MetRivalError:
        return cls(
            "this write yields to another one",
            why=f"{met.rule.value}: {met.rival} has announced a file in {met.group.file_id} of"
            f" partition {met.group.partition!r}",
            next_step="Write again when the other write is done",
            facts=met.facts,
        )

    @property
    def met(self) -> Met:
        return Met.of(self.facts)
