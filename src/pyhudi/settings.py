"""What a user may tune about writing: few numbers, units in their names, ranges checked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from pyhudi.errors import InvalidRequestError


class LogBlockFormat(StrEnum):
    """How rows are encoded in a log block."""

    PARQUET = "parquet"
    AVRO = "avro"


class FailedWrites(StrEnum):
    """When the remains of a write that did not complete are rolled back."""

    LAZY = "lazy"  # once its heartbeat has expired: right for any number of writers
    EAGER = "eager"  # at the next write, heartbeat or not: for a table with one writer only


class SchemaMode(StrEnum):
    """What rows may have that the table's schema has not, and the other way round."""

    STRICT = "strict"  # exactly the table's columns
    ADD = "add"  # also new columns, and wider types
    MERGE = "merge"  # the same, and rows may lack columns


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyDetection:
    """How a write learns, while it runs, of a conflict that it would meet at its end."""

    #: How it looks for writes that are ahead of it and have announced a file: a name of
    #: `EARLY_STRATEGIES`, or an object like `pyhudi.EarlyStrategy`. None: it does not.
    strategy: object = None
    #: Look for completed writes because of which it is certain to be refused.
    check_commits: bool = True
    initial_delay_ms: int = 0  # after its begin, before the first period
    period_ms: int = 5_000  # between two looks

    def __post_init__(self) -> None:
        self._check_strategy()
        if not isinstance(self.check_commits, bool):
            raise InvalidRequestError(
                f"check_commits={self.check_commits!r:.100} cannot be used",
                why="it is True or False",
                next_step="Change the setting",
            )
        for name, lowest in (("initial_delay_ms", 0), ("period_ms", 1)):
            _check_number(name, getattr(self, name), lowest, None)

    def _check_strategy(self) -> None:
        given: Any = self.strategy
        if given is None or (isinstance(given, str) and given in EARLY_STRATEGIES):
            return
        looks = None if isinstance(given, str | type) else getattr(given, "looks", None)
        has_name = isinstance(looks, str) and looks in EARLY_STRATEGIES
        if has_name and callable(getattr(given, "yields", None)):
            return
        raise InvalidRequestError(
            f"strategy={given!r:.100} cannot be used",
            why=f"it is None, one of {', '.join(map(repr, EARLY_STRATEGIES))}, or an object with"
            " one of these names as looks, and a method yields(facts)",
            next_step="Change the setting",
        )


