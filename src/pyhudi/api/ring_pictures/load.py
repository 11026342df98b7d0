"""What the picture of a partition's ring is made from: rings, sizes of buckets, and a resize.

The ring in force needs one listing and one read. A resize that has completed is seen in the rings
that it left: its own, and the one that was in force before, for which its plan stands in where a
clean has removed it. Sizes of a past moment are those of the slices that were visible then; a
bucket whose files of that time are gone has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from pyhudi.api.inspected_buckets import LOAD_ATTEMPTS_MAX, PlansInTheWay, is_behind
from pyhudi.api.ring_pictures.picture import RingPicture
from pyhudi.api.ring_pictures.views import RingView, change_views, ring_view, with_coming
from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, Ring, RingFiles
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.instant import Action, InstantTime, is_instant_time
from pyhudi.format.timeline.resize_plan import GroupChange, ResizePlan
from pyhudi.notebook import readable_time
from pyhudi.plan.resizing.changes import ResizeChange, ResizePreview
from pyhudi.plan.resizing.rings import ring_before, rings_after
from pyhudi.read.load import TableLoader
from pyhudi.read.plan import AtCompletion, Reader
from pyhudi.read.rings import Rings, known_by
from pyhudi.services.resizing.result import Resized
from pyhudi.storage.objects.rings import load_ring, load_ring_files
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    just_before,
    visible_at_completion,
    visible_now,
)
from pyhudi.wording import counted, readable

_NAMED_MAX = 5  # partitions that an error names
_NOT_YET = InstantTime("9" * 17)  # of a ring that a plan would leave


@dataclass(frozen=True, slots=True)
class RingPictures:
    """Makes pictures of the rings of one table."""

    loader: TableLoader
    reader: Reader
    load: Callable[[], TableState]
    plans: Callable[[TableState], PlansInTheWay]  # that are pending

    def picture(self, partition: str, resize: ResizePreview | Resized | str | None) -> RingPicture:
        """Return the ring as it is, or as the resize changes it."""
        self._refuse_simple()
        state, ring = self._loaded(partition)
        match resize:
            case None:
                return self._now(state, ring)
            case Resized(preview=preview) | (ResizePreview() as preview):
                return self._previewed(state, ring, preview)
            case str() if is_instant_time(resize):
                return self._resized(state, ring, InstantTime(resize))
        raise InvalidRequestError(
            f"resize={str(resize)[:40]!r} cannot be used",
            why="it is neither what `services.resize` returns nor a time of 17 digits",
            next_step="`table.inspect.timeline()` has the times; a resize is a clustering there",
        )

    # -- the ring in force

    def _loaded(self, partition: str) -> tuple[TableState, Ring]:
        """Return the table and the ring, which a resize may have made since the table was loaded.

        It is loaded again then, but not for ever.
        """
        attempts = 0
        while True:
            attempts += 1
            state = self.load()
            is_known = partition in state.partitions  # or it may be no path at all
            found = self._rings(state).load(partition) if is_known else None
            if found is None:
                raise _without_ring(state, partition, self.loader.config)
            if attempts == LOAD_ATTEMPTS_MAX or not is_behind(state, {partition: found.ring}):
                return state, found.ring

    def _rings(self, state: TableState) -> Rings:
        return Rings(self.loader.storage, self.loader.history, known_by(state))

    def _now(self, state: TableState, ring: Ring) -> RingPicture:
        sizes = self._sizes_now(state, ring)
        plans = self.plans(state)
        groups = (FileGroupId(ring.partition, node.file_id) for node in ring.nodes)
        notes = {group.file_id: plans.of(group) or "" for group in groups}
        view = ring_view("", ring, sizes, notes)
        pending = None
        with suppress(CorruptTableError):  # a plan that cannot be used does not hide the ring
            if (pending := self._pending(state, ring.partition)) is not None:
                view = with_coming(view, ring, self._after(ring, *pending), sizes)
        number = ring.sequence_number
        words = [f"resized {counted(number, 'time')}" if number else "never resized"]
        if pending is not None:
            words.append(f"resize {pending[0]} is pending")
        if times := state.timeline.completion_times.values():
            words.append(f"as of {self._readable(max(times))}")
        return RingPicture(ring.partition, ", ".join(words), (view,))

    def _pending(
        self, state: TableState, partition: str
    ) -> tuple[InstantTime, Sequence[GroupChange]] | None:
        """Return the pending resize of the partition, if there is one, and what it changes."""
        for instant in state.timeline.pending:
            if instant.action is not Action.CLUSTERING:
                continue
            if changes := self._planned(instant.requested, partition):
                return instant.requested, changes
        return None

    def _planned(self, requested: InstantTime, partition: str) -> Sequence[GroupChange]:
        plan = self.reader.resize_plan(requested)
        return () if plan is None else plan.by_partition.get(partition, ())

    @staticmethod
    def _after(ring: Ring, requested: InstantTime, changes: Sequence[GroupChange]) -> Ring:
        plan = ResizePlan(tuple(changes))
        return rings_after(plan, {ring.partition: ring}, requested)[ring.partition]

    # -- before and after

    def _previewed(self, state: TableState, ring: Ring, preview: ResizePreview) -> RingPicture:
        resized = (each for each in preview.changes if isinstance(each, ResizeChange))
        changes = [each for each in resized if each.partition == ring.partition]
        if not changes:
            partitions = sorted({change.partition for change in preview.changes})
            raise InvalidRequestError(
                f"the plan changes no bucket of partition {ring.partition!r}",
                why=f"it has {_named(partitions) if partitions else 'nothing to resize'}",
                next_step="Leave `resize` out to see the ring as it is",
            )
        planned_on = changes[0].ring
        sizes = dict(self._sizes_now(state, planned_on))
        for change in changes:
            for group, slice_ in zip(change.inputs, change.slices, strict=True):
                sizes[group.file_id] = slice_.bytes
        ids = (f"new-{number}" for number in count(1))
        plan = [change.planned(ids) for change in changes]
        before, after = change_views(planned_on, self._after(planned_on, _NOT_YET, plan), sizes)
        nameless = (b if b.change is None else replace(b, name="") for b in after.buckets)
        views = before, replace(after, buckets=tuple(nameless))
        return RingPicture(ring.partition, f"a resize would turn {_what(views)}", views)

    def _resized(self, state: TableState, ring: Ring, requested: InstantTime) -> RingPicture:
        """Return what the resize of this time changes, or has changed, in the ring's partition."""
        partition = ring.partition
        is_pending = any(instant.requested == requested for instant in state.timeline.pending)
        if is_pending and (changes := self._planned(requested, partition)):
            after = self._after(ring, requested, changes)
            views = change_views(ring, after, self._sizes_now(state, ring))
            what = f"resize {requested} is pending, and turns {_what(views)}"
            return RingPicture(partition, what, views)
        before, after = self._history(state, partition, requested)
        completed = self._completed(state, requested)
        views = change_views(
            before,
            after,
            self._sizes_at(state, partition, just_before(completed)),
            self._sizes_at(state, partition, completed),
        )
        what = f"resize {requested}, completed {self._readable(completed)}, turned {_what(views)}"
        return RingPicture(partition, what, views)

    def _history(
        self, state: TableState, partition: str, requested: InstantTime
    ) -> tuple[Ring, Ring]:
        """Return the rings that were in force before a resize and after it."""
        storage, rings = self.loader.storage, self._rings(state)
        files = load_ring_files(storage, partition)
        until = rings.in_force(_until(files, requested))
        after = load_ring(storage, partition, requested)
        if (
            after is None
            or until is None
            or until.instant != requested
            or requested == FIRST_INSTANT
        ):
            raise _unknown(
                partition, requested, "it did not complete there, or a clean removed its ring"
            )
        earlier = rings.in_force(_until(files, InstantTime(just_before(requested))))
        before = None if earlier is None else load_ring(storage, partition, earlier.instant)
        if before is None or before.sequence_number + 1 != after.sequence_number:
            before = ring_before(after, self._planned(requested, partition))
        if before is None:
            why = "the ring that was in force before it is gone, or there was none"
            raise _unknown(partition, requested, why)
        return before, after

    def _completed(self, state: TableState, requested: InstantTime) -> str:
        """Return when a resize completed; its request, if no other time is known."""
        if (known := state.timeline.completion_times.get(requested)) is not None:
            return known
        archived = self.loader.history.recorded(frozenset([requested])).get(requested)
        return (archived and archived.completed) or requested

    # -- sizes

    def _sizes_now(self, state: TableState, ring: Ring) -> Mapping[str, int]:
        """Return the size of each bucket; one without a file has 0 bytes."""
        times = self.reader.completion_times(state)
        found = _sizes(state, ring.partition, times, visible_now(state.timeline))
        return {**dict.fromkeys((node.file_id for node in ring.nodes), 0), **dict(found)}

    def _sizes_at(self, state: TableState, partition: str, time: str) -> Mapping[str, int]:
        times = self.reader.completion_times(state, AtCompletion(time))
        return dict(_sizes(state, partition, times, visible_at_completion(times, time)))

    # -- words

    def _readable(self, time: str) -> str:
        return readable_time(time, self.loader.config.zone)

    def _refuse_simple(self) -> None:
        if isinstance(self.loader.config.buckets, SimpleBuckets):
            raise InvalidRequestError(
                f"the table at {self.loader.storage.uri} has no rings",
                why="its buckets are simple: each partition has the same number, and they have no"
                " ranges",
                next_step="`table.inspect.buckets()` shows them",
            )


