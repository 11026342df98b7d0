"""Entries of the decision log: one small JSON object for each change of the timeline.

An entry says what changes and which timeline file follows from it, name and bytes. So any process
that reads the entry can apply it, and applying it twice makes the same file. `id` and `prev` chain
the entries: a number may be pruned and taken again by a process that slept, and then only the chain
shows which entry counts. `docs/protocol/README.md` is the protocol.

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

from pyhudi.errors import CorruptTableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action, Instant, State, is_instant_time

LOG_FOLDER: Final = ".hoodie/.pyhudi/log"
STAGED_FOLDER: Final = ".hoodie/.pyhudi/staged"
ENTRY_VERSION: Final = 1
#: Longer bytes are staged in an object of their own, so that reading the log stays cheap.
INLINE_BYTES_MAX: Final = 32 << 10
ENTRY_BYTES_MAX: Final = 1 << 20

_NUMBER_DIGITS = 20
_FOLDER_DIGITS = 17


class EntryKind(StrEnum):
    BEGIN = "begin"
    COMPLETE = "complete"
    ABORT = "abort"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Creation:
    """The timeline file that applies an entry, with its bytes or where they are staged."""

    name: str
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
    creates: Creation | None = None
    whole: bool = False  # complete: the entry also begins the instant
    schema: str | None = None  # complete of a write: fingerprint of the schema that it records
    guarded: bool = False  # whether it was appended under a lock that a foreign engine takes too
    writer: str = ""  # for people
    wall: str = ""  # for people


def begun_files(entry: Entry) -> tuple[str, ...]:
    """Return the names of the empty files that a whole entry creates before the completed one."""
    if not entry.whole:
        return ()
    assert entry.instant is not None
    assert entry.action is not None
    requested = Instant(entry.instant, entry.action, State.REQUESTED)  # type: ignore[arg-type]
    return requested.file_name, requested.in_state(State.INFLIGHT).file_name


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
        "v": ENTRY_VERSION,
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
        "whole": entry.whole or None,
        "schema": entry.schema,
        "guarded": entry.guarded or None,
        "writer": entry.writer,
        "wall": entry.wall,
    }
    always = ("v", "n", "id", "prev", "kind")
    kept = {key: value for key, value in record.items() if key in always or value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


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
    """
    try:
        if len(data) > ENTRY_BYTES_MAX:
            raise ValueError(f"it has more than {ENTRY_BYTES_MAX} bytes")
        record = json.loads(data)
        if not isinstance(record, dict) or record.get("v") != ENTRY_VERSION:
            raise ValueError("it is not an entry of version 1")
        entry = _entry(record)
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
    return entry


_NEEDED = {
    EntryKind.BEGIN: ("time", "instant", "action", "creates"),
    EntryKind.COMPLETE: ("time", "instant", "action", "creates"),
    EntryKind.ABORT: ("time", "instant", "action", "target", "creates"),
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
