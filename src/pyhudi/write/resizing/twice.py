"""A write beside a resize that Hudi can execute writes its rows twice.

Hudi copies nothing when it completes a resize. So each write that completes while such a resize is
pending, and has logs in its inputs, also puts its rows into the children. It makes these logs from
its own, with all tasks done, in this process: each block is split by child. They have the names and
the commit the stats that a Hudi writer beside the resize gives them:

    name      by the resize, so that readers hide them until it has completed
    blocks    of the write
    marker    in the folder of the write, whose rollback removes them
    stat      in the commit of the write, beside that of the log in the input

The guarantee is Hudi's own, and weaker than where pyhudi copies: once the resize has completed,
Hudi and hudi-rs show these rows although the write may be pending still, or have failed, until it
has ended. pyhudi asks for the instant of each block, and does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import partial

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import LogFile
from pyhudi.write.files.copied_log import Sources, copied_logs
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.files.copy_source import SourceGoneError
from pyhudi.write.files.spec import taken_away
from pyhudi.write.resizing.sources import group_of, log_of, log_order
from pyhudi.write.resizing.work import load_resize, ring_layout


@dataclass(frozen=True, slots=True)
class WrittenTwice:
    """What a write has put into the children of one resize."""

    resize: str
    inputs: frozenset[FileGroupId]
    stats: tuple[WriteStat, ...]


def written_twice(
    session: TableSession, requested: str, resize: str, stats: Iterable[WriteStat]
) -> WrittenTwice | None:
    """Put the write's logs in inputs of the resize into its children, too.

    None if the resize has ended meanwhile. ConflictError if a log of the write is gone.
    """
    try:
        work = load_resize(session.log, resize, partial(ring_layout, session))
        name = CopyName.of_twice(resize, requested)
        sources = [
            Sources(name, logs, children)
            for change, children in zip(work.plan.groups, work.children, strict=True)
            if (logs := _logs(stats, frozenset(change.inputs)))
        ]
        made = copied_logs(session.storage, sources, session.world.together)
    except SourceGoneError as error:
        raise taken_away(error.path or resize) from error
    except HudiError:
        if _has_ended(session, resize):
            return None  # the rings are others by now
        raise
    if _has_ended(session, resize):
        # A compaction that was planned since may not know of them.
        session.storage.delete_all([stat.data_path for stat in made])
        return None
    return WrittenTwice(resize, work.plan.inputs, tuple(made))


def _logs(stats: Iterable[WriteStat], inputs: Set[FileGroupId]) -> list[LogFile]:
    logs = (stat for stat in stats if stat.log_files is not None and group_of(stat) in inputs)
    return sorted(map(log_of, logs), key=log_order)


def _has_ended(session: TableSession, resize: str) -> bool:
    live = session.log.refresh()
    return resize not in live.pending or resize in live.rolled_back_by
