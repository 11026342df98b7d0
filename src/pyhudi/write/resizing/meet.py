"""A resize is in the way of a write that would complete: the write deals with it, and goes on.

    the resize                    the write
    is closed                     finishes it; first it gives its executor, if that seems alive and
                                  copies appear, a moment to do so
    has an input in which the     cancels it
    write opened a base file
    has completed                 moves its own logs into the children: logs of its own name, which
                                  take the place of the old ones in what it commits

No other process has to do anything for it, so no write waits for one. What has to be done is judged
again for each number of the log (`conflict.resizes`): several resizes may be in the way, one after
the other.

The logs that were moved stay until the write has completed. If it fails, its rollback finds them
and the new ones by its markers.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pyhudi.commit.liveness import Liveness
from pyhudi.commit.validation import ResizeInTheWay
from pyhudi.conflict.resizes import MeetsClosed, MustCancel, MustMove
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import LogFile
from pyhudi.world import jittered_ms
from pyhudi.write.files.copied_log import CopyName, SourceGoneError, Sources, copied_logs
from pyhudi.write.files.spec import taken_away
from pyhudi.write.resizing.cancel import abort_resize
from pyhudi.write.resizing.help import count_copies, finish_resize
from pyhudi.write.resizing.work import ring_layout

#: How long a writer waits for the executor of a closed resize, once for each: until the next copy
#: appears, and at most.
EXECUTOR_WAIT_MS: Final = 500
EXECUTOR_WAIT_MAX_MS: Final = 1_500
_LOOK_MS: Final = 200
#: How often the same resize may be in the way in the same manner. Once or twice is normal; more
#: often, something else is wrong, and the write is not completed.
MEETINGS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of a write, and those that it no longer needs since it moved their rows."""

    written: tuple[WriteStat, ...]  # by its tasks
    stats: tuple[WriteStat, ...]
    left: tuple[WriteStat, ...] = ()

    @property
    def moved(self) -> int:
        """The rows and deletes that it moved; each counts once, however often it was moved."""
        left = {stat.data_path for stat in self.left}
        first = (stat for stat in self.written if stat.data_path in left)
        return sum(stat.rows_written + (stat.num_deletes or 0) for stat in first)

    def remove_left(self, storage: Storage) -> None:
        """Remove what a write that has completed left; otherwise it goes with its file group."""
        if self.left:
            with suppress(HudiError):
                storage.delete_all([stat.data_path for stat in self.left])


class ResizesMet:
    """The resizes that one write meets while it tries to complete."""

    def __init__(self, session: TableSession, requested: str) -> None:
        self._session = session
        self._requested = requested
        self._liveness = Liveness(session.log, session.settings)
        self._meetings: Counter[ResizeInTheWay] = Counter()

    def deal_with(self, met: ResizeInTheWay, files: WrittenFiles) -> WrittenFiles | None:
        """Do what is asked; return the write's files then. None if it was asked too often."""
        self._meetings[met] += 1
        if self._meetings[met] > MEETINGS_MAX:
            return None
        match met:
            case MeetsClosed(resize):
                self._end(resize, is_first=self._meetings[met] == 1)
            case MustCancel(resize):
                abort_resize(self._session.recovery, resize)
            case MustMove():
                return moved(self._session, self._requested, files)
        return files

    def _end(self, resize: str, *, is_first: bool) -> None:
        """Finish a closed resize, unless its executor can be expected to do so at once."""
        if is_first and self._liveness.seems_alive(heartbeat_path(resize)):
            self._await_executor(resize)
        finish_resize(self._session, resize)

    def _await_executor(self, resize: str) -> None:
        """Wait while the resize is closed and copies appear, but not for long."""
        log, world = self._session.log, self._session.world
        began = appeared = world.elapsed_ms()
        copies = 0
        while world.elapsed_ms() - began < EXECUTOR_WAIT_MAX_MS:
            world.sleep_ms(jittered_ms(world, _LOOK_MS))
            if resize not in log.refresh().closed:
                return
            before, copies = copies, count_copies(self._session, resize)
            if copies != before:
                appeared = world.elapsed_ms()
            elif world.elapsed_ms() - appeared >= EXECUTOR_WAIT_MS:
                return


def moved(session: TableSession, requested: str, files: WrittenFiles) -> WrittenFiles:
    """Write the rows of logs in replaced file groups again, where they belong by now.

    ConflictError if such a log is gone: the write was rolled back, or its file group cleaned away.
    """
    replaced = session.replaced.load()
    gone = [s for s in files.stats if s.log_files is not None and _group(s) in replaced]
    versions = (stat.log_version or 0 for stat in (*files.stats, *files.left))
    name = CopyName.of_move(requested, max(versions, default=0))
    sources: dict[str, list[LogFile]] = {}
    for stat in gone:
        sources.setdefault(stat.partition_path or "", []).append(_log(stat))
    made: list[WriteStat] = []
    for partition, logs in sorted(sources.items()):
        layout = ring_layout(session, partition)
        try:
            ordered, together = sorted(logs, key=_order), session.world.together
            made += copied_logs(session.storage, [Sources(name, ordered, layout)], together)
        except SourceGoneError as error:
            raise taken_away(error.path or partition) from error
    paths = {stat.data_path for stat in gone}
    kept = (stat for stat in files.stats if stat.data_path not in paths)
    return WrittenFiles(files.written, (*kept, *made), (*files.left, *gone))


def _group(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id or "")


def _log(stat: WriteStat) -> LogFile:
    name = parse_data_file(file_name(stat.data_path))
    assert isinstance(name, LogFileName), stat.data_path
    assert stat.file_size_in_bytes is not None, stat.data_path
    return LogFile(stat.data_path, stat.file_size_in_bytes, name)


def _order(log: LogFile) -> tuple[int, str, str]:
    """Order logs as readers do in a file group; those of several groups share no key."""
    return log.name.version, log.name.write_token, log.name.file_id
