"""Announced markers, from a request to storage: what waits, what is being stored, what is stored.

It lives on the event loop of the marker service. Only storage is called elsewhere, in the loop's
executor. A verdict is given after the markers are in storage, and says whether the write was still
open then. That order matters: who closes the write and then reads its markers finds the markers of
every file that a task was allowed to create (`storage.objects.write_fence`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import count

from pyhudi.conflict.file_groups import Footprint
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId, MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.marker_requests import CLOSED, STORED, MarkerVerdict, Refused
from pyhudi.plan.marker_batches import LIST_BYTES, OpenList, Wait, next_batch
from pyhudi.settings import MarkerService
from pyhudi.storage.objects.write_fence import may_create_file
from pyhudi.storage.protocol import Storage
from pyhudi.write.markers.lists import MarkerList, create_marker_type, with_markers

#: A task that refuses its rows raises the write's fence. The service looks for it as often.
LOOK_MS = 1_000
#: Lists that are tried for one batch.
_TRIES = 3

NOT_STORED = Refused(503, "the storage did not take the markers")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Markers that wait to be stored, and what their request waits for."""

    markers: Sequence[MarkerName]
    is_stored: asyncio.Future[bool]
    since_ms: int


class MarkerBatches:
    """The markers of one write, which requests announce."""

    def __init__(
        self,
        storage: Storage,
        requested: InstantTime,
        elapsed_ms: Callable[[], int],
        settings: MarkerService,
    ) -> None:
        self._storage = storage
        self._requested = requested
        self._elapsed_ms = elapsed_ms
        self._settings = settings
        self._verdict = STORED
        self._stored: dict[MarkerName, bool] = {}  # False: not yet
        self._groups: set[FileGroupId] = set()
        self._bases: set[FileGroupId] = set()
        self._waiting: list[_Waiting] = []
        self._lists: dict[int, MarkerList] = {}  # that take markers
        self._busy: set[int] = set()  # of those
        self._numbers = count()
        self._has_type = False
        self._begun_ms: int | None = None
        self._looked_ms = elapsed_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    # -- from any thread

    def announced(self) -> Footprint:
        """Return where files have been announced, whether or not their markers are stored yet."""
        return Footprint(frozenset(self._groups), frozenset(self._bases))

    def stop(self, verdict: MarkerVerdict) -> None:
        """Give this verdict from now on. The first one stays."""
        if self._verdict is STORED:
            self._verdict = verdict

    # -- on the loop

    async def announce(self, markers: Sequence[MarkerName]) -> MarkerVerdict | Refused:
        """Store the markers; return the verdict as of then."""
        new = [marker for marker in markers if not self._stored.get(marker)]
        if new and self._verdict is STORED:
            self._note(new)
            is_stored = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(new, is_stored, self._elapsed_ms()))
            self._go_on()
            if not await is_stored:
                return NOT_STORED
        return self._verdict

    def _note(self, markers: Sequence[MarkerName]) -> None:
        """Keep what is announced now, so that a look need not go through all of it."""
        for marker in markers:
            self._stored[marker] = False
            self._groups.add(group := marker.file_group)
            if marker.is_of_base:
                self._bases.add(group)

    async def end(self) -> None:
        """Wait for what is being stored. What waits is not stored any more."""
        if self._timer is not None:
            self._timer.cancel()
        given_back, self._waiting = self._waiting, []
        for each in given_back:
            each.is_stored.set_result(True)  # they get the verdict, which is to stop
        if self._running:
            await asyncio.wait(self._running)

    def _go_on(self) -> None:
        """Begin a batch if it is time, else set a timer."""
        if not self._waiting or self._timer is not None:
            return
        now = self._elapsed_ms()
        waited_ms = now - self._waiting[0].since_ms
        since_last_ms = None if self._begun_ms is None else now - self._begun_ms
        lists = [OpenList(number, number in self._busy) for number in self._lists]
        decided = next_batch(lists, waited_ms, since_last_ms, self._settings)
        if isinstance(decided, Wait):
            if decided.ms is not None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(decided.ms / 1000, self._time_is_over)
            return
        self._begun_ms = now
        batch, self._waiting = self._waiting, []
        self._begin(self._store(decided.number, batch))
        if now - self._looked_ms >= LOOK_MS:
            self._looked_ms = now
            self._begin(self._look())

    def _time_is_over(self) -> None:
        self._timer = None
        self._go_on()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _store(self, number: int | None, batch: Sequence[_Waiting]) -> None:
        """Store a batch in this list, or in another one if this one cannot be continued."""
        markers = [*dict.fromkeys(marker for each in batch for marker in each.markers)]
        is_stored = False
        try:
            for _ in range(_TRIES):
                if is_stored := await self._is_stored(number, markers):
                    break
                number = None
            self._stored.update(dict.fromkeys(markers, is_stored))
        except HudiError:
            pass  # each task stores its markers itself, and reports why it cannot
        finally:
            for each in batch:
                if not each.is_stored.done():  # its client may have left
                    each.is_stored.set_result(is_stored)
            self._go_on()

    async def _is_stored(self, number: int | None, markers: Sequence[MarkerName]) -> bool:
        if number is None:
            number = next(self._numbers)
            self._lists[number] = MarkerList(number)
        known, storage, requested = self._lists[number], self._storage, self._requested
        call = asyncio.get_running_loop().run_in_executor
        self._busy.add(number)
        stored = None
        try:
            if not self._has_type:
                await call(None, create_marker_type, storage, requested)
                self._has_type = True
            stored = await call(None, with_markers, storage, requested, known, markers)
        finally:
            self._busy.remove(number)
            if stored is None or len(stored.data) >= LIST_BYTES:
                del self._lists[number]
            else:
                self._lists[number] = stored
        return stored is not None

    async def _look(self) -> None:
        """Look whether the write is over, as a task would that stores its markers itself."""
        loop = asyncio.get_running_loop()
        try:
            is_open = await loop.run_in_executor(
                None, may_create_file, self._storage, self._requested
            )
        except HudiError:
            return  # the next look may succeed
        if not is_open:
            self.stop(CLOSED)
