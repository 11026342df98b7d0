"""Storage that keeps a list of the requests made to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from pyhudi.storage.protocol import Storage

VERBS = frozenset(
    name for name, verb in vars(Storage).items() if callable(verb) and not name.startswith("_")
)


class Request(NamedTuple):
    """One call of a verb of `Storage`. A call about many paths is one request."""

    verb: str
    path: str


class CountedStorage:
    """Another storage, and what was asked of it. It has every attribute of the other one."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.requests: list[Request] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._counted(name, found) if name in VERBS else found

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(where: Any, *args: Any, **named: Any) -> Any:
            path = where if isinstance(where, str) else f"{len(where)} paths"
            self.requests.append(Request(name, path))
            return verb(where, *args, **named)

        return call

    def as_storage(self) -> Storage:
        """Return itself, for the type checker."""
        return cast(Storage, self)

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the requests of the block by their verbs."""
        before, counts = len(self.requests), Counter[str]()
        yield counts
        counts.update(request.verb for request in self.requests[before:])
