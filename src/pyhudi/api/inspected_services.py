"""The rows of `table.inspect` that are about services: upkeep, and consumers of changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.api.inspected_writes import WRITER_COLUMNS, identity_row
from pyhudi.format.table.upkeep_record import ServiceRun
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.plan.upkeep import Upkeep, policy_words
from pyhudi.storage.objects.consumers import FoundConsumer
from pyhudi.wording import storable

CONSUMERS = pa.schema(
    [
        ("name", pa.string()),
        ("since", pa.string()),
        ("silent_hours", pa.float64()),
        ("expires_after_hours", pa.int64()),
        ("holds", pa.bool_()),
    ]
)
UPKEEP = pa.schema(
    [
        ("service", pa.string()),
        ("policy", pa.string()),
        ("due", pa.bool_()),
        ("last_run", pa.timestamp("ms", "UTC")),
        ("did", pa.string()),
        ("error", pa.string()),
        ("next_try", pa.timestamp("ms", "UTC")),
        ("job", pa.string()),
        ("host", pa.string()),
        ("user", pa.string()),
    ]
)


def consumer_row(found: FoundConsumer, now_ms: int) -> dict[str, Any]:
    return {
        "name": found.consumer.name,
        "since": found.consumer.since,
        "silent_hours": found.silent_ms(now_ms) / 3_600_000,
        "expires_after_hours": found.consumer.expires_after_hours,
        "holds": found.holds_at(now_ms),
    }


def policy_text(policy: Upkeep | None, name: str) -> str | None:
    found = None if policy is None else getattr(policy, name)
    return None if found is None else policy_words(found)


def run_row(run: ServiceRun | None) -> dict[str, Any]:
    if run is None:
        return {}
    return {
        "last_run": run.ran_ms,
        "did": storable(run.did) or None,
        "error": storable(run.error) or None,
        "next_try": run.rests_until_ms or None,
        **{n: identity_row({WRITER_KEY: run.writer}).get(n) for n in WRITER_COLUMNS},
    }
