"""Resizing an open table: what its services call, and making base files in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyhudi.errors import InvalidRequestError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_layout import RingLayout
from pyhudi.plan.scan import CommitFolders, merge_rule
from pyhudi.progress import Listener, ProgressBoard
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.merge_slice import CompactionSpec
from pyhudi.services.resizing.child_bases import Rewrite, write_children
from pyhudi.services.resizing.execute import Merge, Resizes
from pyhudi.session.session import TableSession
from pyhudi.timeline.completion import visible_now
from pyhudi.write.resizing.work import LayoutOf


class LocalChildren:
    """Makes the children's base files in this process, one split or merge after the other."""

    def __init__(self, session: TableSession, listener: Listener | None = None) -> None:
        self._session = session
        self._listener = listener

    def __call__(
        self, requested: str, schema: str, rewrites: Sequence[Rewrite]
    ) -> Iterator[WriteStat]:
        session = self._session
        spec = children_spec(session, requested, schema, rewrites)
        with ProgressBoard(self._listener, session.world) as board:
            for rewrite in rewrites:
                for stat in write_children(session.storage, spec, rewrite):
                    board.add(rows=stat.num_writes or 0, bytes=stat.total_write_bytes or 0, files=1)
                    yield stat


def children_spec(
    session: TableSession, requested: str, schema: str, rewrites: Sequence[Rewrite]
) -> CompactionSpec:
    """Return what tasks need to make the children's base files."""
    with session.exclusive:
        state = session.current.load()
        slices = [slice_ for rewrite in rewrites for slice_ in rewrite.slices]
        return CompactionSpec(
            InstantTime(requested),
            schema,
            merge_rule(session.config),
            visible_now(state.timeline),
            CommitFolders.of(session.config),
            CommitRecords(session.loader).load(state, slices).sizes,
            session.schema.dropped() if session.config.lock.is_shared else None,
        )


def resizes(
    session: TableSession, merge: Merge | None = None, layout_of: LayoutOf | None = None
) -> Resizes:
    """Return the resizes of an open table. `layout_of` returns the layout in force."""
    with session.exclusive:
        return Resizes(
            session.log,
            session.recovery,
            session.settings,
            layout_of=layout_of or (lambda partition: ring_layout(session, partition)),
            merge=merge or LocalChildren(session),
            schema=session.schema.avro,
            exclusive=session.exclusive,
        )


def ring_layout(session: TableSession, partition: str) -> RingLayout:
    """Return the layout in force of a partition with consistent buckets."""
    layout = session.groups.layout(partition)
    if not isinstance(layout, RingLayout):
        raise InvalidRequestError(
            "this table cannot be resized",
            why=f"partition {partition!r} has no consistent buckets",
            next_step="Create a table with buckets=pyhudi.ConsistentBuckets()",
        )
    return layout
