"""Hudi's own option names for reads, with Hudi's own meaning.

Every option is in one of four classes: honoured; without effect here, which is said once; refused,
because ignoring it would give other rows than Hudi; unknown, which is an error that names the
nearest known one.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.engine.read import Question
from pyhudi.errors import InvalidRequestError

QUERY_TYPE = "hoodie.datasource.query.type"
AS_OF = "as.of.instant"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
INCREMENTAL_FORMAT = "hoodie.datasource.query.incremental.format"
#: Ours: a column list and a predicate, for sources that are named by options alone.
COLUMNS = "columns"
WHERE = "where"

_QUERY_TYPES = ("snapshot", "read_optimized", "incremental")
_HONOURED = frozenset({QUERY_TYPE, AS_OF, BEGIN, END, INCREMENTAL_FORMAT, COLUMNS, WHERE, "path"})

_WITHOUT_EFFECT = {
    "hoodie.metadata.enable": "pyhudi lists files and does not read the metadata table",
    "hoodie.enable.data.skipping": "pyhudi skips by parquet statistics, always",
    "hoodie.file.index.enable": "pyhudi plans its own files",
    "hoodie.datasource.read.file.index.listing.mode": "pyhudi plans its own files",
    "hoodie.file.group.reader.enabled": "pyhudi has one reader",
    "hoodie.merge.use.record.positions": "pyhudi merges by record key",
    "hoodie.memory.merge.max.size": "pyhudi keeps a slice's logs in memory",
    "hoodie.read.timeline.holes.resolution.policy": "pyhudi ranges are over completion times",
}
_REFUSED = {
    "hoodie.datasource.merge.type": "unmerged log rows are not offered",
    "hoodie.datasource.write.payload.class": "the table decides how records merge",
    "hoodie.record.merge.mode": "the table decides how records merge",
    "hoodie.schema.on.read.enable": "schema-on-read history is not read",
    "hoodie.datasource.read.incr.path.glob": "filter with `where` instead",
    "hoodie.datasource.read.incr.filters": "filter with `where` instead",
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "a cleaned range is an error",
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
    for name, value in options.items():
        _refuse_unknown(name, value)
    query = options.get(QUERY_TYPE, "snapshot").lower()
    if query not in _QUERY_TYPES:
        raise _refused(QUERY_TYPE, query, f"pyhudi knows {', '.join(_QUERY_TYPES)}")
    incremental = query == "incremental"
    if incremental and options.get(INCREMENTAL_FORMAT, "latest_state") != "latest_state":
        raise _refused(INCREMENTAL_FORMAT, options[INCREMENTAL_FORMAT], "only latest_state is read")
    question = Question(
        columns=_columns(options.get(COLUMNS)),
        where=options.get(WHERE),
        read_optimized=query == "read_optimized",
        path_columns=incremental,  # as Hudi's incremental reads have them
    )
    if not incremental:
        as_of = options.get(AS_OF)
        return HudiRead(question, as_of=None if as_of is None else _instant(AS_OF, as_of))
    if BEGIN not in options:
        raise InvalidRequestError(
            "an incremental read has no beginning",
            why=f"{BEGIN} is not given",
            next_step=f"Give a completion time, or {_EARLIEST!r} for all of the table",
        )
    begin, end = options[BEGIN], options.get(END)
    return HudiRead(
        question,
        begin="" if begin == _EARLIEST else _instant(BEGIN, begin),
        end=None if end is None else _instant(END, end),
    )


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _instant(option: str, text: str) -> str:
    """Digits, or Hudi's `yyyy-MM-dd[ HH:mm:ss[.SSS]]` in the timeline's own zone."""
    if _DIGITS.fullmatch(text):
        return text
    if match := _DATE_TIME.fullmatch(text):
        return "".join(part or "00" for part in match.groups()[:6]) + (match[7] or "000")
    raise _refused(option, text, "an instant is 17 digits or yyyy-MM-dd HH:mm:ss.SSS")


def _refuse_unknown(name: str, value: str) -> None:
    if name in _HONOURED:
        return
    if name in _WITHOUT_EFFECT:
        warnings.warn(f"{name} has no effect: {_WITHOUT_EFFECT[name]}", stacklevel=3)
        return
    if name in _REFUSED:
        raise _refused(name, value, _REFUSED[name])
    known = [*_HONOURED, *_WITHOUT_EFFECT, *_REFUSED]
    nearest = difflib.get_close_matches(name, known, n=1)
    raise InvalidRequestError(
        f"there is no read option {name!r}",
        why="it is neither Hudi's nor pyhudi's" if nearest else "pyhudi does not know it",
        next_step=f"Did you mean {nearest[0]!r}" if nearest else "Leave it out",
    )


def _refused(name: str, value: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"option {name}={value!r} cannot be honoured",
        why=why,
        next_step="Leave it out or change it",
    )
