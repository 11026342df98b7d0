"""Entries of the decision log: one small JSON object for each change of the timeline.

An entry says what changes and which timeline file follows from it, name and bytes. So any process
that reads the entry can apply it, and applying it twice makes the same file. `id` and `prev` chain
the entries: a number may be pruned and taken again by a process that slept, and then only the chain
shows which entry counts. `docs/protocol/README.md` is the protocol.

An entry may create more than the one file. What comes before that file is in `also`: the rings of a
resize, of which no process may see one before the resize is decided, and which have to be there
when it is visible. The file itself comes last, so it shows that the entry was applied.

**Versions.** A process of version 1 knows neither `close` nor `also`. It would pass over the rings,
and publish the resize without them. So an entry with either has version 2, which it refuses.

Entries lie in folders of 1,000: the first 17 of a number's 20 digits name the folder. A file
system lists whole folders, and this keeps the listed one small.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.paths import file_name, table_path
from pyhudi.format.table.ring_file import RING_BYTES_MAX, RING_ROOT, RingFileName, ring_folder
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State, is_instant_time

LOG_FOLDER: Final = ".hoodie/.pyhudi/log"
STAGED_FOLDER: Final = ".hoodie/.pyhudi/staged"
#: An empty object for each resize whose inputs are closed, named by its requested time.
CLOSED_FOLDER: Final = ".hoodie/.pyhudi/closed_resizes"
#: The version of entries with `close` or `also`, and of all others.
ENTRY_VERSION: Final = 2
PLAIN_VERSION: Final = 1
#: More bytes are staged in objects of their own, so that reading the log stays cheap.
INLINE_BYTES_MAX: Final = 32 << 10
ENTRY_BYTES_MAX: Final = 1 << 20
#: Objects that one entry creates beside its timeline file.
ALSO_MAX: Final = 1_000

_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
_NUMBER_DIGITS = 20
_FOLDER_DIGITS = 17


class EntryKind(StrEnum):
    BEGIN = "begin"
    COMPLETE = "complete"
    ABORT = "abort"
    CLOSE = "close"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Creation:
    """A file that an entry creates, with its bytes or where they are staged."""

    name: str  # of a timeline file; the path in the table of what lies elsewhere
    size: int
    sha256: str
    inline: bytes | None = None
    staged: str | None = None

    def is_of(self, data: bytes) -> bool:
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class Target:
    """The instant that an abort ends; `begin` is its entry's number, None if it is foreign."""

    instant: str
    action: Action
    begin: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the decision log."""

    n: int
    id: str
    prev: str | None
    kind: EntryKind
    time: str | None = None  # the one new time it brings; a void brings none
    instant: str | None = None  # the requested time it is about
    action: Action | None = None  # as the instant is called while pending
    begin: int | None = None  # complete: number of the instant's own begin or abort
    target: Target | None = None
    voids: int | None = None
    creates: Creation | None = None  # applies the entry
    also: tuple[Creation, ...] = ()  # complete of a resize: its rings, created before
    whole: bool = False  # complete: the entry also begins the instant
    schema: str | None = None  # complete of a write: fingerprint of the schema that it records
    guarded: bool = False  # whether it was appended under a lock that a foreign engine takes too
    writer: str = ""  # for people
    wall: str = ""  # for people

    @property
    def completed_write(self) -> Instant | None:
        """The write that the entry completes, as the timeline has it; None if it is no such entry.

        One that began as a table service is none.
        """
        if self.kind is not EntryKind.COMPLETE or self.action not in _WRITES:
            return None
        assert self.instant is not None
        assert self.time is not None
        times = InstantTime(self.instant), InstantTime(self.time)
        return Instant(times[0], self.action, State.COMPLETED, times[1])


def begun_files(entry: Entry) -> tuple[str, ...]:
    """Return the names of the empty files that a whole entry creates before the completed one."""
    if not entry.whole:
        return ()
    assert entry.instant is not None
    assert entry.action is not None
    requested = Instant(entry.instant, entry.action, State.REQUESTED)  # type: ignore[arg-type]
    return requested.file_name, requested.in_state(State.INFLIGHT).file_name


def closed_path(requested: str) -> str:
    """Return the object that shows that the inputs of this resize are closed."""
    return f"{CLOSED_FOLDER}/{requested}"


def effect_path(timeline_folder: str, entry: Entry) -> str:
    """Return the file that shows that the entry was applied."""
    assert entry.creates is not None
    name = entry.creates.name
    return name if entry.kind is EntryKind.CLOSE else f"{timeline_folder}/{name}"


def creation(name: str, data: bytes, staged: str | None = None) -> Creation:
    """Return the file to create. The bytes travel in the entry unless they were staged."""
    digest = hashlib.sha256(data).hexdigest()
    return Creation(name, len(data), digest, None if staged else data, staged)


def entry_path(n: int) -> str:
    """
    >>> entry_path(12345)
    '.hoodie/.pyhudi/log/00000000000000012/00000000000000012345.json'
    """
    digits = f"{n:0{_NUMBER_DIGITS}d}"
    return f"{LOG_FOLDER}/{digits[:_FOLDER_DIGITS]}/{digits}.json"


def parse_entry_path(path: str) -> int | None:
    """Return the number of the entry at the path; None if no entry lies there."""
    digits = file_name(path).removesuffix(".json")
    if len(digits) != _NUMBER_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if path == entry_path(number) else None


def staged_path(instant: str, entry_id: str) -> str:
    return f"{STAGED_FOLDER}/{instant}.{entry_id}"


def encode_entry(entry: Entry) -> bytes:
    record: dict[str, Any] = {
        "v": ENTRY_VERSION if _is_new(entry) else PLAIN_VERSION,
        "n": entry.n,
        "id": entry.id,
        "prev": entry.prev,
        "kind": entry.kind.value,
        "time": entry.time,
        "instant": entry.instant,
        "action": entry.action,
        "begin": entry.begin,
        "target": entry.target and _target_record(entry.target),
        "voids": entry.voids,
        "creates": entry.creates and _creation_record(entry.creates),
        "also": [_creation_record(made) for made in entry.also] or None,
        "whole": entry.whole or None,
        "schema": entry.schema,
        "guarded": entry.guarded or None,
        "writer": entry.writer,
        "wall": entry.wall,
    }
    always = ("v", "n", "id", "prev", "kind")
    kept = {key: value for key, value in record.items() if key in always or value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


def _is_new(entry: Entry) -> bool:
    return bool(entry.also) or entry.kind is EntryKind.CLOSE


def _target_record(target: Target) -> dict[str, Any]:
    return {"instant": target.instant, "action": target.action, "begin": target.begin}


def _creation_record(made: Creation) -> dict[str, Any]:
    bytes_or_place = (
        {"staged": made.staged}
        if made.inline is None
        else {"inline": base64.b64encode(made.inline).decode()}
    )
    return {"name": made.name, "size": made.size, "sha256": made.sha256, **bytes_or_place}


#: What decoding malformed bytes may raise.
_MALFORMED = (
    AttributeError,
    CorruptTableError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def decode_entry(data: bytes, path: str) -> Entry:
    """Return the entry in the bytes.

    CorruptTableError unless it is an entry, and the one that belongs at the path.
    UnsupportedTableError if a newer pyhudi wrote it.
    """
    try:
        if len(data) > ENTRY_BYTES_MAX:
            raise ValueError(f"it has more than {ENTRY_BYTES_MAX} bytes")
        record = json.loads(data)
        if not isinstance(record, dict) or not _is_version(record.get("v")):
            raise ValueError("it has no version of an entry")
        if record["v"] > ENTRY_VERSION:
            raise _too_new(record["v"], path)
        entry = _entry(record)
        if _is_new(entry) and record["v"] == PLAIN_VERSION:
            raise ValueError(f"an entry of version {PLAIN_VERSION} has no such kind or objects")
        if parse_entry_path(path) != entry.n:
            raise ValueError(f"it calls itself number {entry.n}")
    except _MALFORMED as error:
        raise CorruptTableError(
            "an entry of the decision log cannot be read",
            why=getattr(error, "what", "") or str(error) or type(error).__name__,
            next_step="Restore the object from a copy of the table",
            path=path,
        ) from None
    return entry


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= PLAIN_VERSION


def _too_new(version: int, path: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        "an entry of the decision log was written by a newer pyhudi",
        why=f"{path} has version {version}, and this pyhudi knows versions up to {ENTRY_VERSION}",
        next_step="Use a pyhudi that is as new as the one that writes the table",
    )


def _entry(record: dict[str, Any]) -> Entry:
    kind = EntryKind(record["kind"])
    entry = Entry(
        n=_number(record["n"]),
        id=_text(record["id"]),
        prev=_optional(record.get("prev"), _text),
        kind=kind,
        time=_optional(record.get("time"), _time),
        instant=_optional(record.get("instant"), _time),
        action=_optional(record.get("action"), Action),
        begin=_optional(record.get("begin"), _number),
        target=_optional(record.get("target"), _target),
        voids=_optional(record.get("voids"), _number),
        creates=_optional(record.get("creates"), _creation),
        also=_optional(record.get("also"), _creations) or (),
        whole=record.get("whole") is True,
        schema=_optional(record.get("schema"), _text),
        guarded=record.get("guarded") is True,
        writer=_text(record.get("writer", "")),
        wall=_text(record.get("wall", "")),
    )
    needed = _NEEDED[kind]
    missing = [name for name in needed if getattr(entry, name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing from a {kind}")
    _check_creation(entry)
    _check_also(entry)
    return entry


_NEEDED = {
    EntryKind.BEGIN: ("time", "instant", "action", "creates"),
    EntryKind.COMPLETE: ("time", "instant", "action", "creates"),
    EntryKind.ABORT: ("time", "instant", "action", "target", "creates"),
    EntryKind.CLOSE: ("time", "instant", "action", "creates"),
    EntryKind.VOID: ("voids",),
}


def _check_creation(entry: Entry) -> None:
    """Raise unless the created file's name follows from the entry.

    A forged entry must not make a writer create just any file.
    """
    if entry.kind is EntryKind.VOID:
        return
    assert entry.time is not None
    assert entry.instant is not None
    assert entry.action is not None
    assert entry.creates is not None
    if entry.kind is EntryKind.CLOSE:
        _check_close(entry, entry.creates)
        return
    named = Instant.parse(entry.creates.name)
    completes = entry.kind is EntryKind.COMPLETE
    expected = Instant(
        requested=entry.instant,  # type: ignore[arg-type]
        action=entry.action.completed_as if completes else entry.action,
        state=State.COMPLETED if completes else State.REQUESTED,
        completed=entry.time if completes else None,  # type: ignore[arg-type]
    )
    if named != expected:
        raise ValueError(f"a {entry.kind} of {entry.instant} does not create {named.file_name}")
    if not completes and entry.instant != entry.time:
        raise ValueError(f"a {entry.kind} brings the time of another instant")
    if entry.whole and not (completes and entry.instant < entry.time and entry.begin is None):
        raise ValueError(f"a {entry.kind} of {entry.instant} cannot begin it")


def _check_close(entry: Entry, made: Creation) -> None:
    assert entry.instant is not None
    if made.name != closed_path(entry.instant) or made.size:
        raise ValueError(f"a close of {entry.instant} does not create {made.name}")
    if entry.action is not Action.CLUSTERING or entry.whole or entry.instant == entry.time:
        raise ValueError(f"{entry.instant} cannot be closed")


def _check_also(entry: Entry) -> None:
    """Raise unless these are rings that the completion of a resize brings, each once."""
    if not entry.also:
        return
    is_resize = entry.kind is EntryKind.COMPLETE and entry.action is Action.CLUSTERING
    if not is_resize or entry.whole:
        raise ValueError(f"a {entry.kind} creates no other objects")
    if len({made.name for made in entry.also}) < len(entry.also):
        raise ValueError("it creates an object twice")
    for made in entry.also:
        if ring_partition(made.name, entry.instant) is None:
            raise ValueError(f"the completion of {entry.instant} does not create {made.name}")
        if made.size > RING_BYTES_MAX:
            raise ValueError(f"{made.name} has {made.size} bytes, more than {RING_BYTES_MAX}")


def ring_partition(path: str, requested: str | None) -> str | None:
    """Return the partition whose ring of that resize lies at the path; None for another path."""
    folder, _, name = table_path(path).rpartition("/")
    ring = RingFileName.parse(name)
    partition = folder[len(RING_ROOT) + 1 :]
    is_ring = ring is not None and not ring.is_commit_mark and ring.instant == requested
    return partition if is_ring and folder == ring_folder(partition) else None


def _optional(value: Any, parse: Any) -> Any:
    return None if value is None else parse(value)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is not a number of an entry")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _time(value: Any) -> str:
    if not is_instant_time(_text(value)):
        raise ValueError(f"{value!r} is not an instant time")
    return str(value)


def _target(value: dict[str, Any]) -> Target:
    begin = _optional(value.get("begin"), _number)
    return Target(_time(value["instant"]), Action(value["action"]), begin)


def _creations(value: Any) -> tuple[Creation, ...]:
    if not isinstance(value, list) or len(value) > ALSO_MAX:
        raise ValueError(f"it does not list up to {ALSO_MAX} objects")
    return tuple(map(_creation, value))


def _creation(value: dict[str, Any]) -> Creation:
    inline, staged = value.get("inline"), value.get("staged")
    if (inline is None) == (staged is None):
        raise ValueError("the bytes to create are neither inline nor staged, or both")
    size = value["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{size!r} is not a size")
    if staged is not None and not _text(staged).startswith(f"{STAGED_FOLDER}/"):
        raise ValueError(f"{staged!r} is not a place for staged bytes")
    data = None if inline is None else base64.b64decode(_text(inline), validate=True)
    made = Creation(_text(value["name"]), size, _text(value["sha256"]), data, staged)
    if data is not None and not made.is_of(data):
        raise ValueError("the inline bytes are not those it names")
    return made
