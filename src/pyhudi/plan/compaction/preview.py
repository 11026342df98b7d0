"""What a compaction would do, and what it would leave alone, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.plan_files import CompactionPlan
from pyhudi.plan.compaction.operations import operation_of
from pyhudi.table.file_group import FileSlice
from pyhudi.wording import by_reason, counted, first_reasons, readable

_LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file group with logs that is not in the plan."""

    group: FileGroupId
    why: str
    #: Its latest slice, if that alone is more than `input_bytes_max`.
    too_large: FileSlice | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{group_name(self.group)}: {self.why}"


@dataclass(frozen=True, slots=True)
class CompactionPreview:
    """What a compaction would do, and what it would leave alone."""

    slices: tuple[FileSlice, ...]
    left_out: tuple[LeftOut, ...]
    unknown: tuple[str, ...] = ()  # partitions in the policy that the table lacks

    @property
    def is_empty(self) -> bool:
        return not self.slices

    @property
    def plan(self) -> CompactionPlan:
        """The plan as Hudi writes it."""
        operations = tuple(operation_of(slice_) for slice_ in self.slices)
        return CompactionPlan(operations, extra_metadata={}, missing_schedule_partitions=())

    def __str__(self) -> str:
        logs = [log for slice_ in self.slices for log in slice_.logs]
        size = readable(sum(slice_.bytes for slice_ in self.slices), "B")
        groups = counted(len(self.slices), "file group")
        head = "nothing to compact"
        if self.slices:
            head = f"{groups} to compact: {counted(len(logs), 'log file')}, {size}"
        lines = [head, *_listed(map(_slice_line, self.slices), len(self.slices))]
        if self.left_out:
            count = counted(len(self.left_out), "file group")
            lines.append(f"not in the plan: {count} with logs")
            reasons = by_reason((out, out.why) for out in self.left_out)
            lines += first_reasons([_left_out_line(*of) for of in reasons], indent="  ")
        lines += [f"the table has no partition {partition!r}" for partition in self.unknown]
        return "\n".join(lines)


#: No plan was requested.
NOTHING = CompactionPreview((), ())


def _listed(lines: Iterable[str], count: int) -> list[str]:
    shown = [f"  {line}" for _, line in zip(range(_LISTED_MAX), lines, strict=False)]
    return [*shown, f"  ... and {count - _LISTED_MAX} more"] if count > _LISTED_MAX else shown


def _left_out_line(why: str, left_out: Sequence[LeftOut]) -> str:
    first = left_out[0]
    if len(left_out) == 1:
        return str(first)
    return f"{counted(len(left_out), 'file group')} such as {group_name(first.group)}: {why}"


def _slice_line(slice_: FileSlice) -> str:
    base = "no base file" if slice_.base is None else f"base file of {slice_.base_instant}"
    logs = sum(log.size for log in slice_.logs)
    named = group_name(FileGroupId(slice_.partition, slice_.file_id))
    line = f"{named}: {base}, {counted(len(slice_.logs), 'log file')}, {readable(logs, 'B')}"
    if old := len(slice_.old_logs):
        line += f"; {old} older than the base file, so the group comes first"
    return line


def group_name(group: FileGroupId) -> str:
    """Return the file group as previews and errors name it."""
    return f"{group.partition}/{group.file_id}" if group.partition else group.file_id
