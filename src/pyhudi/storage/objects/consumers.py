"""Where a table stores its registered consumers: one small object each, under its name.

An object is replaced only as the version that was read, so of two processes that change one
consumer at once the second reads it again. How long a consumer has been silent is its object's age,
by the store's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.table.consumer_file import (
    CONSUMER_BYTES_MAX,
    CONSUMERS_FOLDER,
    Consumer,
    consumer_path,
    decode_consumer,
    encode_consumer,
    is_consumer_path,
)
from pyhudi.storage.protocol import Storage

ROUNDS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    """A consumer, and when its object was last written by the store's clock."""

    consumer: Consumer
    modified_ms: int

    def silent_ms(self, now_ms: int) -> int:
        """Return how long the consumer has been silent, at a time of the store's clock."""
        return max(0, now_ms - self.modified_ms) + self.consumer.silent_ms

    def holds_at(self, now_ms: int) -> bool:
        """True if cleaning respects the consumer, at a time of the store's clock."""
        return not self.consumer.is_expired(self.silent_ms(now_ms))


def load_consumers(storage: Storage) -> tuple[FoundConsumer, ...]:
    """Return every consumer of the table, by name."""
    return tuple(_found(storage))


def _found(storage: Storage) -> Iterator[FoundConsumer]:
    for stat in storage.list(CONSUMERS_FOLDER):
        if is_consumer_path(stat.path) and (consumer := _load(storage, stat.path)) is not None:
            yield FoundConsumer(consumer, stat.modified_ms)


def load_consumer(storage: Storage, name: str) -> FoundConsumer | None:
    path = consumer_path(name)
    stat = storage.stat(path)
    consumer = None if stat is None else _load(storage, path)
    return None if stat is None or consumer is None else FoundConsumer(consumer, stat.modified_ms)


def change_consumer(
    storage: Storage, name: str, change: Callable[[Consumer | None], Consumer]
) -> Consumer:
    """Change the stored consumer, although others may change it at the same time.

    `change` is called again whenever another change came first. What it raises is raised.
    """
    path = consumer_path(name)
    for _ in range(ROUNDS_MAX):
        stat = storage.stat(path)
        now = None if stat is None else _load(storage, path)
        changed = change(now)
        data = encode_consumer(changed)
        if changed == now:
            return changed
        if stat is None or now is None:
            if storage.create(path, data) or _load(storage, path) == changed:
                return changed
        elif _replaced(storage, path, data, stat.etag) or _load(storage, path) == changed:
            return changed
    raise ConflictError(
        f"the consumer {name!r} could not be changed",
        why=f"others changed it first, {ROUNDS_MAX} times in a row",
        next_step="Let one process at a time use the name, and repeat the call",
    )


def remove_consumer(storage: Storage, name: str) -> bool:
    """Remove the consumer; True if there was one."""
    path = consumer_path(name)
    is_known = storage.stat(path) is not None
    storage.delete(path)
    return is_known


def put_back_consumer(
    storage: Storage, name: str, changed: Consumer, before: FoundConsumer | None
) -> None:
    """Reverse a change, unless another one came after it.

    That does not count as a sign of life of the consumer.
    """
    path = consumer_path(name)
    stat = storage.stat(path)
    if stat is None or _load(storage, path) != changed:
        return
    if before is None:
        storage.delete(path)
    else:
        silent_ms = before.silent_ms(stat.modified_ms)
        again = replace(before.consumer, silent_ms=silent_ms)
        _replaced(storage, path, encode_consumer(again), stat.etag)


def _replaced(storage: Storage, path: str, data: bytes, etag: str | None) -> bool:
    try:
        return etag is not None and storage.replace(path, data, etag=etag) is not None
    except InvalidRequestError:  # a store that cannot replace by version: the last one counts
        storage.write(path, data)
        return True


def _load(storage: Storage, path: str) -> Consumer | None:
    try:
        return decode_consumer(storage.read(path, 0, CONSUMER_BYTES_MAX + 1), path)
    except FileNotFoundError:
        return None  # released since it was listed
