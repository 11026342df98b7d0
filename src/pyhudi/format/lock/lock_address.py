"""Where the lock of a table is, if it is in a service: ZooKeeper's node, DynamoDB's item.

A table records the address under Hudi's own option names, so that a Spark writer of Hudi finds the
same lock there. Two writers with two addresses do not exclude each other, and neither finds out. So
nothing is guessed. Hudi's implicit variants, which derive the address from the table's own, are not
offered: `/t` and `file:///t` are one table and would have two locks.

An address holds no credentials: the characters that it may consist of leave no room for any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.properties import TABLE_NAME, TableProperties

OPTION_PREFIXES: Final = {
    LockKind.ZOOKEEPER: "hoodie.write.lock.zookeeper.",
    LockKind.DYNAMODB: "hoodie.write.lock.dynamodb.",
}

ADDRESS_OPTIONS: Final = {
    LockKind.ZOOKEEPER: (
        *("url", "port", "base_path", "lock_key", "session_timeout_ms", "connection_timeout_ms"),
    ),
    LockKind.DYNAMODB: ("table", "partition_key", "region", "endpoint_url"),
}

ZOOKEEPER_PORT: Final = 2181  # where none is named
SESSION_TIMEOUT_MS: Final = 30_000  # ZooKeeper grants 40 s at most unless configured otherwise
CONNECTION_TIMEOUT_MS: Final = 15_000

_CHARACTERS_MAX = 1_000
_NUMBER_DIGITS_MAX = 9
_TIMEOUTS_MS = range(1_000, 600_001)

_HOST = r"(?:[A-Za-z0-9._\-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?"
_HOST_LIST = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[A-Za-z0-9._\-/]*[A-Za-z0-9._\-])?\Z")
_EACH_HOST = re.compile(_HOST)
_NODE_NAME = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+\Z")
_DYNAMODB_TABLE = re.compile(r"[A-Za-z0-9_.\-]{3,255}\Z")
_REGION = re.compile(r"[a-z0-9\-]{1,40}\Z")
_ENDPOINT = re.compile(r"https?://(?:[A-Za-z0-9._\-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/?\Z")
_SECRET = re.compile(r"secret|token|password|credential|access|auth", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperAddress:
    """The node under which Hudi's ZookeeperBasedLockProvider queues. Timeouts may differ."""

    url: str  # hosts with ports, after a comma each, and a root folder if there is one
    base_path: str
    lock_key: str
    session_timeout_ms: int = field(default=SESSION_TIMEOUT_MS, compare=False)
    connection_timeout_ms: int = field(default=CONNECTION_TIMEOUT_MS, compare=False)

    @property
    def path(self) -> str:
        return f"{self.base_path}/{self.lock_key}"

    def __str__(self) -> str:
        return f"{self.path} at {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamodbAddress:
    """The item that Hudi's DynamoDBBasedLockProvider writes."""

    table: str
    partition_key: str
    region: str
    endpoint_url: str | None = None

    def __str__(self) -> str:
        return f"item {self.partition_key!r} of the DynamoDB table {self.table} in {self.region}"


LockAddress = ZookeeperAddress | DynamodbAddress


class _UnusableOptionError(ValueError):
    """An option, and what it should be."""

    def __init__(self, option: str, expected: str) -> None:
        super().__init__(option, expected)
        self.option = option
        self.expected = expected


def parse_lock_address(
    kind: LockKind, options: Mapping[str, object] | None, table_name: str
) -> LockAddress | None:
    """Return the address that the caller's `lock_options` describe; None without options.

    An option has Hudi's name, whole or its last part. InvalidRequestError for an address that
    cannot exist.
    """
    if options is None or (not options and kind not in OPTION_PREFIXES):
        return None
    if kind not in OPTION_PREFIXES:
        raise _refused(
            f"the lock {kind.value!r} takes no lock_options",
            "such a lock needs no address",
            "Leave lock_options out, or choose lock='zookeeper' or lock='dynamodb'",
        )
    texts = _plain_texts(kind, options)
    try:
        return _PARSERS[kind](texts, table_name)
    except _UnusableOptionError as unusable:
        given = texts.get(unusable.option)
        what = "is missing" if given is None else f"cannot be {_shown(given)}"
        raise _refused(
            f"lock_options: {unusable.option} {what}",
            f"it must be {unusable.expected}",
            f"Give {unusable.option} as all writers of the table have it",
        ) from None


