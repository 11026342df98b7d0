"""Planted bugs in how a running write yields to rivals that have announced files.

As in `commit`, each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.conflict.announced import Met, announced_conflict
from pyhudi.conflict.file_groups import Footprint
from pyhudi.conflict.rules import Conflict, OtherWrite, OwnWrite, WriteKind
from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.paths import file_name
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER
from pyhudi.storage.objects.claims import claim_path
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.marker_filters import filter_folder
from pyhudi.storage.objects.rival_markers import AnnouncedFile, RivalMarkers
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.early import check
from pyhudi.write.early.announcing import LookingMarkers
from pyhudi.write.early.check import EarlyCheck
from pyhudi.write.early.rivals import Rival

_Bug = Callable[[], AbstractContextManager[Any]]


def _instants_not_compared() -> AbstractContextManager[Any]:
    """Whoever is pending now is a rival, later writes as well, so two may yield to each other."""
    met = EarlyCheck.met

    def weak(
        self: EarlyCheck, storage: Storage, made: Footprint, partition: str | None = None
    ) -> Met | None:
        return met(replace(self, rivals=tuple(_pending(self, storage))), storage, made, partition)

    def any_order(own: OwnWrite, rival: OtherWrite, strategy: Strategy) -> Conflict | None:
        return announced_conflict(replace(own, requested="9" * 17), rival, strategy)

    return _all(
        patch.object(EarlyCheck, "met", weak), patch.object(check, "announced_conflict", any_order)
    )


def _pending(self: EarlyCheck, storage: Storage) -> Iterator[Rival]:
    for stat in storage.list_folder(TIMELINE_FOLDER).objects:
        instant = Instant.parse(file_name(stat.path))
        is_write = instant.state is State.INFLIGHT and instant.action in WRITE_ACTIONS
        if is_write and instant.requested != self.stance.requested:
            yield Rival(instant.requested, WriteKind.WRITE, stat.path)


def _rank_ignored() -> AbstractContextManager[Any]:
    """A write yields to one of lower priority, which will yield to it at its end."""

    def weak(own: OwnWrite, rival: OtherWrite, strategy: Strategy) -> Conflict | None:
        return announced_conflict(own, replace(rival, priority=own.priority), strategy)

    return patch.object(check, "announced_conflict", weak)


def _silence_not_measured() -> AbstractContextManager[Any]:
    """A heartbeat of any age counts, so that a dead write stops others until it is rolled back."""

    def weak(self: EarlyCheck, clock: StoreClock, rival: Rival) -> bool:
        clock.read_ms()
        return clock.storage.stat(heartbeat_path(rival.requested)) is not None

    return patch.object(EarlyCheck, "_stands", weak)


def _liveness_not_asked() -> AbstractContextManager[Any]:
    """The marker of a dead write stops others until it is removed."""
    return patch.object(EarlyCheck, "_stands", lambda self, clock, rival: True)


def _claim_released_early() -> AbstractContextManager[Any]:
    """Hudi's lock is released before the marker is created, and so is the claim."""
    claimed = LookingMarkers._claimed

    def weak(
        self: LookingMarkers, storage: Storage, made: Footprint, marker: MarkerName
    ) -> Met | None:
        met = claimed(self, storage, made, marker)
        if met is None:
            storage.delete(claim_path(self.check.stance.place(marker.file_group)))
        return met

    return patch.object(LookingMarkers, "_claimed", weak)


def _filters_believed() -> AbstractContextManager[Any]:
    """What a filter may have counts as announced, and no marker is looked for."""
    load = EarlyCheck._announced

    def weak(
        self: EarlyCheck, storage: Storage, rival: Rival, own: OwnWrite, partition: str | None
    ) -> list[AnnouncedFile]:
        has_filters = any(storage.list(filter_folder(rival.requested)))
        if not (self.looks.filters_first and has_filters):
            return load(self, storage, rival, own, partition)
        groups = {self.stance.place(group): group for group in own.touched}
        instant, deny = rival.requested, self.seen.filters.deny
        return [
            AnnouncedFile("", group, place, is_base=False, since_ms=0)
            for place, group in groups.items()
            if not deny(storage, instant, {place})
        ]

    return patch.object(EarlyCheck, "_announced", weak)


def _listed_once() -> AbstractContextManager[Any]:
    """What a rival announces after the first look at it is not found by the next ones."""

    def remembered(name: str) -> AbstractContextManager[Any]:
        load = getattr(RivalMarkers, name)

        def weak(self: RivalMarkers, storage: Storage, *arguments: str) -> Iterable[AnnouncedFile]:
            known: dict[Any, list[AnnouncedFile]] = self.__dict__.setdefault("known", {})
            if arguments not in known:
                known[arguments] = list(load(self, storage, *arguments))
            return known[arguments]

        return patch.object(RivalMarkers, name, weak)

    return _all(remembered("everywhere"), remembered("in_partition"))


@contextmanager
def _all(*replacements: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replacement)
        yield


#: The bugs, by name.
YIELD_BUGS: dict[str, _Bug] = {
    "instants not compared": _instants_not_compared,
    "rank ignored": _rank_ignored,
    "silence not measured": _silence_not_measured,
    "liveness not asked": _liveness_not_asked,
    "claim released early": _claim_released_early,
    "filters believed": _filters_believed,
    "listed once": _listed_once,
}
