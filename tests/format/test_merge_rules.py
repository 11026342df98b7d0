"""How the table's properties say that records merge."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.merge_rules import (
    DELETE_FIELD,
    DELETE_MARKER,
    MergeMode,
    MergeRules,
    PartialUpdateMode,
    merge_rules,
)
from pyhudi.format.table.properties import TableProperties

COMMIT, EVENT, CUSTOM = (
    MergeMode.COMMIT_TIME_ORDERING,
    MergeMode.EVENT_TIME_ORDERING,
    MergeMode.CUSTOM,
)
MODE = "hoodie.record.merge.mode"
STRATEGY = "hoodie.record.merge.strategy.id"
PAYLOAD = "hoodie.compaction.payload.class"
LEGACY = "hoodie.table.legacy.payload.class"
ORDERING = "hoodie.table.ordering.fields"
PRECOMBINE = "hoodie.table.precombine.field"
PARTIAL = "hoodie.table.partial.update.mode"

EVENT_ID = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_ID = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_ID = "00000000-0000-0000-0000-000000000000"
MERGER_ID = "1897ef5f-18bc-4557-939c-9d6a8afd1519"

MODEL = "org.apache.hudi.common.model."


def rules(values: dict[str, str], version: int = 9) -> MergeRules:
    return merge_rules(TableProperties(values), version)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, MergeRules(COMMIT)),
        ({ORDERING: "ts"}, MergeRules(EVENT, ("ts",))),
        ({PRECOMBINE: "ts"}, MergeRules(EVENT, ("ts",))),
        ({ORDERING: "a,b", PRECOMBINE: "c"}, MergeRules(EVENT, ("a", "b"))),
        ({MODE: "COMMIT_TIME_ORDERING", ORDERING: "ts"}, MergeRules(COMMIT, ("ts",))),
        ({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"}, MergeRules(EVENT, ("ts",))),
        ({MODE: "EVENT_TIME_ORDERING"}, MergeRules(COMMIT)),  # nothing to compare
        ({STRATEGY: EVENT_ID, ORDERING: "ts"}, MergeRules(EVENT, ("ts",))),
        ({STRATEGY: COMMIT_ID, ORDERING: "ts"}, MergeRules(COMMIT, ("ts",))),
        (
            {PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload", ORDERING: "ts"},
            MergeRules(EVENT, ("ts",)),
        ),
        ({PAYLOAD: f"{MODEL}OverwriteWithLatestAvroPayload"}, MergeRules(COMMIT)),
        ({STRATEGY: "", PAYLOAD: "", ORDERING: ""}, MergeRules(COMMIT)),  # empty is absent
    ],
)
@pytest.mark.parametrize("version", [8, 9])
def test_merge_mode_is_stated_or_implied(
    values: dict[str, str], expected: MergeRules, version: int
) -> None:
    assert rules(values, version) == expected


def test_all_three_keys_of_a_version_8_table_agree() -> None:
    values = {
        MODE: "EVENT_TIME_ORDERING",
        STRATEGY: EVENT_ID,
        PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload",
        ORDERING: "ts",
    }
    assert rules(values, 8) == MergeRules(EVENT, ("ts",))


IGNORE, FILL = PartialUpdateMode.IGNORE_DEFAULTS, PartialUpdateMode.FILL_UNAVAILABLE


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("DefaultHoodieRecordPayload", MergeRules(EVENT, ("ts",))),
        ("EventTimeAvroPayload", MergeRules(EVENT, ("ts",))),
        ("OverwriteWithLatestAvroPayload", MergeRules(COMMIT, ("ts",))),
        ("PartialUpdateAvroPayload", MergeRules(EVENT, ("ts",), IGNORE, latest_meta=True)),
        ("OverwriteNonDefaultsWithLatestAvroPayload", MergeRules(COMMIT, ("ts",), IGNORE)),
        (
            "AWSDmsAvroPayload",
            MergeRules(COMMIT, ("ts",), None, {DELETE_FIELD: "Op", DELETE_MARKER: "D"}),
        ),
    ],
)
@pytest.mark.parametrize("stated", [{}, {MODE: "CUSTOM"}, {MODE: "CUSTOM", STRATEGY: PAYLOAD_ID}])
def test_payload_classes_translate_as_the_upgrade_to_version_9_does(
    payload: str, expected: MergeRules, stated: dict[str, str]
) -> None:
    assert rules({**stated, PAYLOAD: MODEL + payload, ORDERING: "ts"}, 8) == expected


def test_an_upgraded_table_states_its_rules_and_only_remembers_its_payload_class() -> None:
    prefix = "hoodie.record.merge.property."
    values = {
        MODE: "COMMIT_TIME_ORDERING",
        LEGACY: f"{MODEL}AWSDmsAvroPayload",
        f"{prefix}{DELETE_FIELD}": "Op",
        f"{prefix}{DELETE_MARKER}": "X",
    }
    assert rules(values) == MergeRules(COMMIT, properties={DELETE_FIELD: "Op", DELETE_MARKER: "X"})


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("IGNORE_DEFAULTS", IGNORE),
        ("fill_unavailable", FILL),
        ("NONE", None),
        ("", None),
        ("KEEP_VALUES", PartialUpdateMode.UNKNOWN),
    ],
)
def test_partial_update_mode_is_known_or_unknown(text: str, mode: PartialUpdateMode | None) -> None:
    assert rules({PARTIAL: text}).partial_update_mode is mode


POSTGRES = f"{MODEL}debezium.PostgresDebeziumAvroPayload"


@pytest.mark.parametrize(
    ("values", "version", "reason"),
    [
        ({MODE: "CUSTOM"}, 9, "custom merge with payload class None"),
        ({PAYLOAD: "com.example.Mine"}, 8, "payload class com.example.Mine"),
        # Its code merges otherwise than the rules which Hudi's upgrade to version 9 gives it.
        ({PAYLOAD: POSTGRES}, 8, f"payload class {POSTGRES}"),
        ({MODE: "CUSTOM", PAYLOAD: "com.example.Mine"}, 9, "payload class com.example.Mine"),
        ({MODE: "CUSTOM", STRATEGY: PAYLOAD_ID, PAYLOAD: "Mine"}, 9, "payload class Mine"),
        ({STRATEGY: MERGER_ID}, 8, f"custom merge strategy {MERGER_ID}"),
        (  # Hudi fills in a payload class that has no say
            {MODE: "CUSTOM", STRATEGY: MERGER_ID, PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload"},
            8,
            f"custom merge strategy {MERGER_ID}",
        ),
        (
            {MODE: "EVENT_TIME_ORDERING", STRATEGY: COMMIT_ID},
            8,
            f"merge mode EVENT_TIME_ORDERING with merge strategy {COMMIT_ID}",
        ),
        (
            {MODE: "EVENT_TIME_ORDERING", PAYLOAD: f"{MODEL}PartialUpdateAvroPayload"},
            8,
            "merge mode EVENT_TIME_ORDERING with payload class",
        ),
        (
            {STRATEGY: EVENT_ID, PAYLOAD: f"{MODEL}OverwriteWithLatestAvroPayload"},
            8,
            "merge mode EVENT_TIME_ORDERING with payload class",
        ),
    ],
)
def test_rules_that_only_java_code_knows_are_named(
    values: dict[str, str], version: int, reason: str
) -> None:
    (found,) = rules(values, version).unsupported
    assert reason in found


def test_an_unknown_merge_mode_is_refused_by_key() -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie\.record\.merge\.mode is 'LATEST'"):
        rules({MODE: "LATEST"})
