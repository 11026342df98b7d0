"""The address of the table, from the options of a Spark source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.errors import InvalidRequestError

#: Options with this prefix are for the store, such as `storage.aws_region`.
STORAGE_PREFIX = "storage."
PATH = "path"


@dataclass(frozen=True, slots=True)
class Address:
    uri: str
    storage_options: dict[str, str] | None


def parse_address(
    options: Mapping[str, str], *, unless: tuple[str, str]
) -> tuple[Address, dict[str, str]]:
    """Return the address, and the other options.

    `unless` has the reason and the next step of the error that is raised without an address.
    """
    others = dict(options)
    given = {name: others.pop(name) for name in options if name.startswith(STORAGE_PREFIX)}
    uri = others.pop(PATH, None)
    if uri is None:
        why, next_step = unless
        raise InvalidRequestError(
            "no table is named", why=f"the option path is not given; {why}", next_step=next_step
        )
    storage = {name.removeprefix(STORAGE_PREFIX): value for name, value in given.items()}
    return Address(uri, storage or None), others