class Markers(StrEnum):
    """How the files of a write are announced in storage."""

    DIRECT = "direct"  # one object for each
    SERVER = "server"  # lists, which a service in the writer's process writes


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerService:
    """The service that writes lists of markers (`WriteSettings(markers="server")`)."""

    threads: int = 20  # lists of one write
    batch_ms: int = 50  # how long requests are collected before a list is written
    port: int = 0  # of the writer's host; 0: any that is free

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("threads", 1, 1_000),
            ("batch_ms", 1, 60_000),
            ("port", 0, 65_535),
        ):
            _check_number(name, getattr(self, name), lowest, highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How this process writes. Settings that all writers must share are recorded in the table."""

    log_block_format: LogBlockFormat = LogBlockFormat.PARQUET
    log_file_bytes_max: int = 1 << 30  # a larger log continues in another file
    buffer_bytes_max: int = 256 << 20  # rows buffered in memory before some are written out
    failed_writes: FailedWrites = FailedWrites.LAZY
    heartbeat_interval_ms: int = 60_000
    heartbeat_misses: int = 2  # intervals without a beat after which a writer counts as dead
    commit_rounds: int = 50  # lost races for the next log entry before the write fails
    conflict_retries: int = 3  # repetitions of a whole write that lost a conflict
    priority: int = 0  # in a conflict, a pending write goes before those of lower priority
    job: str = ""  # a name of this writer for people; default: the program's name
    schema_mode: SchemaMode = SchemaMode.STRICT  # of upsert, append and overwrite
    #: How a write that evolves the schema deals with writes that evolved it meanwhile:
    #: "reconcile", "simple", or an object like them.
    schema_strategy: object = "reconcile"
    lock_wait_ms: int = 60_000  # for a mandatory lock; an advisory one gets a few seconds
    early_detection: EarlyDetection = field(default_factory=EarlyDetection)
    markers: Markers = Markers.DIRECT
    marker_service: MarkerService = field(default_factory=MarkerService)

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            try:
                object.__setattr__(self, name, words(getattr(self, name)))
            except ValueError:
                raise InvalidRequestError(
                    f"{name}={getattr(self, name)!r} is not known",
                    why=f"it is one of {', '.join(repr(word.value) for word in words)}",
                    next_step="Change the setting",
                ) from None
        for name in (each.name for each in fields(self)):
            if name in _CHECKED_APART:
                continue
            lowest, highest = _LOWEST.get(name, 1), _HIGHEST.get(name)
            _check_number(name, getattr(self, name), lowest, highest)
        self._check_strategy()
        self._check_job()
        self._check_parts()

    def _check_job(self) -> None:
        if not isinstance(self.job, str) or len(self.job) > JOB_CHARACTERS_MAX:
            raise InvalidRequestError(
                "this job cannot be used",
                why=f"it must be text of at most {JOB_CHARACTERS_MAX} characters",
                next_step="Change the setting job",
            )

    def _check_parts(self) -> None:
        for name, kind in _PARTS.items():
            if not isinstance(given := getattr(self, name), kind):
                raise InvalidRequestError(
                    f"{name}={given!r:.100} cannot be used",
                    why=f"it is a pyhudi.{kind.__name__}(...)",
                    next_step="Change the setting",
                )

    def _check_strategy(self) -> None:
        given = self.schema_strategy
        is_word = isinstance(given, str) and given in SCHEMA_STRATEGIES
        if is_word or callable(getattr(given, "resolve", None)):
            return
        raise InvalidRequestError(
            f"schema_strategy={given!r:.100} cannot be used",
            why=f"it is one of {', '.join(map(repr, SCHEMA_STRATEGIES))}, or an object with a"
            " method resolve(start, now, own)",
            next_step="Change the setting",
        )

    @property
    def heartbeat_timeout_ms(self) -> int:
        return self.heartbeat_interval_ms * self.heartbeat_misses


#: Settings that are a choice; the plain word is accepted.
_WORDS: dict[str, type[LogBlockFormat] | type[FailedWrites] | type[SchemaMode] | type[Markers]] = {
    "log_block_format": LogBlockFormat,
    "failed_writes": FailedWrites,
    "schema_mode": SchemaMode,
    "markers": Markers,
}
SCHEMA_STRATEGIES = ("reconcile", "simple")
EARLY_STRATEGIES = (
    "simple_direct",
    "transaction_direct",
    "bloom_direct",
    "async_server",
    "bloom_async_server",
)
#: Settings that are values with settings of their own.
_PARTS = {"early_detection": EarlyDetection, "marker_service": MarkerService}
#: Settings that are no numbers.
_CHECKED_APART = {*_WORDS, *_PARTS, "schema_strategy", "job"}

JOB_CHARACTERS_MAX = 200
PRIORITY_MAX = 100

#: Hudi refuses heartbeats more often than every second.
_LOWEST = {"heartbeat_interval_ms": 1_000, "conflict_retries": 0, "lock_wait_ms": 0, "priority": 0}
_HIGHEST = {"priority": PRIORITY_MAX}


def _check_number(name: str, value: Any, lowest: int, highest: int | None) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and lowest <= value and (highest is None or value <= highest):
        return
    most = "" if highest is None else f" and at most {highest}"
    raise InvalidRequestError(
        f"{name}={value!r} cannot be used",
        why=f"it must be a whole number, at least {lowest}{most}",
        next_step="Change the setting",
    )
