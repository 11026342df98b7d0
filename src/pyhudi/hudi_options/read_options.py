"""Hudi's own option names for reads, with Hudi's own meaning.

`READ_CLASSES` says how each is treated, `classes` what the classes are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.classes import (
    ByValue,
    Honoured,
    OptionClasses,
    Refused,
    WithoutEffect,
    refused_option,
    require_known,
    switch,
)
from pyhudi.read.plan import Question

QUERY_TYPE = "hoodie.datasource.query.type"
AS_OF = "as.of.instant"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
INCREMENTAL_FORMAT = "hoodie.datasource.query.incremental.format"
#: pyhudi's own: columns, a predicate, and whether Hudi's five columns are shown, for sources that
#: are named by options alone.
COLUMNS = "columns"
WHERE = "where"
META = "meta"

_QUERY_TYPES = ("snapshot", "read_optimized", "incremental")
_LISTING = WithoutEffect("pyhudi plans its own files")
_MERGING = Refused("the table decides how records merge")
_FILTERING = Refused("filter with `where` instead")
_FUNCTIONS = Refused("`table.inspect` shows the timeline and the files")

READ_CLASSES: OptionClasses = {
    "path": Honoured("the table's address"),
    COLUMNS: Honoured("pyhudi's own: the columns to read, by commas"),
    WHERE: Honoured("pyhudi's own: a predicate in SQL"),
    META: switch(
        on=Honoured("pyhudi's own: Hudi's five columns come before the data"),
        off=Honoured("pyhudi's own: Hudi's five columns are left out"),
    ),
    QUERY_TYPE: Honoured("snapshot, read_optimized or incremental"),
    AS_OF: Honoured("time travel by requested time, as Hudi's"),
    BEGIN: Honoured("changes completed after this time; `000` for all"),
    END: Honoured("changes completed up to this time"),
    INCREMENTAL_FORMAT: Honoured("latest_state; cdc is refused"),
    "hoodie.metadata.enable": switch(
        on=WithoutEffect("pyhudi lists files and does not read the metadata table"),
        off=Honoured("the metadata table is not read"),
    ),
    "hoodie.enable.data.skipping": WithoutEffect("pyhudi skips by parquet statistics, always"),
    "hoodie.file.index.enable": _LISTING,
    "hoodie.datasource.read.file.index.*": _LISTING,
    "hoodie.filesystem.view.*": _LISTING,
    "hoodie.file.group.reader.enabled": WithoutEffect("pyhudi has one reader"),
    "hoodie.merge.use.record.positions": WithoutEffect("pyhudi merges by record key"),
    "hoodie.memory.*": WithoutEffect("pyhudi keeps a slice's logs in memory"),
    "hoodie.common.spillable.diskmap.type": WithoutEffect("pyhudi keeps a slice's logs in memory"),
    "hoodie.bucket.index.query.pruning": WithoutEffect("it changes no rows"),
    "hoodie.read.timeline.holes.resolution.policy": WithoutEffect(
        "pyhudi ranges are over completion times"
    ),
    "hoodie.datasource.read.table.valued.function.*": _FUNCTIONS,
    "hoodie.datasource.merge.type": ByValue(
        {"payload_combine": Honoured("log rows are merged")},
        otherwise=Refused("unmerged log rows are not offered"),
    ),
    "hoodie.datasource.write.payload.class": _MERGING,
    "hoodie.record.merge.mode": _MERGING,
    "hoodie.write.record.merge.mode": _MERGING,
    "hoodie.schema.on.read.enable": switch(
        on=Refused("schema-on-read history is not read"), off=Honoured("it is not read")
    ),
    "hoodie.datasource.read.paths": _FILTERING,
    "hoodie.datasource.read.incr.path.glob": _FILTERING,
    "hoodie.datasource.read.incr.filters": _FILTERING,
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": switch(
        on=Refused("a cleaned range is an error"), off=Honoured("a cleaned range is an error")
    ),
}
_EARLIEST = "000"
_DIGITS = re.compile(r"\d{14}(\d{3})?")
_DATE_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?)?")


@dataclass(frozen=True, slots=True)
class HudiRead:
    """A read as Hudi's options describe it; times are digits of the timeline."""

    question: Question
    as_of: str | None = None
    begin: str | None = None  # set exactly when the read is incremental
    end: str | None = None


def parse_read_options(options: Mapping[str, str]) -> HudiRead:
    require_known(options, READ_CLASSES, "read")
    query = options.get(QUERY_TYPE, "snapshot").lower()
    if query not in _QUERY_TYPES:
        raise refused_option(QUERY_TYPE, query, f"pyhudi knows {', '.join(_QUERY_TYPES)}")
    incremental = query == "incremental"
    if incremental and options.get(INCREMENTAL_FORMAT, "latest_state") != "latest_state":
        raise refused_option(
            INCREMENTAL_FORMAT, options[INCREMENTAL_FORMAT], "only latest_state is read"
        )
    question = Question(
        columns=_columns(options.get(COLUMNS)),
        where=options.get(WHERE),
        read_optimized=query == "read_optimized",
        hudi_incremental=incremental,
        meta=_shows_meta(options),
    )
    if not incremental:
        as_of = options.get(AS_OF)
        return HudiRead(question, as_of=None if as_of is None else _instant(AS_OF, as_of))
    if BEGIN not in options:
        raise InvalidRequestError(
            "an incremental read has no beginning",
            why=f"{BEGIN} is not set",
            next_step=f"Set it to a completion time, or to {_EARLIEST!r} for all of the table",
        )
    begin, end = options[BEGIN], options.get(END)
    return HudiRead(
        question,
        begin="" if begin == _EARLIEST else _instant(BEGIN, begin),
        end=None if end is None else _instant(END, end),
    )


def _shows_meta(options: Mapping[str, str]) -> bool:
    """True if the five meta columns are shown: as `meta` says, else by the names of the options.

    Hudi shows them in every read, and pyhudi in none.
    """
    if (asked := options.get(META)) is not None:
        return asked.strip().lower() == "true"
    return any(name.startswith("hoodie.") or name == AS_OF for name in options)


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _instant(option: str, text: str) -> str:
    """Return the digits of a time; it may be Hudi's `yyyy-MM-dd[ HH:mm:ss[.SSS]]` in the timeline's
    zone."""
    if _DIGITS.fullmatch(text):
        return text
    if match := _DATE_TIME.fullmatch(text):
        return "".join(part or "00" for part in match.groups()[:6]) + (match[7] or "000")
    raise refused_option(option, text, "an instant is 17 digits or yyyy-MM-dd HH:mm:ss.SSS")
