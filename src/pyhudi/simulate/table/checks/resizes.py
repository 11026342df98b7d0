"""What a resize of buckets promises: N1 to N10 of docs/protocol/README.md, section 15.

A resize replaces some file groups, its inputs, by others, its children. N3, that a state of the
past stays what it was, is I7 and I10 in `invariants`: they read every state when all is over, and
closely after each resize.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_MAX,
    RING_ROOT,
    Ring,
    RingFileName,
    ring_path,
)
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Instant, InstantTime
from pyhudi.index.ring_changes import owner_ranges
from pyhudi.plan.resizing import pace
from pyhudi.plan.resizing.copies import VERSIONS_A_WRITE
from pyhudi.simulate.table.checks.change_log import Change
from pyhudi.simulate.table.checks.evidence import (
    TIMELINE_FOLDER,
    Evidence,
    PlannedResize,
    group_of_path,
)
from pyhudi.simulate.table.history import History
from pyhudi.simulate.table.rows import KEYS, Row, decode_rows, partition_of
from pyhudi.simulate.table.table import ToyReader
from pyhudi.simulate.table.toy_rings import group_on


def each_row_once(evidence: Evidence, history: History) -> Iterator[str]:
    """N1 and N10. As of every time since a resize a key is in its owner alone, no version twice."""
    if not evidence.buckets.resizes:
        return
    reader = ToyReader(evidence.storage, evidence.kind)
    state = reader.load()
    since = max(reader.retention(state).since, evidence.buckets.resizes[0].completed)
    for time in sorted(write.completed for write in evidence.writes.values()):
        for slice_ in reader.slices(state, time) if time >= since else ():
            group = FileGroupId(slice_.partition, slice_.file_id)
            rows = list(reader.rows_of(slice_, _seen_by(evidence, time)))
            for key in sorted({row.key for row in rows}):
                if (owner := evidence.buckets.stay(key, time).group) != group:
                    yield f"{key} is in {group}, and belongs to {owner}, as of {time}"
            versions = Counter((row.key, row.version) for row in rows)
            for (key, version), times in versions.items():
                if times > 1:
                    yield f"{version} of {key} is {times} times in {group}, as of {time}"


def _seen_by(evidence: Evidence, time: str) -> Callable[[str], bool]:
    """Return whether a write had completed by then."""

    def sees(requested: str) -> bool:
        write = evidence.writes.get(requested)
        return write is not None and write.completed <= time

    return sees


def names_tell_what_completed(evidence: Evidence, history: History) -> Iterator[str]:
    """N2. A file that is named by a completed instant holds rows of completed writes.

    Where Hudi shares the table that is not so of what a write puts into children itself.
    """
    for name, change in evidence.data_files:
        done = evidence.writes.get(name)
        if change.data is None or done is None or change.path in evidence.twice:
            continue
        for requested in sorted({row.requested for row in decode_rows(change.data)} - {name}):
            write = evidence.writes.get(requested)
            if write is None or write.completed > done.completed:
                yield f"{change.path} holds rows of {requested}, which had not completed with it"


def children_are_closed_to_others(evidence: Evidence, history: History) -> Iterator[str]:
    """N4. A child holds files of its resize alone until that has completed, and later nothing of a
    completed write that is older. A child of a virtual resize holds files of later writes, too."""
    made = {group: resize for resize in evidence.resizes.values() for group in resize.plan.made}
    for name, change in evidence.data_files if made else ():
        resize = made.get(group_of_path(change.path))
        if resize is None or change.data is None or name == resize.requested:
            continue
        if (twice := evidence.twice.get(change.path)) and twice.resize == resize.requested:
            continue
        done = evidence.writes.get(resize.requested)
        if done is None or evidence.decided[resize.requested] > change.place:
            if resize.plan.is_virtual and name > resize.requested:
                continue
            yield f"{change.path} came into a child before {resize.requested} had completed"
        elif name < resize.requested and change.path in _paths(evidence, name):
            yield f"{change.path} is in a child, and older than {resize.requested}"


def _paths(evidence: Evidence, requested: str) -> frozenset[str]:
    write = evidence.writes.get(requested)
    return frozenset() if write is None else write.paths


def written_twice_in_full(evidence: Evidence, history: History) -> Iterator[str]:
    """N11. A write that completes beside a pending resize that Hudi can execute has each row of an
    input in the children, too, and was requested after it."""
    for resize in evidence.resizes.values() if evidence.twice else ():
        done = evidence.writes.get(resize.requested)
        if not resize.plan.is_dual or done is None:
            continue
        for write in evidence.writes.values():
            if not resize.requested < write.completed < done.completed or write.is_compaction:
                continue
            if not write.groups & resize.plan.inputs:
                continue
            if write.requested < resize.requested:
                yield f"{write.requested} completed beside the later {resize.requested}"
            if not write.groups & resize.plan.made:
                yield f"{write.requested} has nothing in the children of {resize.requested}"


def copies_are_of_completed_writes(evidence: Evidence, history: History) -> Iterator[str]:
    """N5. A copy holds rows of one write, which had completed before the copy was made."""
    for name, change in evidence.data_files:
        if change.data is None or name not in evidence.resizes or not _is_log(change.path):
            continue
        of = {row.requested for row in decode_rows(change.data)}
        if len(of) != 1:
            yield f"{change.path} is a copy of {sorted(of)}"
        for requested in of:
            write = evidence.writes.get(requested)
            if write is None or write.change.place > change.place:
                yield f"{change.path} is a copy of {requested}, which had not completed"


def _is_log(path: str) -> bool:
    return file_name(path).startswith(".")


def one_resize_at_a_time(evidence: Evidence, history: History) -> Iterator[str]:
    """N6. A partition has one pending resize, no other plan has its inputs, and its ring advances
    by one."""
    end = len(evidence.changes)

    def is_open(requested: str, place: int) -> bool:
        return evidence.decided.get(requested, end) >= place

    resizes = list(evidence.resizes.values())
    for number, resize in enumerate(resizes):
        for earlier in resizes[:number]:
            if is_open(earlier.requested, resize.place) and earlier.partitions & resize.partitions:
                yield f"{earlier.requested} and {resize.requested} are pending in one partition"
    for compaction in evidence.compactions:
        for resize in resizes:
            both = compaction.groups & resize.plan.inputs
            if compaction.place < resize.place:
                overlap = is_open(compaction.requested, resize.place)
            else:
                overlap = is_open(resize.requested, compaction.place)
            if both and overlap:
                yield f"{compaction.requested} and {resize.requested} are pending on {min(both)}"
    yield from _steps(evidence)


def _steps(evidence: Evidence) -> Iterator[str]:
    numbers: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for put in evidence.rings:
        ring = put.ring
        if (ring.partition, ring.instant) in seen:
            continue  # a process that slept created it again
        seen.add((ring.partition, ring.instant))
        expected = numbers.get(ring.partition, -1) + 1
        if ring.sequence_number != expected:
            yield f"{put.change.path} is ring {ring.sequence_number}, not {expected}"
        numbers[ring.partition] = ring.sequence_number


def nothing_completes_in_what_is_closed(evidence: Evidence, history: History) -> Iterator[str]:
    """N7. From the close of a resize until its end no write with files in an input completes."""
    closed: dict[str, PlannedResize] = {}
    for logged in evidence.log:
        entry = logged.entry
        instant = entry.target.instant if entry.target is not None else entry.instant
        if logged.is_dead or instant is None:
            continue
        if entry.kind is EntryKind.CLOSE:
            if instant in evidence.resizes:
                closed[instant] = evidence.resizes[instant]
        elif entry.kind in (EntryKind.ABORT, EntryKind.COMPLETE):
            closed.pop(instant, None)
        write = evidence.writes.get(instant)
        if entry.kind is EntryKind.COMPLETE and write is not None and not write.is_resize:
            for requested, resize in closed.items():
                if both := write.row_groups & resize.plan.inputs:
                    yield f"{instant} completed in {min(both)}, which {requested} had closed"


def closed_when_little_is_left(evidence: Evidence, history: History) -> Iterator[str]:
    """N7. A resize is closed when its base files are there, and little is left to copy."""
    for logged in evidence.log:
        resize = evidence.resizes.get(logged.entry.instant or "")
        if logged.entry.kind is not EntryKind.CLOSE or logged.is_dead or resize is None:
            continue
        there = evidence.paths_at(logged.change.place, resize.requested)
        based = {group_of_path(path) for path in there if not _is_log(path)}
        if missing := resize.plan.made - based:
            yield f"{resize.requested} was closed without a base file in {min(missing)}"
        copied = {_version(path) // VERSIONS_A_WRITE for path in there if _is_log(path)}
        since = sorted(
            (write for write in evidence.writes.values() if write.completed > resize.requested),
            key=lambda write: write.completed,
        )
        children = {
            group: len(change.made) for change in resize.plan.groups for group in change.inputs
        }
        left = [
            sum(children.get(group_of_path(path), 0) for path in write.row_paths)
            for number, write in enumerate(since, 1)
            if evidence.decided[write.requested] < logged.change.place and number not in copied
        ]
        files = [each for each in left if each]
        if sum(files) > max([pace.CLOSE_FILES, *files[:1]]):
            yield f"{resize.requested} was closed when {sum(files)} files were left to copy"


def _version(path: str) -> int:
    name = parse_data_file(file_name(path))
    assert isinstance(name, LogFileName), path
    return name.version


def rows_keep_a_resize(evidence: Evidence, history: History) -> Iterator[str]:
    """A virtual resize is not cancelled once a completed write has rows in its children."""
    for requested, resize in evidence.resizes.items():
        is_cancelled = requested not in evidence.writes and requested in evidence.decided
        if not is_cancelled or not resize.plan.is_virtual:
            continue
        for write in evidence.writes.values():
            if both := write.groups & resize.plan.made:
                yield f"{write.requested} has rows in {min(both)}, and {requested} was cancelled"


def rings_are_decided(evidence: Evidence, history: History) -> Iterator[str]:
    """N8. A ring of a resize exists only if its completion is in the log."""
    done: dict[str | None, int] = {}
    for logged in evidence.log:  # one that was voided has its ring, and is decided again
        if logged.entry.kind is EntryKind.COMPLETE and not logged.is_dead:
            done.setdefault(logged.entry.instant, logged.change.place)
    for put in evidence.rings:
        instant = put.ring.instant
        if instant == FIRST_INSTANT:
            continue
        if instant not in done or put.change.place < done[instant]:
            yield f"{put.change.path} came before {instant} was decided complete"


def rings_are_marked(evidence: Evidence, history: History) -> Iterator[str]:
    """N8. When a resize leaves the active timeline, each ring of it that is there is marked."""
    there: set[str] = set()
    for change in evidence.changes if evidence.resizes else ():
        if change.path.startswith(f"{RING_ROOT}/"):
            (there.discard if change.data is None else there.add)(change.path)
        resize = evidence.resizes.get(_archived(change) or "")
        if resize is None:
            continue
        requested = InstantTime(resize.requested)
        for partition in sorted(resize.partitions):
            names = (RingFileName(requested), RingFileName(requested, is_commit_mark=True))
            ring, mark = (ring_path(partition, name) for name in names)
            if ring in there and mark not in there:
                yield f"{requested} is archived, and {ring} is not marked"


def _archived(change: Change) -> str | None:
    """Return the instant whose completed file was removed from the timeline."""
    folder, _, name = change.path.rpartition("/")
    if change.data is not None or folder != TIMELINE_FOLDER:
        return None
    instant = Instant.parse(name)
    return None if instant.completed is None else instant.requested


def last_to_complete_counts(evidence: Evidence, history: History) -> Iterator[str]:
    """N9. Where writes yield to others and no ordering value decides, the last one to complete
    counts last."""
    kind = evidence.kind
    if kind.by_event_time or kind.has_owners or not evidence.buckets.resizes:
        return
    if not all(exchange.invoke.is_checked for exchange in history.by_instant.values()):
        return
    reader = ToyReader(evidence.storage, kind)
    state = reader.load()
    since = max(reader.retention(state).since, evidence.buckets.resizes[0].completed)
    last: dict[str, Row | None] = {}
    for write in sorted(evidence.writes.values(), key=lambda each: each.completed):
        if (exchange := history.by_instant.get(write.requested)) is not None:
            asked = exchange.invoke
            gone = (key for key in KEYS if partition_of(key) in asked.replaces)
            last.update(dict.fromkeys(gone))
            last.update((row.key, row) for row in asked.rows)
        if write.completed < since:
            continue
        read = reader.as_of(state, write.completed)
        for key, row in last.items():
            shown = None if key not in read or read[key].is_deleted else read[key].version
            expected = None if row is None or row.is_deleted else row.version
            if shown != expected:
                yield f"{key} was {shown}, and {expected} came last, as of {write.completed}"


def rings_cover_everything(evidence: Evidence, history: History) -> Iterator[str]:
    """N10. The buckets of a ring own every position once, and a resize gives away no other keys."""
    before: dict[str, Ring] = {}
    for put in evidence.rings:
        ring, path = put.ring, put.change.path
        ranges = sorted(r for node in range(len(ring.nodes)) for r in owner_ranges(ring, node))
        reached = -1
        for low, high in ranges:
            if low != reached + 1:
                yield f"{path} owns {low} twice, or nothing up to it"
            reached = high
        if reached != RING_MAX:
            yield f"{path} owns nothing behind {reached}"
        old, resize = before.get(ring.partition), evidence.resizes.get(ring.instant)
        if old is not None and resize is not None:
            for key in KEYS:
                if partition_of(key) != ring.partition:
                    continue
                here, there = group_on(old, key), group_on(ring, key)
                changes = (c for c in resize.plan.groups if here in c.inputs and there in c.made)
                if here != there and next(changes, None) is None:
                    yield f"{path} gives {key} from {here} to {there}"
        before[ring.partition] = ring


ResizeCheck = Callable[[Evidence, History], Iterator[str]]

RESIZE_CHECKS: dict[str, ResizeCheck] = {
    "N1 each row once": each_row_once,
    "N2 names tell what completed": names_tell_what_completed,
    "N4 children are closed": children_are_closed_to_others,
    "N5 copies of completed writes": copies_are_of_completed_writes,
    "N6 one resize at a time": one_resize_at_a_time,
    "N7 closed is closed": nothing_completes_in_what_is_closed,
    "N7 little is left": closed_when_little_is_left,
    "N8 rings are decided": rings_are_decided,
    "N8 rings are marked": rings_are_marked,
    "rows keep a resize": rows_keep_a_resize,
    "N9 the last counts last": last_to_complete_counts,
    "N10 rings cover everything": rings_cover_everything,
    "N11 written twice in full": written_twice_in_full,
}
