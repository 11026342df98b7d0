"""How two versions of a record become one, as the table's properties state it.

Tables of version 9 say it in plain keys: a merge mode, ordering fields, a partial update mode, and
`hoodie.record.merge.property.*`. Tables of version 8 may name a Java payload class instead. Hudi's
upgrade from 8 to 9 translates the payload classes it ships into plain keys; the table `_PAYLOADS`
is that translation, for the classes whose code merges as its translation does. Debezium's do not:
before the upgrade they keep the marker text, and let a late delete win. Class names are compared
with the table and never loaded. One that it does not list cannot be honoured, and the mode stays
CUSTOM so that the refusal names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pyhudi.format.table.properties import TableProperties

MERGE_MODE: Final = "hoodie.record.merge.mode"
MERGE_STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"
PAYLOAD_CLASS: Final = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD_CLASS: Final = "hoodie.table.legacy.payload.class"
ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
PRECOMBINE_FIELD: Final = "hoodie.table.precombine.field"
PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
MERGE_PROPERTY_PREFIX: Final = "hoodie.record.merge.property."

DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
UNAVAILABLE_VALUE: Final = "hoodie.write.partial.update.unavailable.value"

EVENT_TIME_STRATEGY: Final = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY: Final = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_STRATEGY: Final = "00000000-0000-0000-0000-000000000000"


class MergeMode(StrEnum):
    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"  # the later record wins
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"  # the greater ordering value wins, ties go later
    CUSTOM = "CUSTOM"  # Java code decides


class PartialUpdateMode(StrEnum):
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"  # a value equal to its default keeps the older one
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"  # the marker value keeps the older one
    UNKNOWN = "UNKNOWN"  # unknown: such a table is refused


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The rules in force, with defaults and payload classes already translated.

    Event time without an ordering field compares nothing, so there the later record wins and the
    mode is COMMIT_TIME_ORDERING.
    """

    mode: MergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update_mode: PartialUpdateMode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()  # reasons why a reader must refuse the table
    latest_meta: bool = False  # a late row that fills in values leaves its meta columns too


_MODEL = "org.apache.hudi.common.model."
_COMMIT_TIME, _EVENT_TIME = MergeMode.COMMIT_TIME_ORDERING, MergeMode.EVENT_TIME_ORDERING

_PAYLOADS: dict[str, MergeRules] = {
    f"{_MODEL}DefaultHoodieRecordPayload": MergeRules(_EVENT_TIME),
    f"{_MODEL}EventTimeAvroPayload": MergeRules(_EVENT_TIME),
    f"{_MODEL}OverwriteWithLatestAvroPayload": MergeRules(_COMMIT_TIME),
    f"{_MODEL}PartialUpdateAvroPayload": MergeRules(
        _EVENT_TIME, partial_update_mode=PartialUpdateMode.IGNORE_DEFAULTS, latest_meta=True
    ),
    f"{_MODEL}OverwriteNonDefaultsWithLatestAvroPayload": MergeRules(
        _COMMIT_TIME, partial_update_mode=PartialUpdateMode.IGNORE_DEFAULTS
    ),
    f"{_MODEL}AWSDmsAvroPayload": MergeRules(
        _COMMIT_TIME, properties={DELETE_FIELD: "Op", DELETE_MARKER: "D"}
    ),
}

# Payload classes that say no more than the mode. The others are CUSTOM until translated.
_PLAIN_PAYLOADS = {
    name: rules.mode for name, rules in _PAYLOADS.items() if rules == MergeRules(rules.mode)
}
_PARTIAL_UPDATE_MODES: dict[str, PartialUpdateMode | None] = {"NONE": None} | {
    mode.value: mode for mode in PartialUpdateMode
}
_STRATEGIES = {EVENT_TIME_STRATEGY: _EVENT_TIME, COMMIT_TIME_STRATEGY: _COMMIT_TIME}


def merge_rules(properties: TableProperties, version: int) -> MergeRules:
    """Return the rules that `hoodie.properties` states or implies."""
    strategy = properties.text(MERGE_STRATEGY_ID)
    payload = properties.text(PAYLOAD_CLASS)
    past_payload = properties.text(LEGACY_PAYLOAD_CLASS)
    ordering = properties.names(ORDERING_FIELDS) or properties.names(PRECOMBINE_FIELD)
    stated = properties.choice(MERGE_MODE, MergeMode)
    mode = stated or _implied_mode(strategy, payload or past_payload, ordering)
    rules = MergeRules(
        mode,
        ordering,
        _partial_update_mode(properties),
        _merge_properties(properties),
        _contradictions(mode, strategy, payload) if version < 9 else (),
    )
    if mode is MergeMode.CUSTOM:
        rules = _translated(rules, strategy, payload or past_payload)
    if rules.mode is _EVENT_TIME and not rules.ordering_fields:
        return replace(rules, mode=_COMMIT_TIME)
    return rules


def _implied_mode(
    strategy: str | None, payload: str | None, ordering: tuple[str, ...]
) -> MergeMode:
    """Return the mode that the other keys imply.

    The strategy id speaks first, then a payload class, then whether there is an ordering.
    """
    if strategy is not None:
        return _STRATEGIES.get(strategy, MergeMode.CUSTOM)
    if payload is not None:
        return _PLAIN_PAYLOADS.get(payload, MergeMode.CUSTOM)
    return _EVENT_TIME if ordering else _COMMIT_TIME


def _contradictions(mode: MergeMode, strategy: str | None, payload: str | None) -> tuple[str, ...]:
    """Return where the three keys disagree, one phrase each.

    Before version 9 all three must agree; Hudi reads no table where they do not.
    """
    if mode is MergeMode.CUSTOM:
        return ()
    reasons = []
    if strategy is not None and _STRATEGIES.get(strategy) is not mode:
        reasons.append(f"merge mode {mode} with merge strategy {strategy}")
    if payload is not None and _PLAIN_PAYLOADS.get(payload) is not mode:
        reasons.append(f"merge mode {mode} with payload class {payload}")
    return tuple(reasons)


def _translated(rules: MergeRules, strategy: str | None, payload: str | None) -> MergeRules:
    """Return custom rules in plain terms, or with the reason why there are none.

    A strategy id of its own names a merger, and then a payload class beside it means nothing.
    """
    if strategy not in (None, PAYLOAD_STRATEGY):
        return replace(rules, unsupported=(f"custom merge strategy {strategy}",))
    known = _PAYLOADS.get(payload or "")
    if known is None:
        return replace(rules, unsupported=(f"custom merge with payload class {payload}",))
    return MergeRules(
        known.mode,
        known.ordering_fields or rules.ordering_fields,
        rules.partial_update_mode or known.partial_update_mode,
        {**known.properties, **rules.properties},
        rules.unsupported,
        known.latest_meta,
    )


def _partial_update_mode(properties: TableProperties) -> PartialUpdateMode | None:
    text = properties.text(PARTIAL_UPDATE_MODE)
    if text is None:
        return None
    return _PARTIAL_UPDATE_MODES.get(text.strip().upper(), PartialUpdateMode.UNKNOWN)


def _merge_properties(properties: TableProperties) -> dict[str, str]:
    return {
        key.removeprefix(MERGE_PROPERTY_PREFIX): value
        for key, value in properties.values.items()
        if key.startswith(MERGE_PROPERTY_PREFIX)
    }
