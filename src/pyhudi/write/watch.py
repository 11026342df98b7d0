"""A running write looks now and then whether it is doomed, for then it need not be finished.

Each look is one request for the end of the decision log, and reads the commits of others that are
new. The check at the write's end would read them, too. That check stays: a look finds only what is
certain (`conflict.doomed`), and a write may complete between two looks.

**A blind write of logs is not watched.** Its conflicts are settled by committing the same files
again, or from its own files. Only base files of it can be lost. The same holds of any write whose
rows can be read from its own files again.

**With a strategy of early detection** a look may also ask whether the write yields to one that is
ahead of it and has announced a file (`write.early`).

A writer in this process looks between files, in its own thread. Where tasks run elsewhere, a thread
of the driver looks. It has an access to the log of its own, and knows from the write's markers
which files there are. It also looks at the fence, which a task raises that refuses its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.commit.transaction import Lost, Transaction
from pyhudi.conflict.announced import Met
from pyhudi.conflict.doomed import certain_conflict
from pyhudi.conflict.file_groups import Footprint, footprint
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import (
    BaseFileName,
    FileGroupId,
    group_of_path,
    parse_data_file,
)
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    stats_by_partition,
)
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.markers import direct_markers, load_markers, marker_stats
from pyhudi.storage.objects.write_fence import is_raised
from pyhudi.storage.protocol import Storage
from pyhudi.write.complete import rules
from pyhudi.write.early.check import EarlyCheck
from pyhudi.write.early.start import watching
from pyhudi.write.intent import WriteIntent


class Watch:
    """The looks of one attempt of a write."""

    def __init__(
        self,
        session: TableSession,
        transaction: Transaction,
        intent: WriteIntent,
        early: EarlyCheck | None = None,
        *,
        can_rebase: bool,
    ) -> None:
        """`can_rebase`: its rows can be read from its own files, so no conflict costs it much.

        `early` is how it looks for rivals that have announced files, if it does.
        """
        self._session = session
        self._transaction = transaction
        self._intent = intent
        self._settings = settings = session.settings.early_detection
        self._is_on = settings.check_commits and not can_rebase
        self._early = watching(early, session)
        self._is_blind = intent.reads_nothing and session.is_mor
        first = settings.initial_delay_ms + settings.period_ms
        self._next_ms = session.world.elapsed_ms() + first

    # -- in the writer's own thread

    def look(self, stats: Sequence[WriteStat], coming: Collection[FileGroupId]) -> Lost | None:
        """Return how the write is lost, if it is doomed or yields, and it is time to look.

        `coming` are file groups in which it is certain to have files.
        """
        if not (self._is_on or self._early is not None) or not self._is_time():
            return None
        made = footprint(CommitMetadata(stats_by_partition(stats)))
        made = replace(made, groups=made.groups.union(coming))
        others = self._transaction.others
        found = self._found(self._session.log, others, made)
        if isinstance(found, Met):
            return self.yielded(found, stats)
        return None if found is None else self._lost(found, made, stats, others)

    def yielded(self, met: Met, stats: Sequence[WriteStat]) -> Lost:
        """Return how the write is lost that yields to a rival."""
        made = footprint(CommitMetadata(stats_by_partition(stats)))
        made = replace(made, groups=made.groups | {met.group})
        refused = Refused(Rule.CONFLICT, met.rival, met.rule.value, reason=met.conflict)
        checks = rules(self._session, self._intent, made.partitions)
        own = self._transaction.own_write(made, checks)
        return self._transaction.lost_early(
            refused, own, checks, stats, self._transaction.others, met
        )

    def _is_time(self) -> bool:
        now = self._session.world.elapsed_ms()
        if now < self._next_ms:
            return False
        self._next_ms = now + self._settings.period_ms
        return True

    def _lost(
        self,
        refused: Refused,
        made: Footprint,
        stats: Sequence[WriteStat],
        others: ConcurrentWrites,
    ) -> Lost:
        checks = rules(self._session, self._intent, made.partitions)
        own = self._transaction.own_write(made, checks)
        return self._transaction.lost_early(refused, own, checks, stats, others)

    # -- while tasks run elsewhere

    @contextmanager
    def beside(
        self,
        stop_tasks: Callable[[Met | None], None],
        served: Callable[[], Footprint] | None = None,
    ) -> Iterator[Callable[[], Lost | None]]:
        """Look in another thread while the block runs, and stop the tasks if they work in vain.

        The tasks are stopped with the conflict, if the write yields. `served` tells where
        tasks have announced files to a service. What it yields returns how the write is lost, if
        that was found.
        """
        log = self._session.log.read_only()
        others, storage = self._transaction.others.seen_from(log), self._session.storage
        looks = self._is_on or self._early is not None
        found: list[tuple[Refused | Met | HudiError, Footprint]] = []

        def look() -> None:
            if found or not self._is_time():
                return
            made = _announced(storage, self._transaction.requested, served) if looks else None
            if made is not None:
                try:
                    if (met := self._found(log, others, made)) is not None:
                        found.append((met, made))
                except HudiError as error:  # of the user's strategy
                    found.append((error, made))
            if found or _is_fenced(storage, self._transaction.requested):
                why = found[0][0] if found else None
                stop_tasks(why if isinstance(why, Met) else None)

        def lost() -> Lost | None:
            if not found:
                return None
            met, made = found[0]
            if isinstance(met, HudiError):
                raise met
            if isinstance(met, Met):
                return self.yielded(met, ())
            return self._lost(met, made, (), others)

        stop = self._session.world.every(self._settings.period_ms, look)
        try:
            yield lost
        finally:
            stop()

    # -- the questions

    def _found(
        self, log: DecisionLog, others: ConcurrentWrites, made: Footprint
    ) -> Refused | Met | None:
        """Return why the write stops; None if it goes on."""
        refused = self._refusal(log, others, made) if self._is_on else None
        if refused is not None or self._early is None:
            return refused
        return self._early.met(self._session.storage, made)

    def _refusal(
        self, log: DecisionLog, others: ConcurrentWrites, made: Footprint
    ) -> Refused | None:
        """Return why the completion would be refused; None if that is not certain."""
        requested = self._transaction.requested
        try:
            live = log.peek()
            if (rollback := live.rolled_back_by.get(requested)) is not None:
                return Refused(Rule.ROLLED_BACK, rollback)
            if self._is_blind:
                made = Footprint(made.bases, made.bases)
            if not made.groups and self._intent.replaces is None:
                return None
            checks = rules(self._session, self._intent, made.partitions)
            own = self._transaction.own_write(made, checks)
            completed, resizes = others.completed(own, live), others.resizes(own, live)
            conflict = certain_conflict(own, completed, resizes, checks.strategy)
        except HudiError:
            return None  # the next look, or the check at the end, finds it
        if conflict is None:
            return None
        return Refused(
            Rule.CONFLICT, conflict.other.requested, conflict.rule.value, reason=conflict
        )


def _announced(
    storage: Storage, requested: str, served: Callable[[], Footprint] | None
) -> Footprint | None:
    """Return where the write has files by its markers; None if those cannot be read now."""
    try:
        if served is None:
            markers = load_markers(storage, requested)
        else:  # tasks that do not reach it store theirs themselves
            markers = direct_markers(marker_stats(storage, requested), requested)
        files = [marker.data_file for marker in markers]
    except HudiError:
        return None
    bases = (path for path in files if isinstance(parse_data_file(file_name(path)), BaseFileName))
    made = Footprint(_groups(files), _groups(bases))
    if served is None:
        return made
    known = served()
    return Footprint(known.groups | made.groups, known.bases | made.bases)


def _groups(paths: Iterable[str]) -> frozenset[FileGroupId]:
    return frozenset(filter(None, map(group_of_path, paths)))


def _is_fenced(storage: Storage, requested: str) -> bool:
    try:
        return is_raised(storage, requested)
    except HudiError:
        return False
