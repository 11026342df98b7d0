"""A writer that meets a closed resize finishes it: no writer waits for a process that may be dead.

The children's base files are there, or the resize could not have been closed, and what is left to
copy is little. A resize that cannot be finished is cancelled.
"""

from __future__ import annotations

from contextlib import nullcontext

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import AlreadyDone, Decided, Outcome
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import CorruptTableError, HudiError
from pyhudi.format.timeline.commit_metadata import encode_replace_commit_metadata
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.write.resizing.bases import found_bases
from pyhudi.write.resizing.cancel import abort_resize, is_incurable
from pyhudi.write.resizing.copies import ResizeCopies
from pyhudi.write.resizing.finish import ResizeEnd, resize_metadata, tidy
from pyhudi.write.resizing.work import LayoutOf, ResizeWork, load_resize


class ResizeHelp:
    """What a writer needs to finish the resizes of its table."""

    def __init__(
        self,
        log: DecisionLog,
        recovery: FailedWriteRecovery,
        settings: WriteSettings,
        *,
        layout_of: LayoutOf,
        schema: str,
    ) -> None:
        self._log = log
        self._recovery = recovery
        self._settings = settings
        self._layout_of = layout_of
        self._schema = schema

    def finish(self, requested: str) -> None:
        """End a closed resize: it completes, or is cancelled. Another process may have done so."""
        live = self._log.refresh()
        if requested not in live.closed:
            return
        try:
            work = load_resize(self._log, requested, self._layout_of)
            outcome = self._finished(work)
        except HudiError as error:
            if requested not in self._log.refresh().closed:
                return  # it has ended meanwhile, and its files may be gone
            if not is_incurable(error):
                raise
            abort_resize(self._recovery, requested)
            return
        if isinstance(outcome, Decided | AlreadyDone):
            tidy(self._log, work)
            self._log.storage.delete(heartbeat_path(requested))

    def _finished(self, work: ResizeWork) -> Outcome:
        log = self._log
        bases = found_bases(log.storage, work.requested, work.groups)
        if bases is None:
            raise _without_bases(work)
        copies = ResizeCopies(log, work)
        copies.find()
        writer = writer_identity(log.world, self._settings)

        def encoded() -> bytes:
            stats = (*bases, *copies.stats)
            metadata = resize_metadata(work, stats, self._schema, writer)
            return encode_replace_commit_metadata(metadata, log.world.random_bytes(16))

        return ResizeEnd(log, work, copies, encoded=encoded, exclusive=nullcontext()).run()


def _without_bases(work: ResizeWork) -> CorruptTableError:
    return CorruptTableError(
        f"the resize {work.requested} cannot be finished",
        why="it is closed, and base files of its children are gone",
        next_step="Nothing is lost: the resize is cancelled. Find out which program removed them",
    )
