"""How pyhudi treats each of Hudi's options: four classes, for reads and for writes.

Honoured: pyhudi does what the option says. Without effect: it concerns machinery that pyhudi does
not have, so the outcome is the same; a warning gives the reason. Refused: to ignore it would give
other rows, or another table, than Hudi's. Unknown: an error that names the nearest known one,
because a mistyped name is an option that silently does not work.

An option may be honoured for one value and refused for another, so where necessary the class
belongs to the value (`ByValue`). A name that ends in `.*` stands for all names that begin so.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyhudi.errors import InvalidRequestError

_VALUE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Honoured:
    what: str  # what pyhudi does; shown in the documentation


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    why: str


Verdict = Honoured | WithoutEffect | Refused


@dataclass(frozen=True, slots=True)
class ByValue:
    """Verdicts by value, upper and lower case alike."""

    verdicts: Mapping[str, Verdict]
    otherwise: Verdict

    def verdict(self, value: str) -> Verdict:
        wanted = value.strip().lower()
        found = (verdict for known, verdict in self.verdicts.items() if known.lower() == wanted)
        return next(found, self.otherwise)


OptionClass = Verdict | ByValue
OptionClasses = Mapping[str, OptionClass]

_NO_FLAG: Final = Refused("it is true or false")


def switch(*, on: Verdict, off: Verdict) -> ByValue:
    """Return the class of an option that is true or false."""
    return ByValue({"true": on, "false": off}, otherwise=_NO_FLAG)


def same(names: Sequence[str], verdict: OptionClass) -> dict[str, OptionClass]:
    return dict.fromkeys(names, verdict)


def one_of(verdicts: dict[tuple[str, ...], Verdict], otherwise: Verdict) -> ByValue:
    """Return the class of an option that is one of several words or Java classes."""
    each = {value: verdict for values, verdict in verdicts.items() for value in values}
    return ByValue(each, otherwise)


def refused_on(why: str) -> ByValue:
    """Return the class of a switch that is refused when on; off is what pyhudi does."""
    return switch(on=Refused(why), off=Honoured("as pyhudi does anyway"))


def refused_off(why: str) -> ByValue:
    """Return the class of a switch that is refused when off; on is what pyhudi does."""
    return switch(on=Honoured("as pyhudi does anyway"), off=Refused(why))


def ignored_on(why: str) -> ByValue:
    """Return the class of a switch for something that pyhudi does not do and that changes no
    rows."""
    return switch(on=WithoutEffect(why), off=Honoured("as pyhudi does anyway"))


def require_known(options: Mapping[str, str], classes: OptionClasses, kind: str) -> None:
    """Raise for the first refused or unknown option; warn of those without effect."""
    for name, value in options.items():
        match _verdict(name, value, classes, kind):
            case Refused(why):
                raise refused_option(name, value, why)
            case WithoutEffect(why):
                warnings.warn(f"{name} has no effect: {why}", stacklevel=4)


def refused_option(name: str, value: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"option {name}={value[:_VALUE_CHARACTERS_MAX]!r} cannot be honoured",
        why=why,
        next_step="Leave it out or change it",
    )


def _verdict(name: str, value: str, classes: OptionClasses, kind: str) -> Verdict:
    found = classes.get(name) or _family(name, classes)
    if found is None:
        raise _unknown(name, classes, kind)
    return found.verdict(value) if isinstance(found, ByValue) else found


def _family(name: str, classes: OptionClasses) -> OptionClass | None:
    """Return the class of the longest prefix of the name that has one."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if found := classes.get(f"{'.'.join(parts[:length])}.*"):
            return found
    return None


def _unknown(name: str, classes: OptionClasses, kind: str) -> InvalidRequestError:
    known = [known for known in classes if not known.endswith("*")]
    nearest = difflib.get_close_matches(name, known, n=1)
    return InvalidRequestError(
        f"there is no {kind} option {name[:_VALUE_CHARACTERS_MAX]!r}",
        why="pyhudi does not know it, so what leaving it out would change is unknown",
        next_step=f"Did you mean {nearest[0]!r}?" if nearest else "Leave it out",
    )
