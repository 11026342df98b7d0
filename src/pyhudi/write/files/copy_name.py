"""How the copies of a write's logs are called, in every file group."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId, LogFileName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.resizing.copies import VERSIONS_A_WRITE
from pyhudi.timeline.instant_time import milliseconds_between
from pyhudi.write.files.spec import WRITE_TOKEN

#: The largest version that Hudi's readers parse.
_VERSION_MAX = (1 << 31) - 1
#: Tokens compare as text, so the numbers in them have as many digits.
_PIECE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class CopyName:
    """How the copies of one write are called, in every file group."""

    requested: InstantTime
    first: int  # the version of the first one
    pieces_max: int | None = VERSIONS_A_WRITE
    #: The write whose markers name them, which is not the instant in their names.
    twice_by: InstantTime | None = None

    @classmethod
    def of_copy(cls, resize: str, number: int) -> CopyName:
        """Name copies of the write that completed as the given one, counted from the plan."""
        return cls(InstantTime(resize), VERSIONS_A_WRITE * number)

    @classmethod
    def of_move(cls, write: str, above: int) -> CopyName:
        """Name the moved logs of a write, by versions above those that its logs have so far.

        It may have logs in the group that they come to, under the same token.
        """
        return cls(InstantTime(write), above + 1, None)

    @classmethod
    def of_twice(cls, resize: str, write: str) -> CopyName:
        """Name the logs that a write puts into the children of a pending resize.

        The version follows from the time of the write, so no two writes share one, and readers
        merge the logs in the order of requests. The pieces differ in their tokens.
        """
        version = 2 + milliseconds_between(resize, write)
        if version > _VERSION_MAX:
            raise _pending_too_long(resize)
        return cls(InstantTime(resize), version, 10**_PIECE_DIGITS, InstantTime(write))

    @property
    def announced_by(self) -> InstantTime:
        """The instant whose markers name the copies."""
        return self.twice_by or self.requested

    def of(self, group: FileGroupId, piece: int) -> LogFileName:
        version, token = self.first + piece, WRITE_TOKEN
        if self.twice_by is not None:
            version, token = self.first, f"{piece:0{_PIECE_DIGITS}d}-0-0"
        return LogFileName(group.file_id, self.requested, version, token)


def _pending_too_long(resize: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"no row can be written beside the resize {resize}",
        why="it has been pending for more than 24 days, and the names of logs cannot tell later"
        " writes apart",
        next_step="Execute it, with table.services.resize() or with Hudi, or cancel it with"
        " table.services.cancel_resize()",
    )
