"""The writer of an instant, recorded in its inflight and completed files for people who trace a
conflict.

Only the priority is ever used for a decision. Any process may have written the record, so it is
read with care: short texts on one line, and a number. Everything else is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from pyhudi.settings import JOB_CHARACTERS_MAX, PRIORITY_MAX

#: The key in extra metadata.
WRITER_KEY: Final = "pyhudi.writer"

_TEXT_MAX = JOB_CHARACTERS_MAX
_JSON_MAX = 4_000
_PROCESS_MAX = 2**31 - 1
_DIGITS_MAX = 11


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """A process that writes. An unknown field is empty."""

    job: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    priority: int = 0

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def description(self) -> str:
        """The writer in words, for a sentence.

        >>> WriterIdentity("orders", "etl-1", "ann", 7).description
        "job 'orders' of ann on etl-1, process 7"
        >>> WriterIdentity(host="etl-1", process=7).description
        'a writer on etl-1, process 7'
        >>> WriterIdentity().description
        'an unidentified writer'
        """
        if not (self.job or self.host):
            return "an unidentified writer"
        user = f" of {self.user}" if self.user else ""
        who = f"job {self.job!r}{user}" if self.job else self.user or "a writer"
        process = f", process {self.process}" if self.process else ""
        return f"{who} on {self.host or 'an unknown host'}{process}"


def parse_label(label: str) -> WriterIdentity:
    """Return the identity that the label of a decision-log entry gives: host and process.

    >>> parse_label("etl-1, process 7")
    WriterIdentity(job='', host='etl-1', user='', process=7, priority=0)
    """
    host, _, process = label.rpartition(", process ")
    if not (host and process.isascii() and process.isdigit() and len(process) < _DIGITS_MAX):
        return WriterIdentity(host=_line(label))
    return WriterIdentity(host=_line(host), process=_number(int(process), _PROCESS_MAX))


def parse_writer(extra: Mapping[str, str] | None) -> WriterIdentity:
    """Return the identity in extra metadata.

    An empty one if there is none, or none that makes sense.
    """
    text = (extra or {}).get(WRITER_KEY, "")
    if not isinstance(text, str) or len(text) > _JSON_MAX:
        return WriterIdentity()
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return WriterIdentity()
    if not isinstance(found, dict):
        return WriterIdentity()
    return WriterIdentity(
        _line(found.get("job")),
        _line(found.get("host")),
        _line(found.get("user")),
        _number(found.get("process"), _PROCESS_MAX),
        _number(found.get("priority"), PRIORITY_MAX),
    )


def _line(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(character for character in text if character.isprintable())[:_TEXT_MAX]


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= most else 0
