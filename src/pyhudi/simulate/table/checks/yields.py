"""Whether writes yielded to each other as RFC-56's strategies say, and to no other write.

To yield, and not to: what a write may do is computed here from the changes of the store, by the
order of begins, the markers, and the signs of life.

    a write yields     to one that is ahead of it: begun earlier, pending when it began, of no lower
                       priority, with a file announced where both would conflict
    two writes         never yield to each other, nor do more than two in a circle
    a dead write       is yielded to for no longer than its heartbeat counts
    an overlap         that was announced before a look began is found by that look

So a strategy whose tasks look misses what is announced between the look and its own marker. With a
claim nothing is missed there, since a rival has announced a file as soon as it has the claim. What
is looked for now and then is missed until the next look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise

from pyhudi.format.files.file_names import MarkerName
from pyhudi.format.table.table_config import TableType
from pyhudi.simulate.table.checks.evidence import Evidence
from pyhudi.simulate.table.history import Exchange, History, Look
from pyhudi.storage.objects.claims import CLAIM_FOLDER, Claim
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER
from pyhudi.storage.objects.store_clock import CLOCK_FOLDER

_Sign = tuple[int, int]  # the place of a change, and its true time


class Rivalry:
    """What the store shows of writes that announce files, and look for each other's."""

    def __init__(self, evidence: Evidence, history: History, timeout_ms: int) -> None:
        self._evidence = evidence
        self._history = history
        self._timeout_ms = timeout_ms
        # A begin that was voided is no begin.
        self._looks = [look for look in history.looks if look.requested in evidence.begun]

    # -- facts

    @cached_property
    def _exchanges(self) -> Mapping[str, Exchange]:
        return self._history.by_instant

    @cached_property
    def _signs(self) -> dict[str, list[_Sign]]:
        """Instant → the renewals of its heartbeat."""
        found: dict[str, list[_Sign]] = {}
        for change in self._evidence.created(HEARTBEAT_FOLDER):
            requested = change.path[len(HEARTBEAT_FOLDER) + 1 :]
            found.setdefault(requested, []).append((change.place, change.at_ms))
        return found

    @cached_property
    def _clock(self) -> dict[str, list[_Sign]]:
        """Process → when it asked for the store's time."""
        found: dict[str, list[_Sign]] = {}
        for change in self._evidence.created(CLOCK_FOLDER):
            found.setdefault(change.process, []).append((change.place, change.at_ms))
        return found

    @cached_property
    def _claims(self) -> list[tuple[int, str, Claim | None]]:
        """The claims in the order in which they were put or removed."""
        start = f"{CLAIM_FOLDER}/"
        return [
            (change.place, change.path, Claim.decode(change.data) if change.data else None)
            for change in self._evidence.changes
            if change.path.startswith(start)
        ]

    @cached_property
    def _stops(self) -> dict[str, int]:
        """Instant → when it began to look for what it stopped for; its claim goes then."""
        found: dict[str, int] = {}
        for look in self._looks:
            if look.stops:
                found.setdefault(look.requested, look.since)
        return found

    def _announced(self, rival: str, place: int, *, by_claims: bool) -> Iterator[MarkerName]:
        """Yield the files that an instant had announced before that change."""
        markers = self._evidence.markers.get(rival, ())
        yield from (marker for since, marker in markers if since < place)
        if by_claims:
            yield from self._claimed(rival, place)

    def _claimed(self, rival: str, place: int) -> Iterator[MarkerName]:
        """Yield the files that it had claimed; a claim counts until another write has taken it."""
        held: dict[str, Claim] = {}
        for since, path, claim in self._claims:
            if since < place and claim is not None:
                held[path] = claim
        yield from (claim.marker for claim in held.values() if claim.requested == rival)

    def _begun_at(self, look: Look) -> int:
        return self._evidence.begun[look.requested].change.place

    # -- is a write ahead?

    def _is_ahead(self, look: Look, rival: str) -> bool:
        """True if the rival began earlier, was pending when the write began, and has its rank."""
        evidence = self._evidence
        ended = evidence.decided.get(rival, len(evidence.changes))
        if rival >= look.requested or ended < self._begun_at(look):
            return False
        mine, other = (self._exchanges.get(each) for each in (look.requested, rival))
        if mine is None or other is None:
            return True  # another engine's have no priority
        return other.invoke.priority >= mine.invoke.priority

    def _conflicts(self, look: Look, marker: MarkerName) -> bool:
        """True if the rules would refuse the write once a rival with that file has completed."""
        group, touched = marker.file_group, look.bases | look.logs
        has_logs = self._evidence.kind.table_type is TableType.MERGE_ON_READ
        asked = self._exchanges[look.requested].invoke
        if not touched or (look.by_task and group.partition not in {g.partition for g in touched}):
            return False
        if (group in look.bases and has_logs) or group.partition in asked.replaces:
            return True
        if marker.is_of_base and any(row.cells is not None for row in asked.rows):
            return group in touched
        is_blind = asked.reads_nothing and has_logs
        return look.is_checked and not is_blind and group in touched

    # -- the promises

    def yields_are_deserved(self) -> Iterator[str]:
        """A write yields only to one that is ahead of it, and has announced a file in its way."""
        for look in self._looks:
            rival = look.yields_to
            if not rival:
                continue
            both = f"{look.requested} yielded to {rival} by {look.strategy}"
            if not self._is_ahead(look, rival):
                yield f"{both}, which is not ahead of it"
            by_claims = look.strategy == "transaction_direct"
            found = self._announced(rival, look.until, by_claims=by_claims)
            if not any(self._conflicts(look, marker) for marker in found):
                yield f"{both}, which had announced no file in its way"

    def no_two_yield_to_each_other(self) -> Iterator[str]:
        """Writes that yield to each other, in whatever circle, would both lose."""
        to: dict[str, set[str]] = {}
        for look in self._looks:
            if look.yields_to:
                to.setdefault(look.requested, set()).add(look.yields_to)
        for requested, exchange in self._exchanges.items():
            facts = {} if exchange.answer is None else exchange.answer.facts
            if facts.get("rule") == "priority":
                to.setdefault(requested, set()).add(facts["theirs"]["instant"])
        for requested in to:
            reached, new = set[str](), {requested}
            while new:
                new = {each for one in new for each in to.get(one, ())} - reached
                reached |= new
            if requested in reached:
                yield f"{requested} yielded to writes that yielded to it: {sorted(reached)}"

    def the_dead_stop_no_write(self) -> Iterator[str]:
        """A write is yielded to only while its last sign of life is young, by the store's clock.

        The clock is read first: what time passes behind that does not count.
        """
        for look in self._looks:
            rival = look.yields_to
            if not rival:
                continue
            began = self._begun_at(look)
            asked = [
                at_ms
                for place, at_ms in self._clock.get(look.process, ())
                if began < place < look.until
            ]
            if not asked:
                yield f"{look.requested} yielded to {rival}, and did not ask whether it is alive"
                continue
            signs = [at_ms for place, at_ms in self._signs.get(rival, ()) if place < look.until]
            silent_ms = asked[-1] - max(signs, default=0)
            if silent_ms > self._timeout_ms:
                yield f"{look.requested} yielded to {rival}, which was silent for {silent_ms} ms"

    def looks_miss_nothing(self, struck: frozenset[str]) -> Iterator[str]:
        """A look finds every overlap with a live write that was announced before it began.

        Unless it may have failed: processes that were `struck` by faults are not judged.
        """
        for look in self._looks:
            if look.stops or not struck.isdisjoint(_processes(look)):
                continue
            own = self._exchanges[look.requested].invoke.process
            by_claims = look.by_task and look.strategy == "transaction_direct"
            for rival, exchange in self._exchanges.items():
                process = exchange.invoke.process
                if process in struck or process == own:
                    continue
                if not self._is_ahead(look, rival) or not self._lives(rival, look):
                    continue
                found = self._announced(rival, look.since, by_claims=by_claims)
                if any(self._conflicts(look, marker) for marker in found):
                    yield f"{look.requested} missed {rival} by {look.strategy}"

    def _lives(self, rival: str, look: Look) -> bool:
        """True if the rival went on and was alive all the time until the look ended."""
        evidence = self._evidence
        begun = evidence.begun.get(rival)
        ended = min(evidence.decided.get(rival, look.until), self._stops.get(rival, look.until))
        if begun is None or ended < look.until:
            return False
        signs = [at_ms for place, at_ms in self._signs.get(rival, ()) if place < look.until]
        moments = [begun.change.at_ms, *signs, look.at_ms]
        gaps = (later - earlier for earlier, later in pairwise(moments))
        return bool(signs) and max(gaps) <= self._timeout_ms


def _processes(look: Look) -> tuple[str, str]:
    """Return the process that looked, and the writer that it works for."""
    return look.process, look.process.partition("-task")[0]
