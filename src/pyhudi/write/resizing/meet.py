"""A resize is in the way of a write that would complete: the write deals with it, and goes on.

    the resize                    the write
    is closed                     finishes it; first it gives its executor, if that seems alive and
                                  copies appear, a moment to do so
    has an input in which the     cancels it. A virtual one that has committed rows in its children
    write opened a base file      has to be executed first, and the write is made again behind it
    has completed                 moves its own logs into the children: logs of its own name, which
                                  take the place of the old ones in what it commits. References to
                                  logs that are there already just leave it
    can be executed by Hudi, and  puts its rows into the children, too (`write.resizing.twice`)
    the write has files there
    was cancelled since then      leaves out what it put into the children

No other process has to do anything for it, so no write waits for one. What has to be done is judged
again for each number of the log (`conflict.resizes`): several resizes may be in the way, one after
the other.

The logs that were moved stay until the write has completed. If it fails, its rollback finds them
and the new ones by its markers.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pyhudi.commit.liveness import Liveness
from pyhudi.commit.transaction import Held, Lost
from pyhudi.commit.validation import ResizeInTheWay
from pyhudi.conflict.resizes import (
    MeetsClosed,
    MustCancel,
    MustForget,
    MustMove,
    MustWriteTwice,
)
from pyhudi.conflict.rules import Retry
from pyhudi.errors import HudiError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import LogFile
from pyhudi.world import jittered_ms
from pyhudi.write.files.copied_log import Sources, copied_logs
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.files.copy_source import SourceGoneError
from pyhudi.write.files.spec import taken_away
from pyhudi.write.resizing.cancel import abort_resize, is_kept
from pyhudi.write.resizing.help import count_copies, finish_resize
from pyhudi.write.resizing.sources import group_of, log_of, log_order
from pyhudi.write.resizing.twice import WrittenTwice, written_twice
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
    stats: tuple[WriteStat, ...]  # where its rows are
    left: tuple[WriteStat, ...] = ()
    twice: tuple[WrittenTwice, ...] = ()  # where they are a second time

    @property
    def committed(self) -> tuple[WriteStat, ...]:
        """What the write names when it completes."""
        return (*self.stats, *(stat for each in self.twice for stat in each.stats))

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

    def deal_with(self, held: Held, files: WrittenFiles) -> WrittenFiles | Lost:
        """Do what is asked, and return the write's files then.

        The write is lost if the same was asked too often, or if a virtual resize would have to be
        cancelled that no longer can be.
        """
        met = held.met
        self._meetings[met] += 1
        if self._meetings[met] > MEETINGS_MAX:
            return Lost(held.error(self._requested), Retry.LATER)
        match met:
            case MeetsClosed(resize):
                self._end(resize, is_first=self._meetings[met] == 1)
            case MustCancel(resize):
                if not self._may_be_cancelled(resize):
                    return Lost(held.error(self._requested), Retry.LATER)
                if is_kept(abort_resize(self._session.recovery, resize)):
                    error = held.error(self._requested)
                    return Lost(error, Retry.WRITE, is_counted=False, unfinished=resize)
            case MustMove():
                return moved(self._session, self._requested, files)
            case MustWriteTwice(resize):
                made = written_twice(self._session, self._requested, resize, files.stats)
                return files if made is None else replace(files, twice=(*files.twice, made))
            case MustForget(resize):
                return self._without(resize, files)
        return files

    def _without(self, resize: str, files: WrittenFiles) -> WrittenFiles:
        """Remove the logs in children that will never be; a rollback may have done so."""
        made = (stat for each in files.twice if each.resize == resize for stat in each.stats)
        self._session.storage.delete_all([stat.data_path for stat in made])
        return replace(files, twice=tuple(each for each in files.twice if each.resize != resize))

    def _may_be_cancelled(self, resize: str) -> bool:
        """False if Hudi seems to execute it: it has no other fence than its inflight file."""
        if not self._session.log.is_shared:
            return True
        log = self._session.log
        inflight = Instant(InstantTime(resize), Action.CLUSTERING, State.INFLIGHT)
        return not self._liveness.seems_alive(heartbeat_path(resize), log.path(inflight))

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
    stay = {group for each in files.twice for group in each.inputs}
    gone = [s for s in files.stats if s.log_files is not None and group_of(s) in replaced - stay]
    versions = (stat.log_version or 0 for stat in (*files.stats, *files.left))
    name = CopyName.of_move(requested, max(versions, default=0))
    sources: dict[str, list[LogFile]] = {}
    for stat in gone:
        if stat.is_reference:
            continue  # the rows are there
        sources.setdefault(stat.partition_path or "", []).append(log_of(stat))
    made: list[WriteStat] = []
    for partition, logs in sorted(sources.items()):
        layout = ring_layout(session, partition)
        try:
            ordered, together = sorted(logs, key=log_order), session.world.together
            made += copied_logs(session.storage, [Sources(name, ordered, layout)], together)
        except SourceGoneError as error:
            raise taken_away(error.path or partition) from error
    paths = {stat.data_path for stat in gone}
    kept = (stat for stat in files.stats if stat.data_path not in paths)
    return replace(files, stats=(*kept, *made), left=(*files.left, *gone))