def recorded_lock_address(kind: LockKind, properties: TableProperties) -> LockAddress | None:
    """Return the address that the table records; None if it records none, or only a part.

    CorruptTableError for a value that cannot be part of an address.
    """
    if kind not in OPTION_PREFIXES:
        return None
    prefix, names = OPTION_PREFIXES[kind], ADDRESS_OPTIONS[kind]
    recorded = {name: text for name in names if (text := properties.text(f"{prefix}{name}"))}
    try:
        return _PARSERS[kind](recorded, properties.text(TABLE_NAME) or "")
    except _UnusableOptionError as unusable:
        if unusable.option not in recorded:
            return None
        raise properties.malformed(f"{prefix}{unusable.option}", unusable.expected) from None


def address_properties(address: LockAddress | None) -> dict[str, str]:
    """Return the properties that record the address of a table's lock."""
    match address:
        case ZookeeperAddress():
            prefix = OPTION_PREFIXES[LockKind.ZOOKEEPER]
            recorded = {
                "url": address.url,
                "base_path": address.base_path,
                "lock_key": address.lock_key,
                **_unless(address.session_timeout_ms, SESSION_TIMEOUT_MS, "session_timeout_ms"),
                **_unless(
                    address.connection_timeout_ms, CONNECTION_TIMEOUT_MS, "connection_timeout_ms"
                ),
            }
        case DynamodbAddress():
            prefix = OPTION_PREFIXES[LockKind.DYNAMODB]
            recorded = {
                "table": address.table,
                "partition_key": address.partition_key,
                "region": address.region,
                **({"endpoint_url": address.endpoint_url} if address.endpoint_url else {}),
            }
        case None:
            return {}
    return {f"{prefix}{name}": text for name, text in recorded.items()}


def require_fitting_address(kind: LockKind, address: LockAddress | None) -> None:
    """Raise InvalidRequestError if a lock of this kind has no address, or one of another kind."""
    wanted = {LockKind.ZOOKEEPER: ZookeeperAddress, LockKind.DYNAMODB: DynamodbAddress}.get(kind)
    if wanted is None and address is None:
        return
    if wanted is None or address is None or not isinstance(address, wanted):
        needed = {
            LockKind.ZOOKEEPER: "{'url': 'host:2181', 'base_path': '/locks'}",
            LockKind.DYNAMODB: "{'table': 'locks', 'region': 'eu-west-1'}",
        }.get(kind)
        raise _refused(
            f"the lock {kind.value!r} has no fitting address",
            f"{address or 'none'} was passed for it",
            f"Pass lock_options={needed}, as Hudi's writers have it"
            if needed
            else "Leave lock_options out",
        )


