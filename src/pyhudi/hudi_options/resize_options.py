"""Hudi's options of consistent buckets that say when one is split or merged.

Hudi takes them with each write. Here all processes of a table follow the policy that it records. So
a save that creates a table records what its options say, and a save to an existing table is warned
if they say something else.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.table.table_config import TableConfig
from pyhudi.hudi_options.classes import refused_option
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.upkeep import Upkeep, first_upkeep, recorded_upkeep

#: The option of each setting of `ResizePolicy`.
RESIZE_OPTIONS: Final[Mapping[str, str]] = {
    "target_bytes": "hoodie.parquet.max.file.size",
    "split_above": "hoodie.bucket.index.split.threshold",
    "merge_below": "hoodie.bucket.index.merge.threshold",
}


def parse_resize_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a resize policy that the options name."""
    settings: dict[str, Any] = {}
    for setting, option in RESIZE_OPTIONS.items():
        if option in given:
            settings[setting] = value = _number(option, given[option].strip(), setting)
            try:
                ResizePolicy.recorded({setting: value})
            except InvalidRequestError as error:
                raise refused_option(option, given[option], error.why) from None
    return settings


def _number(option: str, text: str, setting: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (setting == "target_bytes" and not text.isdigit()):
        kind = "a whole number of bytes" if setting == "target_bytes" else "a number"
        raise refused_option(option, text, f"it is {kind}")
    return int(text) if setting == "target_bytes" else value


def new_upkeep(settings: Mapping[str, Any], lock: LockKind) -> str:
    """Return what a table that a save creates records of its maintenance."""
    if lock.is_shared or not settings:
        return first_upkeep(None, lock)
    return first_upkeep(Upkeep(resize=ResizePolicy(**settings)), lock)


def warn_of_other_resizes(settings: Mapping[str, Any], config: TableConfig) -> None:
    """Warn of options that say something else than the existing table's policy."""
    for setting, value in settings.items():
        if (why := _no_effect(setting, value, config)) is not None:
            warnings.warn(f"{RESIZE_OPTIONS[setting]} has no effect: {why}", stacklevel=4)


def _no_effect(setting: str, value: Any, config: TableConfig) -> str | None:
    if ring_settings(config.buckets) is None:
        return "buckets of this table are neither split nor merged"
    try:
        policy = recorded_upkeep(config).policy
    except CorruptTableError:
        return None  # reported when the policy is followed
    if policy is None or policy.resize is None:
        return "this table records no policy of resizes (table.alter.upkeep)"
    if (there := getattr(policy.resize, setting)) == value:
        return None
    return f"this table records {setting}={there} for all its processes (table.alter.upkeep)"
