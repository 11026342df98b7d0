"""A writer that meets a closed resize finishes it: no writer waits for a process that may be dead.

The children's base files are there, or the resize could not have been closed, and what is left to
copy is little. A resize that cannot be finished is cancelled.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from pyhudi.commit.proposals import AlreadyDone, Decided, Outcome
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import ConflictError, CorruptTableError, HudiError
from pyhudi.format.timeline.commit_metadata import encode_replace_commit_metadata
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.write.resizing.bases import found_bases, load_made
from pyhudi.write.resizing.cancel import abort_resize, is_incurable, is_kept
from pyhudi.write.resizing.copies import ResizeCopies, load_copies
from pyhudi.write.resizing.finish import ResizeEnd, resize_metadata, tidy
from pyhudi.write.resizing.work import ResizeWork, layout_before, load_resize


def finish_resize(session: TableSession, requested: str) -> None:
    """End a closed resize: it completes, or is cancelled. Another process may have done so.

    The caller holds `session.exclusive`.
    """
    log = session.log
    if requested not in log.refresh().closed:
        return
    try:
        work = load_resize(log, requested, partial(layout_before, session))
        outcome = _finished(session, work)
    except HudiError as error:
        if requested not in log.refresh().closed:
            return  # it has ended meanwhile, and its files may be gone
        if not is_incurable(error):
            raise
        if is_kept(abort_resize(session.recovery, requested)):
            raise _cannot_be_finished(requested, error) from error
        return
    if isinstance(outcome, Decided | AlreadyDone):
        tidy(log, work)
        log.storage.delete(heartbeat_path(requested))
    elif requested in log.refresh().closed:
        abort_resize(session.recovery, requested)


def count_copies(session: TableSession, requested: str) -> int:
    """Return how many copies a resize has by now; 0 if its plan cannot be used, or is gone."""
    try:
        work = load_resize(session.log, requested, partial(layout_before, session))
        found = load_copies(session.log.storage, work)
    except HudiError:
        return 0
    return sum(map(len, found.paths.values()))


def _finished(session: TableSession, work: ResizeWork) -> Outcome:
    log = session.log
    made = load_made(log.storage, work.requested)
    bases = found_bases(log.storage, work.requested, work.groups, made)
    if bases is None:
        raise _without_bases(work)
    copies = ResizeCopies(log, work)
    copies.find(made)
    schema = session.schema.avro_at(work.requested)
    writer = writer_identity(log.world, session.settings)

    def encoded() -> bytes:
        metadata = resize_metadata(work, (*bases, *copies.stats), schema, writer)
        return encode_replace_commit_metadata(metadata, log.world.random_bytes(16))

    return ResizeEnd(log, work, bases, copies, encoded=encoded, exclusive=nullcontext()).run()


def _cannot_be_finished(requested: str, error: HudiError) -> ConflictError:
    """Return the error of a write with rows in a bucket of a virtual resize that is stuck.

    It is a conflict: when the write is made again, it puts its rows into the children, and
    completes beside the resize.
    """
    return ConflictError(
        f"a write cannot complete beside the resize {requested}",
        why="the resize is closed, and can be neither finished nor cancelled:"
        f" {error.what} ({error.why})",
        next_step="Write again: a write that begins now completes. Restore what is damaged, and"
        " call table.services.resize()",
    )


def _without_bases(work: ResizeWork) -> CorruptTableError:
    return CorruptTableError(
        f"the resize {work.requested} cannot be finished",
        why="it is closed, and base files of its children are gone",
        next_step="Nothing is lost: the resize is cancelled. Find out which program removed them",
    )
