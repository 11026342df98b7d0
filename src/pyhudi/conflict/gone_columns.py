"""Which columns has the table no longer? What commits of pyhudi carry beside the schema.

A column goes in two ways. It was *dropped*, because some process wanted that. Or it is *lost*: a
writer of another engine checked nothing, and recorded an older schema. Data files may hold the
values of both. So the name of a dropped column is not given anew, lest they come back with it; and
those of a lost one are not compacted away.

Neither can be seen in a schema. So each commit of pyhudi carries both, until no file holds a
dropped column any more, and until a lost one is back. A process that has just been started then
learns of them from the last commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Final, TypeAlias

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.timeline.instant import Instant

#: The dropped columns of a table, in the metadata of its commits.
DROPPED_KEY: Final = "pyhudi.dropped_columns"
LOST_KEY: Final = "pyhudi.lost_columns"
GONE_BYTES_MAX: Final = 1 << 20

#: Paths of columns. A dropped one has the completion time of the drop, or "" in the commit that
#: drops it; a lost one the requested time of the commit that took it out.
GoneColumns: TypeAlias = tuple[tuple[str, str], ...]


def gone_extra(dropped: GoneColumns, lost: GoneColumns) -> dict[str, str]:
    """Return what the metadata of a commit has of columns that are gone.

    Of more lost columns than it can carry it has the first ones, for they are for a warning only.
    """
    while lost and len(json.dumps(dict(lost))) > GONE_BYTES_MAX:
        lost = lost[: len(lost) // 2]
    both = ((DROPPED_KEY, dropped), (LOST_KEY, lost))
    return {key: json.dumps(dict(gone)) for key, gone in both if gone}


def too_many_dropped(dropped: GoneColumns) -> InvalidRequestError | None:
    """Return the error for more names than a commit can carry."""
    text = json.dumps({name: when or "0" * 17 for name, when in dropped})
    if len(text) <= GONE_BYTES_MAX:
        return None
    return InvalidRequestError(
        f"column {dropped[-1][0]!r:.100} cannot be dropped",
        why=f"the names of the {len(dropped):,} columns dropped so far, which commits carry until"
        f" no file has their values, would need more than {GONE_BYTES_MAX:,} bytes",
        next_step="Remove those files with table.services.compact() and table.services.clean(),"
        " and drop it then",
    )


def recorded_drops(extra: Mapping[str, str], instant: Instant) -> GoneColumns:
    """Return the dropped columns that a commit carries."""
    done = instant.completed or ""
    return tuple((name, when or done) for name, when in _recorded(extra, DROPPED_KEY, instant))


def recorded_losses(extra: Mapping[str, str], instant: Instant) -> GoneColumns:
    """Return the lost columns that a commit carries."""
    return _recorded(extra, LOST_KEY, instant)


def _recorded(extra: Mapping[str, str], key: str, instant: Instant) -> GoneColumns:
    text = extra.get(key)
    if text is None:
        return ()
    try:
        found = json.loads(text) if len(text) <= GONE_BYTES_MAX else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not (
        all(map(_is_path, found)) and all(isinstance(when, str) for when in found.values())
    ):
        what = "dropped" if key == DROPPED_KEY else "lost"
        raise CorruptTableError(
            f"the {what} columns of a commit cannot be read",
            why=f"its {key} is not a JSON object of names and times",
            next_step="Restore the file from a copy",
            path=instant.file_name,
        )
    return tuple(found.items())


def _is_path(name: str) -> bool:
    return all(name.split("."))


def still_lost(lost: GoneColumns, changed: Set[str]) -> GoneColumns:
    """Return the columns that are lost after others were added or dropped, at these paths.

    What is lost has come back, or was in a column that was dropped.
    """
    return tuple((name, by) for name, by in lost if changed.isdisjoint(_around(name)))


def _around(path: str) -> Iterator[str]:
    """Yield the path, and those of the columns that it is in.

    >>> list(_around("address.zip"))
    ['address.zip', 'address']
    """
    while path:
        yield path
        path = path.rpartition(".")[0]
