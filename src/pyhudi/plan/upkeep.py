"""The maintenance policy of a table, and how the table records it.

All processes of a table should follow one policy: of two that clean, the one that retains less
decides. So the policy is a property of the table, in `hoodie.properties`, which every process reads
when it opens the table. The key is ours, and Hudi keeps keys that it does not know.

The value is JSON with every setting of every service, defaults included: a later release may have
other defaults, and must still do what the table records. A service that is not named is left to
other processes. `none` records that the table has no policy.

A later release may record services and settings that this one does not know. A service of which a
setting is unknown, or has an unknown value, is left to a process of that release, because without
the setting it might do too much. The others run. A change of the policy keeps what it does not
know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanBy, CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.policy_checks import require_whole
from pyhudi.plan.resizing.policy import ResizePolicy

UPKEEP: Final = "pyhudi.upkeep"
#: The value of a table without a policy.
NO_UPKEEP: Final = "none"
#: What a compaction or a resize that follows a commit reads at most: some seconds of work.
INLINE_BYTES: Final = 64 << 20
#: Of the recorded text. A list of partitions is the only part that can be long.
UPKEEP_CHARACTERS_MAX: Final = 65_536

COMPACTION, RESIZE, CLEAN, ARCHIVE = "compaction", "resize", "clean", "archive"
#: The services of a policy in the order in which they run, and the types of their policies.
SERVICES: Final[Mapping[str, type[Any]]] = {
    COMPACTION: CompactionPolicy,
    RESIZE: ResizePolicy,
    CLEAN: CleanPolicy,
    ARCHIVE: ArchivePolicy,
}
_INLINE: Final = "inline_bytes"


def require_policy(name: str, value: object, kind: type) -> None:
    """Raise InvalidRequestError if the value is neither a policy of that kind nor None."""
    if value is not None and not isinstance(value, kind):
        raise InvalidRequestError(
            f"{name}={value!r:.100} cannot be used",
            why=f"it is neither None nor of the type {kind.__name__}",
            next_step=f"Give a pyhudi.{kind.__name__}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The policies of a table's services; None leaves a service to another process.

    `resize` is for tables with consistent buckets, and without effect on others. `inline_bytes` is
    how much a compaction or a resize that follows a commit reads at most. What is larger is left to
    `services.run` and to service processes.
    """

    compaction: CompactionPolicy | None = field(default_factory=CompactionPolicy)
    resize: ResizePolicy | None = field(default_factory=ResizePolicy)
    clean: CleanPolicy | None = field(default_factory=CleanPolicy.hours)
    archive: ArchivePolicy | None = field(default_factory=ArchivePolicy)
    inline_bytes: int = INLINE_BYTES

    def __post_init__(self) -> None:
        for name, kind in SERVICES.items():
            require_policy(name, getattr(self, name), kind)
        advice = "Give the bytes that a compaction or a resize after a commit may read"
        require_whole(_INLINE, self.inline_bytes, 0, advice)


@dataclass(frozen=True, slots=True)
class RecordedUpkeep:
    """What a table records of its maintenance."""

    policy: Upkeep | None = None  # None if there is none
    #: Services that only a later release can run, each with the reason.
    unknown: tuple[tuple[str, str], ...] = ()


def differing_services(named: Upkeep, recorded: Upkeep) -> tuple[str, ...]:
    """Return the services for which a process names another policy than the table records.

    To leave a service to another process is no other policy.
    """
    pairs = ((name, getattr(named, name), getattr(recorded, name)) for name in SERVICES)
    return tuple(name for name, ours, theirs in pairs if ours and theirs and ours != theirs)


def policy_words(policy: object) -> str:
    """Return the settings of a service's policy that are not the usual ones, for people.

    >>> policy_words(CompactionPolicy(trigger_delta_commits=2)), policy_words(ArchivePolicy())
    ('trigger_delta_commits=2', 'the usual settings')
    >>> policy_words(CleanPolicy.hours(24))
    'retains the last 24 hours'
    """
    if isinstance(policy, CleanPolicy):
        return f"retains {policy}"
    assert isinstance(policy, CompactionPolicy | ResizePolicy | ArchivePolicy)
    own = ((each.name, getattr(policy, each.name), each.default) for each in fields(policy))
    other = [f"{name}={value}" for name, value, usual in own if value != usual]
    return ", ".join(other) or "the usual settings"


# ---- as it is recorded


def recorded_upkeep(config: TableConfig) -> RecordedUpkeep:
    """Return the policy that a table records; CorruptTableError if the record is damaged."""
    text = config.properties.text(UPKEEP)
    return RecordedUpkeep() if text is None else decode_upkeep(text)


def first_upkeep(choice: Upkeep | bool | None, lock: LockKind) -> str:
    """Return what a new table records: the policy that its creator chose, or the usual one.

    Beside another engine that is none, because that engine runs services of its own.
    """
    if isinstance(choice, Upkeep):
        return encode_upkeep(choice)
    is_off = choice is False or lock.is_shared
    return encode_upkeep(None if is_off else Upkeep())