def _without_ring(state: TableState, partition: str, config: TableConfig) -> InvalidRequestError:
    if partition in state.partitions and isinstance(config.buckets, MigratingBuckets):
        return InvalidRequestError(
            f"partition {partition!r} has no ring",
            why="the table is being migrated, and the buckets of this partition are still simple",
            next_step="Go on with table.services.migrate_buckets()",
        )
    others = sorted(path for path in state.partitions if path != partition)
    is_left_out = partition == "" and bool(others)
    return InvalidRequestError(
        "no partition is named" if is_left_out else f"partition {partition!r} has no ring",
        why=f"the table has {_named(others)}" if others else "no row was written to it yet",
        next_step="Name a partition by its path" if others else "Write to it first",
    )


def _sizes(
    state: TableState, partition: str, times: CompletionTimes, visibility: Visibility
) -> Iterator[tuple[str, int]]:
    for group in state.partitions.get(partition, ()):
        if is_replaced(group, state.replaced, visibility):
            continue
        if (found := latest_slice(group, times, visibility)) is not None:
            yield group.file_id, found.bytes


def _until(files: RingFiles, last: InstantTime) -> RingFiles:
    """Return the rings' files that there were when the last of them was made."""
    instants = tuple(instant for instant in files.instants if instant <= last)
    return RingFiles(files.partition, instants, files.marks.intersection(instants))


def _what(views: Sequence[RingView]) -> str:
    before, after = views
    inputs = [bucket for bucket in before.buckets if bucket.change is not None]
    made = sum(bucket.change is not None for bucket in after.buckets)
    size = readable(sum(bucket.bytes or 0 for bucket in inputs), "B")
    return f"{counted(len(inputs), 'bucket')}, {size}, into {made:,}"


def _named(partitions: Sequence[str]) -> str:
    shown = ", ".join(map(repr, partitions[:_NAMED_MAX]))
    return f"{counted(len(partitions), 'partition')}: {shown}" + (
        ", ..." if len(partitions) > _NAMED_MAX else ""
    )


def _unknown(partition: str, requested: InstantTime, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"what resize {requested} changed in partition {partition!r} is not known",
        why=why,
        next_step="`table.inspect.timeline()` has the times; a resize is a clustering there",
    )
