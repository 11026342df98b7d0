"""Planted bugs in resizes of buckets, and in what writers do about them.

The first ones are the weak runs of the model (`docs/protocol/model/resize.tla`). As in `commit`,
each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.commit import rollback, validation
from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.proposals import Close, Complete, Outcome
from pyhudi.conflict.resizes import (
    MeetsClosed,
    MustCancel,
    MustMove,
    MustRepeat,
    MustWriteTwice,
    PlacedWrite,
    Resize,
    ResizeVerdict,
    resize_verdict,
)
from pyhudi.conflict.rules import OtherWrite, WriteKind
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action
from pyhudi.plan.resizing import pace
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.plan.resizing.pace import Pace
from pyhudi.services.archiving import execute as archiving
from pyhudi.services.resizing.execute import Resizes
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import LogFile
from pyhudi.timeline.live import LiveTimeline, NumberedWrite
from pyhudi.write.files.copied_log import Sources, copied_logs
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.resizing import meet
from pyhudi.write.resizing.copies import ResizeCopies
from pyhudi.write.resizing.finish import ResizeEnd
from pyhudi.write.resizing.meet import WrittenFiles
from pyhudi.write.resizing.sources import group_of, log_of
from pyhudi.write.resizing.work import load_resize, ring_layout

_Bug = Callable[[], AbstractContextManager[Any]]
_Verdict = Callable[..., ResizeVerdict | None]
_LATER_THAN_ALL = "9" * 17


# -- the weak runs of the model


def _nothing_checked_at_the_decision() -> AbstractContextManager[Any]:
    """A resize completes although writes completed since its executor looked."""
    return patch.object(ResizeEnd, "_incomplete", lambda self, live: None)


def _closed_and_not_checked() -> AbstractContextManager[Any]:
    """A resize is closed and completes, and what was left to copy by then is not copied."""

    def run(self: ResizeEnd) -> Outcome:
        self._log.append(Close(self._work.requested, lambda live: None))
        return self._complete()

    return _all(
        patch.object(ResizeEnd, "_incomplete", lambda self, live: None),
        patch.object(ResizeEnd, "run", run),
    )


def _close_not_heeded() -> AbstractContextManager[Any]:
    """A write completes in a bucket that is closed."""
    return _verdicts(lambda verdict, *_: None if isinstance(verdict, MeetsClosed) else verdict)


def _late_writes_stay() -> AbstractContextManager[Any]:
    """A write completes where it wrote, although the bucket was replaced."""
    late = MustMove | MustRepeat
    return _verdicts(lambda verdict, *_: None if isinstance(verdict, late) else verdict)


def _moved_early() -> AbstractContextManager[Any]:
    """A write moves into the children of a resize that has not completed."""

    def weak(write: PlacedWrite, resizes: Sequence[Resize]) -> ResizeVerdict | None:
        for resize in resizes:
            is_input = not write.groups.isdisjoint(resize.inputs)
            if resize.completed is None and resize.requested < write.requested and is_input:
                return MustMove(resize.requested)
        return resize_verdict(write, resizes)

    moved = meet.moved

    def move(session: TableSession, requested: str, files: WrittenFiles) -> WrittenFiles:
        for plan in session.log.live.pending_of(Action.CLUSTERING):
            work = load_resize(
                session.log, plan.requested, lambda partition: ring_layout(session, partition)
            )
            inputs = work.plan.inputs
            gone = [s for s in files.stats if s.log_files and group_of(s) in inputs]
            made = []
            for stat in gone:
                for children, change in zip(work.children, work.plan.groups, strict=True):
                    if group_of(stat) in change.inputs:
                        name = CopyName.of_move(requested, 1)
                        made += copied_logs(
                            session.storage, [Sources(name, [log_of(stat)], children)]
                        )
            if gone:
                kept = (stat for stat in files.stats if stat not in gone)
                return WrittenFiles(files.written, (*kept, *made), (*files.left, *gone))
        return moved(session, requested, files)

    return _all(
        patch.object(validation, "resize_verdict", weak),
        patch.object(meet, "moved", move),
    )


def _older_writes_move() -> AbstractContextManager[Any]:
    """A write that is older than a resize moves under its own instant."""

    def weak(write: PlacedWrite, resizes: Sequence[Resize]) -> ResizeVerdict | None:
        return resize_verdict(replace(write, requested=_LATER_THAN_ALL), resizes)

    return patch.object(validation, "resize_verdict", weak)


def _overwritten_beside_a_resize() -> AbstractContextManager[Any]:
    """A base file comes into an input of a resize that is pending, and is not copied."""
    return _verdicts(lambda verdict, *_: None if isinstance(verdict, MustCancel) else verdict)


def _overwritten_under_copies() -> AbstractContextManager[Any]:
    """A base file comes into a bucket that a resize made after its write began."""

    def weak(
        verdict: ResizeVerdict | None, requested: str, resizes: Sequence[Resize]
    ) -> ResizeVerdict | None:
        is_repeated = isinstance(verdict, MustRepeat)
        if not is_repeated or verdict.resize.requested > requested:  # type: ignore[union-attr]
            return verdict
        return None if verdict.group in verdict.resize.children else verdict  # type: ignore[union-attr]

    return _verdicts(weak)


def _compared_by_name() -> AbstractContextManager[Any]:
    """Of two writes, file groups are compared by their names, and not through resizes."""
    return _all(
        patch.object(validation, "own_through", lambda own, resizes: own),
        patch.object(validation, "other_through", lambda other, resizes: other),
    )


# -- others


def _ring_before_the_decision() -> AbstractContextManager[Any]:
    """The rings are there before the resize is decided."""
    complete = ResizeEnd._complete

    def weak(self: ResizeEnd) -> Outcome:
        for path, data in self._work.ring_files:
            self._log.storage.create(path, data)
        return complete(self)

    return patch.object(ResizeEnd, "_complete", weak)


def _pending_writes_copied() -> AbstractContextManager[Any]:
    """Logs of pending writes are copied, too."""
    copy = ResizeCopies.copy

    def weak(self: ResizeCopies, owed: Sequence[OwedCopy]) -> None:
        copy(self, owed)
        log, work = self._log, self._work
        number = len(log.completions_since(work.requested)) + 1
        name = CopyName.of_copy(work.requested, number)
        for change, children in zip(work.plan.groups, work.children, strict=True):
            for stat in log.storage.list_folder(change.partition).objects:
                found = parse_data_file(file_name(stat.path))
                if not isinstance(found, LogFileName) or found.requested not in log.live.pending:
                    continue
                if FileGroupId(change.partition, found.file_id) in change.inputs:
                    log_file = LogFile(stat.path, stat.size, found)
                    stats = copied_logs(log.storage, [Sources(name, [log_file], children)])
                    self._stats += stats

    return patch.object(ResizeCopies, "copy", weak)


def _versions_by_request() -> AbstractContextManager[Any]:
    """Copies lie in the order in which their writes were requested."""
    writes_since = LiveTimeline.writes_since

    def weak(self: LiveTimeline, requested: str) -> list[NumberedWrite]:
        found = writes_since(self, requested)
        ordered = sorted(found, key=lambda write: write.instant.requested)
        return [NumberedWrite(n, write.instant) for n, write in enumerate(ordered, 1)]

    return patch.object(LiveTimeline, "writes_since", weak)


def _copies_share_a_name() -> AbstractContextManager[Any]:
    """Copies of a write from two inputs of a merge have one name."""
    of = CopyName.of

    def weak(self: CopyName, group: FileGroupId, piece: int) -> LogFileName:
        return of(self, group, 0)

    return patch.object(CopyName, "of", weak)


def _closed_without_bound() -> AbstractContextManager[Any]:
    """A resize is closed, however much is left to copy."""

    def weak(self: Pace, owed: Sequence[OwedCopy]) -> bool:
        return self.refusals >= pace.REFUSALS_MAX

    return patch.object(Pace, "may_close", weak)


def _not_bound_to_its_resize() -> AbstractContextManager[Any]:
    """An executor that slept completes the resize that is pending by now."""
    complete = ResizeEnd._complete

    def weak(self: ResizeEnd) -> Outcome:
        log, work = self._log, self._work
        live = log.refresh()
        others = [plan.requested for plan in live.pending_of(Action.CLUSTERING)]
        if work.requested in live.pending or not others:
            return complete(self)
        return log.append(Complete(others[0], Action.CLUSTERING, None, self._encoded()))

    return patch.object(ResizeEnd, "_complete", weak)


def _new_keys_beside_resizes() -> AbstractContextManager[Any]:
    """A placeholder completes although a resize has put the key into a base file meanwhile."""
    services, completed = ConcurrentWrites.services, ConcurrentWrites.completed

    def others(found: Any) -> Any:
        def weak(self: ConcurrentWrites, *own_and_live: Any) -> Iterator[OtherWrite]:
            each: OtherWrite
            for each in found(self, *own_and_live):
                if each.kind is not WriteKind.RESIZE:
                    yield each

        return weak

    return _all(
        patch.object(ConcurrentWrites, "services", others(services)),
        patch.object(ConcurrentWrites, "completed", others(completed)),
    )


def _marks_missing() -> AbstractContextManager[Any]:
    """HUDI-6047: a resize is archived although a ring of it is not marked."""
    return patch.object(archiving, "mark_rings", lambda storage, instants: None)


# -- where the schema changes


def _children_in_an_old_schema() -> AbstractContextManager[Any]:
    """The children's base files have the columns that the table had when their process began."""
    load_plan = Resizes._load_plan

    def weak(self: Resizes, requested: str) -> Any:
        plan = load_plan(self, requested)
        self._schema = lambda _: plan.schema
        return plan

    return patch.object(Resizes, "_load_plan", weak)