def _refused(what: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(what, why=why, next_step=next_step)


def _unless(value: int, default: int, name: str) -> dict[str, str]:
    return {} if value == default else {name: str(value)}


def _plain_texts(kind: LockKind, options: Mapping[str, object]) -> dict[str, str]:
    """Return the options as text, by the last part of their names."""
    texts: dict[str, str] = {}
    if not isinstance(options, Mapping):
        raise _refused(
            f"lock_options of type {type(options).__name__} cannot be used",
            "it is not a mapping",
            "Write lock_options={...}",
        )
    for name, value in options.items():
        short = str(name).removeprefix(OPTION_PREFIXES[kind])
        if short not in ADDRESS_OPTIONS[kind]:
            raise _refused(
                f"lock_options: there is no option {short[:100]!r} of the lock {kind.value!r}",
                _why_unknown(short),
                f"Give some of {', '.join(ADDRESS_OPTIONS[kind])}",
            )
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise _refused(
                f"lock_options: {short} cannot be {value!r:.100}",
                "it is neither a text nor a number",
                f"Give {short} as text",
            )
        texts[short] = str(value).strip()
    return texts


def _why_unknown(name: str) -> str:
    if _SECRET.search(name):
        return (
            "credentials do not belong to a lock's address; they come from where the service's own"
            " tools find them, such as the environment"
        )
    return "it says nothing about where the lock is"


# -- from options to addresses


def _zookeeper_address(texts: Mapping[str, str], table_name: str) -> LockAddress:
    url = _matching(texts, "url", _HOST_LIST, "hosts with ports, such as 'zk1:2181,zk2:2181'")
    ports = {int(host[1] or ZOOKEEPER_PORT) for host in _EACH_HOST.finditer(url.partition("/")[0])}
    if not all(0 < port < 1 << 16 for port in ports):
        raise _UnusableOptionError("url", "hosts with ports up to 65535")
    if "port" in texts and ports != {_number(texts, "port", 0, range(1, 1 << 16))}:
        # Hudi's Java writers ignore this option.
        raise _UnusableOptionError("port", "the port that url names, for Hudi reads only url")
    return ZookeeperAddress(
        url=url,
        base_path=_node_path(texts, "base_path", None),
        lock_key=_node_path(texts, "lock_key", table_name),
        session_timeout_ms=_number(texts, "session_timeout_ms", SESSION_TIMEOUT_MS, _TIMEOUTS_MS),
        connection_timeout_ms=_number(
            texts, "connection_timeout_ms", CONNECTION_TIMEOUT_MS, _TIMEOUTS_MS
        ),
    )


def _dynamodb_address(texts: Mapping[str, str], table_name: str) -> LockAddress:
    key = texts.get("partition_key") or table_name
    if not 0 < len(key) <= _CHARACTERS_MAX:
        raise _UnusableOptionError("partition_key", f"1 to {_CHARACTERS_MAX} characters")
    endpoint = None
    if texts.get("endpoint_url"):
        endpoint = _matching(texts, "endpoint_url", _ENDPOINT, "such as 'https://host:8000'")
    return DynamodbAddress(
        table=_matching(texts, "table", _DYNAMODB_TABLE, "the name of a DynamoDB table"),
        partition_key=key,
        region=_matching(texts, "region", _REGION, "an AWS region, such as 'eu-west-1'"),
        endpoint_url=endpoint,
    )


def _matching(
    texts: Mapping[str, str], option: str, pattern: re.Pattern[str], expected: str
) -> str:
    text = texts.get(option, "")
    if len(text) > _CHARACTERS_MAX or not pattern.match(text):
        raise _UnusableOptionError(option, expected)
    return text


def _node_path(texts: Mapping[str, str], option: str, default: str | None) -> str:
    """Return a path that ZooKeeper's clients take unchanged.

    They refuse or rewrite any other.
    """
    text = texts.get(option) or default or ""
    is_absolute = default is None
    parts = text.removeprefix("/").split("/") if is_absolute else text.split("/")
    is_sound = all(_NODE_NAME.match(part) and part not in (".", "..") for part in parts)
    if len(text) > _CHARACTERS_MAX or not is_sound or text.startswith("/") != is_absolute:
        expected = "a path such as '/locks'" if is_absolute else "a name such as 'orders'"
        raise _UnusableOptionError(option, f"{expected}, without empty parts or dots")
    return text


def _number(texts: Mapping[str, str], option: str, default: int, among: range) -> int:
    text = texts.get(option)
    if text is None:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
    if not is_number or int(text) not in among:
        raise _UnusableOptionError(option, f"a number from {among[0]} to {among[-1]}")
    return int(text)


_PARSERS: dict[LockKind, Callable[[Mapping[str, str], str], LockAddress]] = {
    LockKind.ZOOKEEPER: _zookeeper_address,
    LockKind.DYNAMODB: _dynamodb_address,
}


def _shown(given: str) -> str:
    """Return the value without the user and password that an address may begin with.

    >>> _shown("zk:2181"), _shown("https://key:secret@host")
    ("'zk:2181'", "'host' with something before an @")
    """
    _, at, rest = given.rpartition("@")
    return f"{rest[:100]!r} with something before an @" if at else f"{rest[:100]!r}"
