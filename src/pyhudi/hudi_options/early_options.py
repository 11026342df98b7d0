"""Options of early detection and of markers, by the names of RFC-56 and of Hudi.

Hudi has some of the RFC's options under other names. Strategies are a closed list of class names,
of which none is loaded. Without one it is that of the kind of markers, as in Hudi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.classes import (
    Honoured,
    OptionClasses,
    Refused,
    one_of,
    refused_option,
    same,
    switch,
)
from pyhudi.hudi_options.option_texts import agreed, flag, number
from pyhudi.settings import EarlyDetection, Markers, MarkerService

_HUDI, _RFC = "hoodie.write.concurrency.early.conflict.", "hoodie.write.lock.early.conflict."
_DETECTOR, _CHECKER = "hoodie.write.concurrency.async.conflict.detector.", f"{_RFC}async.checker."

ENABLE: Final = (f"{_HUDI}detection.enable", f"{_RFC}detection.enable")
STRATEGY: Final = (f"{_HUDI}detection.strategy", f"{_RFC}detection.strategy")
CHECK_COMMITS: Final = (f"{_HUDI}check.commit.conflict", f"{_RFC}check.commit")
INITIAL_DELAY: Final = (f"{_DETECTOR}initial_delay_ms", f"{_CHECKER}batch.interval")
PERIOD: Final = (f"{_DETECTOR}period_ms", f"{_CHECKER}period")
MARKERS: Final = ("hoodie.write.markers.type",)
THREADS: Final = ("hoodie.markers.timeline_server_based.batch.num_threads",)
BATCH: Final = ("hoodie.markers.timeline_server_based.batch.interval_ms",)
PORT: Final = ("hoodie.embed.timeline.server.port",)

_SERVER = "org.apache.hudi.timeline.service.handlers.marker."
_MARKERS = {"direct": Markers.DIRECT, "timeline_server_based": Markers.SERVER}
#: The classes of each strategy: Hudi's, if it has it, and the RFC's.
STRATEGY_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "simple_direct": (
        "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy",
        "SimpleDirectMarkerBasedEarlyConflictDetectionStrategy",
    ),
    "transaction_direct": (
        "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy",
        "SimpleTransactionDirectMarkerBasedEarlyConflictDetectionStrategy",
    ),
    "bloom_direct": ("BloomDirectMarkerBasedEarlyConflictDetectionStrategy",),
    "async_server": (
        f"{_SERVER}AsyncTimelineServerBasedDetectionStrategy",
        "AsyncTimelineMarkerEarlyConflictDetectionStrategy",
    ),
    "bloom_async_server": ("BloomAsyncTimelineMarkerEarlyConflictDetectionStrategy",),
}
_STRATEGIES = {
    name.lower(): strategy for strategy, names in STRATEGY_CLASSES.items() for name in names
}
_DEFAULT = {Markers.DIRECT: "simple_direct", Markers.SERVER: "async_server"}

EARLY_CLASSES: Final[OptionClasses] = {
    **same(
        ENABLE,
        switch(
            on=Honoured("a save yields to one that is ahead of it and has announced a file"),
            off=Honoured("as pyhudi does anyway"),
        ),
    ),
    **same(
        STRATEGY,
        one_of(
            {
                tuple(n for names in STRATEGY_CLASSES.values() for n in names): Honoured(
                    "how the writes ahead are looked for; else by the kind of markers"
                )
            },
            Refused("pyhudi has the strategies of RFC-56 and of Hudi, and loads no class by name"),
        ),
    ),
    **same(
        CHECK_COMMITS,
        switch(
            on=Honoured("as pyhudi does anyway"),
            off=Honoured("a setting of this writer"),
        ),
    ),
    **same(
        (*INITIAL_DELAY, *PERIOD, *THREADS, *BATCH, *PORT), Honoured("a setting of this writer")
    ),
    **same(
        MARKERS,
        one_of(
            {
                ("direct",): Honoured("as pyhudi does anyway"),
                ("timeline_server_based",): Honoured("a setting of this writer"),
            },
            Refused("markers are direct, or timeline_server_based"),
        ),
    ),
}


def parse_early_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a write that the options name."""
    markers = agreed(given, MARKERS, lambda _, text: _MARKERS[text.lower()])
    numbers = {
        "initial_delay_ms": INITIAL_DELAY,
        "period_ms": PERIOD,
        "threads": THREADS,
        "batch_ms": BATCH,
        "port": PORT,
    }
    found: dict[str, Any] = {}
    for setting, spellings in numbers.items():
        if (value := agreed(given, spellings, number)) is not None:
            only: dict[str, Any] = {setting: value}
            try:
                _ = MarkerService(**only) if setting in _SERVICE else EarlyDetection(**only)
            except InvalidRequestError as error:
                option = next(name for name in spellings if name in given)
                raise refused_option(option, given[option], error.why) from None
            found[setting] = value
    service = {name: found.pop(name) for name in _SERVICE if name in found}
    if (checks := agreed(given, CHECK_COMMITS, flag)) is not None:
        found["check_commits"] = checks
    strategy = agreed(given, STRATEGY, lambda _, text: _STRATEGIES[text.lower()])
    if agreed(given, ENABLE, flag):
        found["strategy"] = strategy or _DEFAULT[markers or Markers.DIRECT]
    return {
        "early_detection": EarlyDetection(**found) if found else None,
        "markers": markers,
        "marker_service": MarkerService(**service) if service else None,
    }


_SERVICE = ("threads", "batch_ms", "port")