def _verdicts(weak: Callable[..., ResizeVerdict | None]) -> AbstractContextManager[Any]:
    """Weaken the verdict about resizes; `weak` gets it, the write's request, and the resizes."""

    def found(write: PlacedWrite, resizes: Sequence[Resize]) -> ResizeVerdict | None:
        verdict = resize_verdict(write, resizes)
        return weak(verdict, write.requested, resizes)

    return patch.object(validation, "resize_verdict", found)


def _written_once() -> AbstractContextManager[Any]:
    """A write puts nothing into the children of a resize that Hudi can execute."""
    return _verdicts(lambda verdict, *_: None if isinstance(verdict, MustWriteTwice) else verdict)


def _older_than_the_plan() -> AbstractContextManager[Any]:
    """A write completes beside a resize that was planned after it began, and that Hudi can
    execute."""

    def weak(
        verdict: ResizeVerdict | None, requested: str, resizes: Sequence[Resize]
    ) -> ResizeVerdict | None:
        is_early = isinstance(verdict, MustRepeat) and verdict.resize.completed is None
        return None if is_early else verdict

    return _verdicts(weak)


def _left_in_children() -> AbstractContextManager[Any]:
    """A rollback removes the files that its target names, and no others."""

    def own(storage: Any, write: str, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if f"_{write}." in path or f"_{write}.log" in path]

    return patch.object(rollback, "made_by", own)


@contextmanager
def _all(*replacements: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replacement)
        yield


#: The bugs, by name.
RESIZE_BUGS: dict[str, _Bug] = {
    "resized without a check": _nothing_checked_at_the_decision,
    "closed and not checked": _closed_and_not_checked,
    "close not heeded": _close_not_heeded,
    "late writes stay": _late_writes_stay,
    "moved early": _moved_early,
    "older writes move": _older_writes_move,
    "overwritten beside a resize": _overwritten_beside_a_resize,
    "overwritten under copies": _overwritten_under_copies,
    "compared by name": _compared_by_name,
    "ring before the decision": _ring_before_the_decision,
    "pending writes copied": _pending_writes_copied,
    "versions by request": _versions_by_request,
    "copies share a name": _copies_share_a_name,
    "closed without bound": _closed_without_bound,
    "not bound to its resize": _not_bound_to_its_resize,
    "new keys beside resizes": _new_keys_beside_resizes,
    "marks missing": _marks_missing,
    "children in an old schema": _children_in_an_old_schema,
    "written once": _written_once,
    "older than the plan": _older_than_the_plan,
    "left in children": _left_in_children,
}
