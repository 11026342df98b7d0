"""The promises of the commit protocol, each as a question to what is left of a table.

A write is known by its version, which is the `write_id` in its commit's metadata. So the timeline
says which batches completed, the journals say what each of them wrote and what its writer was
told, and between the two nothing is left to opinion: also a batch whose writer was killed must be
there completely, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from processes.evidence import TIMELINE_FOLDER, Done, Evidence, Row
from processes.journal import Event, Write
from processes.workload import Kind, bucket_of, partition_of, payload_of
from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.write_ids import WRITE_ID_FOLDER
from pyhudi.conflict.rules import OtherWrite
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.files.partition_metadata import PARTITION_METADATA_FILE
from pyhudi.format.timeline.decision_entry import LOG_FOLDER, EntryKind
from pyhudi.index.simple_bucket import bucket_of_file
from pyhudi.session.open import PROBED
from pyhudi.session.simple_groups import BUCKETS_FOLDER
from pyhudi.simulate.table.overlap import first_overlap

Check = Callable[[Evidence], Iterator[str]]

_SHOWN = 3  # rows of a wrong snapshot

#: What may lie under `.hoodie` when nobody is at work, beside the timeline.
_KEPT = (
    ".hoodie/hoodie.properties",
    f"{LOG_FOLDER}/",
    f"{WRITE_ID_FOLDER}/",  # registrations outlast their writes by a week
    f"{CONFLICT_FOLDER}/",  # so do notes of conflicts
    f"{BUCKETS_FOLDER}/",
    PROBED,
)


def acknowledged_writes_are_visible(evidence: Evidence) -> Iterator[str]:
    """I2. With the very times that were told."""
    for version, write in evidence.history.writes.items():
        if write.outcome is not Event.OK:
            continue
        done = evidence.done.get(write.instant or "")
        if done is None:
            yield f"{version} was acknowledged as {write.instant}, which did not complete"
        elif (done.completed, done.write_id) != (write.completed, version):
            yield f"{version} was acknowledged at {write.completed}, and the timeline has {done}"


def refused_writes_are_not(evidence: Evidence) -> Iterator[str]:
    """I3. Nor does any write complete twice, or one that nobody asked for."""
    writes = evidence.history.writes
    completions = Counter(done.write_id for done in evidence.done.values() if done.has_rows)
    for version, count in completions.items():
        write = writes.get(version or "")
        if write is None:
            yield f"{version} completed, and nobody wrote it"
        elif write.outcome is Event.FAIL:
            yield f"{version} was refused, and completed"
        if count > 1:
            yield f"{version} completed {count} times"


def rows_are_the_fold(evidence: Evidence) -> Iterator[str]:
    """I1, I7. Now and at moments of the past, each row as it was written, and no other."""
    for time, rows in evidence.snapshots.items():
        want = _fold(evidence, time)
        have = {row["id"]: row for row in rows}
        if len(have) != len(rows):
            yield f"as of {time} a key occurs twice"
        wrong = sorted(key for key in {*want, *have} if want.get(key) != have.get(key))
        for key in wrong[:_SHOWN]:
            yield f"as of {time} {key} is {have.get(key)}, not {want.get(key)}"


def reads_saw_the_fold(evidence: Evidence) -> Iterator[str]:
    """I7. Also in the midst of it all."""
    for read in evidence.history.reads:
        want = {key: row["version"] for key, row in _fold(evidence, read.as_of).items()}
        if read.versions != want:
            differ = {k: (v, want.get(k)) for k, v in read.versions.items() if v != want.get(k)}
            lost = sorted(want.keys() - read.versions.keys())
            yield f"{read.writer} read as of {read.as_of}: {differ} differ, {lost} are missing"


def _fold(evidence: Evidence, until: str | None) -> Mapping[str, Row]:
    """The rows after all batches that had completed by then."""
    latest: dict[int, tuple[Any, Done, Write]] = {}
    for done in evidence.done.values():
        write = evidence.history.writes.get(done.write_id or "")
        if write is None or (until is not None and done.completed > until):
            continue
        for key in write.batch.times:
            rank = _rank(evidence.kind, done, write, key)
            if key not in latest or latest[key][0] < rank:
                latest[key] = (rank, done, write)
    return {
        f"k{key}": {
            "_hoodie_commit_time": done.requested,
            "id": f"k{key}",
            "day": partition_of(evidence.kind, key),
            "ts": write.batch.times[key],
            "version": write.batch.version,
            "payload": payload_of(write.batch.version, key),
        }
        for key, (_, done, write) in latest.items()
        if not write.batch.is_delete
    }


def _rank(kind: Kind, done: Done, write: Write, key: int) -> Any:
    """What decides which of two batches a key is as of.

    A delete that found no file in the key's bucket wrote none, so it conflicts with nobody. It
    then counts from the moment when it began: what completed before that is gone, and a write
    that overlapped with it stays.
    """
    if kind is Kind.NON_BLOCKING:
        return write.batch.times[key]
    place = (partition_of(kind, key), bucket_of(kind, key))
    touched = {(group.partition, bucket_of_file(group.file_id)) for group in done.groups}
    return done.completed if place in touched else done.requested


def times_increase(evidence: Evidence) -> Iterator[str]:
    """I4. In the decision log each new time is later, and on the timeline no two are equal."""
    timed = [entry for entry in evidence.entries if entry.time is not None]
    for one, other in pairwise(timed):
        if (one.time or "") >= (other.time or ""):
            yield f"entry {other.n} has the time {other.time}, after {one.time}"
    times = [instant.completed or "" for instant in evidence.completed]
    times += {instant.requested for instant in evidence.instants}
    for time, count in Counter(times).items():
        if count > 1:
            yield f"the time {time} was given out {count} times"


def order_is_that_of_real_time(evidence: Evidence) -> Iterator[str]:
    """Who calls after another was answered gets a later time."""
    told = [
        (write.answered_at, write.completed)
        for write in evidence.history.with_outcome(Event.OK)
        if write.answered_at is not None and write.completed is not None
    ]
    calls = sorted(
        (write.invoked_at, write.completed or "", write.batch.version)
        for write in evidence.history.with_outcome(Event.OK)
    )
    answers = iter(sorted(told))
    answer = next(answers, None)
    latest = ""
    for called_at, completed, version in calls:
        while answer is not None and answer[0] < called_at:
            latest = max(latest, answer[1])
            answer = next(answers, None)
        if completed <= latest:
            yield f"{version} completed at {completed}, though {latest} had been told before"


def log_and_timeline_agree(evidence: Evidence) -> Iterator[str]:
    """The log is one chain, each entry of it was carried out, and nothing else was done."""
    for one, other in pairwise(evidence.entries):
        if (other.n, other.prev) != (one.n + 1, one.id):
            yield f"entry {other.n} does not follow {one.n}"
    yield from (f"{path} is not what was decided" for path in evidence.differing)
    decided = {
        e.creates.name for e in evidence.entries if e.creates and e.kind is EntryKind.COMPLETE
    }
    there = {instant.file_name for instant in evidence.completed}
    yield from (f"{name} was decided, and is not there" for name in sorted(decided - there))
    yield from (f"{name} is there, and was not decided" for name in sorted(there - decided))


def rollbacks_are_exact(evidence: Evidence) -> Iterator[str]:
    """I12. One for each write that was begun and did not complete, and none for others."""
    targets = Counter(target for _, target in evidence.rolled_back)
    for target, count in targets.items():
        if count > 1:
            yield f"{target} was rolled back {count} times"
        if target in evidence.done:
            yield f"{target} completed, and was rolled back"
    begun = {entry.instant or "" for entry in evidence.entries if entry.kind is EntryKind.BEGIN}
    for requested in sorted(begun - evidence.done.keys() - targets.keys()):
        yield f"{requested} was begun, and neither completed nor rolled back"


def first_committer_wins(evidence: Evidence) -> Iterator[str]:
    """I5. Writes of one file group do not overlap in time, unless they are made to merge."""
    if evidence.kind is Kind.NON_BLOCKING:
        return
    writes = sorted(evidence.done.values(), key=lambda done: done.completed)
    for position, later in enumerate(writes):
        others = [
            OtherWrite(earlier.requested, earlier.completed, earlier.groups)
            for earlier in writes[:position]
            if earlier.completed > later.requested
        ]
        if overlap := first_overlap(later.groups, others):
            yield f"{overlap.other.requested} and {later.requested} both wrote {overlap.group}"


def nothing_is_left(evidence: Evidence) -> Iterator[str]:
    """I17. No instant is pending, and every file belongs to one that completed."""
    completed = {(instant.requested, instant.action) for instant in evidence.completed}
    for instant in evidence.instants:
        if (instant.requested, instant.action) not in completed:
            yield f"{instant.file_name} is pending"
    for path in sorted(evidence.paths):
        if path.startswith((*_KEPT, f"{TIMELINE_FOLDER}/")):
            continue
        name = path.rpartition("/")[2]
        parsed = None if path.startswith(".hoodie/") else parse_data_file(name)
        done = evidence.done.get(parsed.requested) if parsed else None
        if name != PARTITION_METADATA_FILE and (done is None or path not in done.paths):
            yield f"{path} is left"
    for done in evidence.done.values():
        for path in sorted(done.paths - evidence.paths):
            yield f"{path} of {done.requested} is missing"


def nobody_was_surprised(evidence: Evidence) -> Iterator[str]:
    """Writers meet conflicts and stores that do not answer, and no other errors."""
    yield from evidence.history.surprises


CHECKS: tuple[Check, ...] = (
    acknowledged_writes_are_visible,
    refused_writes_are_not,
    rows_are_the_fold,
    reads_saw_the_fold,
    times_increase,
    order_is_that_of_real_time,
    log_and_timeline_agree,
    rollbacks_are_exact,
    first_committer_wins,
    nothing_is_left,
    nobody_was_surprised,
)


def violations(evidence: Evidence) -> list[str]:
    """Every broken promise."""
    return [f"{check.__name__}: {what}" for check in CHECKS for what in check(evidence)]
