"""What the last runs of a table's services did, as one small object of the table.

Processes that maintain a table learn from it what others tried in vain, so that they wait; and
`table.inspect.upkeep()` shows it. It decides nothing else. So a damaged record counts as none, and
the next run replaces it. Later releases may record services that this one does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

UPKEEP_RECORD: Final = ".hoodie/.pyhudi/upkeep_last"
RECORD_BYTES_MAX: Final = 65_536
_TEXT_CHARACTERS_MAX: Final = 1_000
_SERVICES_MAX: Final = 16

#: How long a service rests after a first run in vain, and at most.
REST_FIRST_MS, REST_MS = 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """The last run of one service. Times are milliseconds since 1970 by the store's clock."""

    ran_ms: int = 0
    did: str = ""
    error: str = ""
    in_vain: int = 0  # runs in a row that failed or found nothing to do
    rests_until_ms: int = 0
    writer: str = ""  # of the process, as in commits

    def __post_init__(self) -> None:
        for name in ("did", "error"):
            object.__setattr__(self, name, getattr(self, name)[:_TEXT_CHARACTERS_MAX])

    def rest_ms(self, now_ms: int) -> int:
        """Return how long the service still rests; 0 if a clock that was wrong says too long.

        >>> ServiceRun(rests_until_ms=5_000).rest_ms(2_000), ServiceRun().rest_ms(2_000)
        (3000, 0)
        """
        left = self.rests_until_ms - now_ms
        return left if 0 < left <= REST_MS else 0


def next_run(
    before: ServiceRun | None, now_ms: int, did: str, error: str, writer: str, *, is_in_vain: bool
) -> ServiceRun:
    """Return the record of a run. Each further run in vain makes the next rest twice as long."""
    if not is_in_vain:
        return ServiceRun(now_ms, did, error, writer=writer)
    count = 1 + (0 if before is None else before.in_vain)
    rest_ms = min(REST_FIRST_MS << min(count - 1, 10), REST_MS)
    return ServiceRun(now_ms, did, error, count, now_ms + rest_ms, writer)


@dataclass(frozen=True, slots=True)
class UpkeepRecord:
    """The last run of each service, and a mark of the policy by which they ran."""

    policy: str = ""
    services: Mapping[str, ServiceRun] = field(default_factory=dict)


def encode_upkeep_record(record: UpkeepRecord) -> bytes:
    services = {name: asdict(run) for name, run in sorted(record.services.items())}
    return json.dumps({"policy": record.policy, "services": services}).encode()


def decode_upkeep_record(data: bytes) -> UpkeepRecord:
    """Return the record; an empty one if the bytes are not what `encode_upkeep_record` makes."""
    if len(data) > RECORD_BYTES_MAX:
        return UpkeepRecord()
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return UpkeepRecord()
    match values:
        case {"policy": str() as policy, "services": dict() as services}:
            runs = {name: _run(each) for name, each in [*services.items()][:_SERVICES_MAX]}
            return UpkeepRecord(policy, {n: run for n, run in runs.items() if run is not None})
    return UpkeepRecord()


def _run(values: Any) -> ServiceRun | None:
    if not isinstance(values, dict):
        return None
    known: dict[str, Any] = {}
    for each in fields(ServiceRun):
        value = values.get(each.name, each.default)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not (isinstance(value, str) if isinstance(each.default, str) else is_number):
            return None
        if is_number and not 0 <= value < 1 << 53:
            return None
        known[each.name] = value
    return ServiceRun(**known)