def encode_upkeep(upkeep: Upkeep | None, before: str | None = None) -> str:
    """Return the text to record; services that only a later release knows stay as in `before`.

    >>> encode_upkeep(Upkeep(compaction=None, resize=None, archive=None))
    '{"clean":{"by":"KEEP_LATEST_BY_HOURS","keep":24},"inline_bytes":67108864}'
    """
    if upkeep is None:
        return NO_UPKEEP
    if upkeep.resize is not None and not isinstance(upkeep.resize.split, str):
        raise InvalidRequestError(
            "this policy cannot be recorded in the table",
            why="its split policy is code of this program, which other processes do not have",
            next_step='Record split="middle" or "even", and resize by your own with'
            " table.services.resize(...)",
        )
    text = _text(upkeep, _later_parts(before))
    if len(text) > UPKEEP_CHARACTERS_MAX:
        raise InvalidRequestError(
            "this policy cannot be recorded in the table",
            why=f"its text has {len(text):,} characters, and at most {UPKEEP_CHARACTERS_MAX:,} fit",
            next_step="Name fewer partitions, or record another policy and let a service process"
            " run with this one",
        )
    return text


def _text(upkeep: Upkeep, others: Mapping[str, Any]) -> str:
    known = {name: getattr(upkeep, name) for name in SERVICES}
    values: dict[str, Any] = {
        name: {each.name: getattr(policy, each.name) for each in fields(policy)}
        for name, policy in known.items()
        if policy is not None
    }
    whole = {**values, _INLINE: upkeep.inline_bytes, **others}
    # A split policy of a program's own counts by its type: it is never recorded, only told apart.
    return json.dumps(whole, separators=(",", ":"), default=lambda own: type(own).__qualname__)


def upkeep_mark(upkeep: Upkeep) -> str:
    """Return a short text that tells this policy from others."""
    return hashlib.sha256(_text(upkeep, {}).encode()).hexdigest()[:32]


def with_upkeep(policy: Upkeep | None, values: dict[str, str]) -> dict[str, str]:
    """Return the properties of a table, with this policy in place of the one they record."""
    return {**values, UPKEEP: encode_upkeep(policy, values.get(UPKEEP))}


def _later_parts(before: str | None) -> dict[str, Any]:
    """Return the parts of the text whose names this release does not know."""
    values = _parsed(before or "")
    return {n: v for n, v in (values or {}).items() if n not in SERVICES and n != _INLINE}


def decode_upkeep(text: str) -> RecordedUpkeep:
    """Return the policy of the text; CorruptTableError if it is not what `encode_upkeep` makes."""
    if text.strip() == NO_UPKEEP:
        return RecordedUpkeep()
    values = _parsed(text)
    if values is None:
        raise CorruptTableError(
            "the maintenance policy of the table cannot be read",
            why=f"{UPKEEP} in hoodie.properties is {text[:80]!r}, and not a JSON object of at most"
            f" {UPKEEP_CHARACTERS_MAX:,} characters",
            next_step="Record the policy again with table.alter.upkeep(pyhudi.Upkeep(...)). Reads"
            " and writes are not affected",
        )
    policies: dict[str, Any] = {}
    unknown = [(name, "this release has no such service") for name in _later_parts(text)]
    for name in SERVICES:
        policies[name] = None
        try:
            if name in values:
                policies[name] = _policy(name, values[name])
        except (InvalidRequestError, TypeError, ValueError, OverflowError) as error:
            why = error.what if isinstance(error, InvalidRequestError) else str(error)
            unknown.append((name, f"this release cannot use the recorded policy: {why}"))
    try:
        upkeep = Upkeep(**policies, inline_bytes=values.get(_INLINE, INLINE_BYTES))
    except InvalidRequestError as error:
        unknown.append((_INLINE, f"this release cannot use the recorded value: {error.what}"))
        upkeep = Upkeep(**policies, inline_bytes=0)
    return RecordedUpkeep(upkeep, tuple(unknown))


def _policy(name: str, values: object) -> object:
    """Return the policy of a service; InvalidRequestError or ValueError if it is unknown here."""
    kind = SERVICES[name]
    if not isinstance(values, dict):
        raise ValueError(f"{name} is {values!r:.80}")
    names = {each.name for each in fields(kind)}
    if later := sorted(values.keys() - names):
        raise ValueError(f"there is no setting {later[0]!r:.80}")
    if kind is CleanPolicy:
        return CleanPolicy(CleanBy(str(values.get("by"))), values.get("keep", 0))
    return ResizePolicy.recorded(values) if kind is ResizePolicy else kind(**values)


def _parsed(text: str) -> dict[str, Any] | None:
    if len(text) > UPKEEP_CHARACTERS_MAX:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
