"""Planted bugs in virtual resizes, and in what writers and readers do about them.

All but the last are weak runs of the model (`docs/protocol/model/resize.tla`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.commit import validation
from pyhudi.commit.virtual_resizes import KeptResizes
from pyhudi.conflict.resizes import PlacedWrite, Resize, ResizeVerdict, resize_verdict
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.simulate.table import table
from pyhudi.simulate.table.actors import writers
from pyhudi.table import file_slices
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, Visibility
from pyhudi.write.files.group_log import VirtualInput
from pyhudi.write.resizing.beside import virtual_inputs

_Bug = Callable[[], AbstractContextManager[Any]]


def _one_log_for_two_inputs() -> AbstractContextManager[Any]:
    """A write has one log in a child of a merge, with the rows of both inputs."""

    def placed(session: TableSession, requested: str) -> Mapping[FileGroupId, VirtualInput]:
        found = virtual_inputs(session, requested)
        return {group: replace(replaced, place=1) for group, replaced in found.items()}

    return patch.object(writers, "virtual_inputs", placed)


def _followed_after_the_end() -> AbstractContextManager[Any]:
    """A reader follows references in a bucket that has been replaced."""
    slices = table._slices

    def weak(
        state: TableState, times: CompletionTimes, visibility: Visibility
    ) -> Iterator[FileSlice]:
        yield from slices(state, times, visibility)
        names = {log.name.requested for group in state.groups() for log in _children(group)}
        for group in state.groups():
            if not file_slices.is_replaced(group, state.replaced, visibility):
                continue
            own = tuple(log for log in group.logs if log.name.requested in names)
            found = file_slices.latest_slice(group._replace(bases=(), logs=own), times, visibility)
            if found is not None:
                yield found

    return patch.object(table, "_slices", weak)


def _children(group: FileGroupFiles) -> tuple[Any, ...]:
    return group.logs if is_virtual_child(group.file_id) else ()


def _completed_after_a_cancellation() -> AbstractContextManager[Any]:
    """A write with rows in the children of a resize completes although that was cancelled."""

    def weak(write: PlacedWrite, resizes: Sequence[Resize]) -> ResizeVerdict | None:
        return resize_verdict(replace(write, references=frozenset(), beside=()), resizes)

    return patch.object(validation, "resize_verdict", weak)


def _cancelled_with_rows() -> AbstractContextManager[Any]:
    """A resize is cancelled although completed writes have rows in its children."""
    return patch.object(KeptResizes, "refusal", lambda self, target, live: None)


def _children_shown() -> AbstractContextManager[Any]:
    """A reader shows the logs of a child before the resize has completed."""
    return patch.object(file_slices, "is_virtual_child", lambda file_id: False)


def _references_copied() -> AbstractContextManager[Any]:
    """A resize copies what a log refers to, as if the log held it."""
    return patch.object(WriteStat, "is_reference", property(lambda self: False))


#: The bugs, by name.
VIRTUAL_BUGS: dict[str, _Bug] = {
    "one log for two inputs": _one_log_for_two_inputs,
    "followed after the end": _followed_after_the_end,
    "completed after a cancellation": _completed_after_a_cancellation,
    "cancelled with rows": _cancelled_with_rows,
    "children shown": _children_shown,
    "references copied": _references_copied,
}
