"""A session with ZooKeeper: the few requests that a lock makes, each with an end.

kazoo puts requests of a broken connection into a queue for as long as it lasts. Here each waits for
a few seconds and then counts as unanswered; it may still be made later.

kazoo is imported when the first session is opened, since most users have no ZooKeeper.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.storage.redaction import redacted

ANSWER_S = 5.0  # at most; a third of a short session, but not less than a second
_FEWEST_MS = 4_000  # what ZooKeeper grants at least, unless configured otherwise

_REFUSALS = ("NoAuthError", "AuthFailedError", "InvalidACLError", "SessionClosedRequireSaslError")


#: kazoo logs a warning for each failed attempt. Without logging configured, only our error is
#: shown, once.
_LOGGER = logging.getLogger("pyhudi.zookeeper")
_LOGGER.addHandler(logging.NullHandler())


class SessionOverError(Exception):
    """The session ended, and everything that it had created with it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's bytes, and when it was created by the service's clock."""

    data: bytes
    created_ms: int


class ZookeeperSession(Protocol):
    """What a lock needs of ZooKeeper. UnavailableError if it does not answer."""

    @property
    def timeout_ms(self) -> int:
        """How long the session lives without a request from us; known once a request succeeded."""

    def connect(self, wait_ms: int) -> None:
        """Wait until there is a connection; return at once if there is one."""

    def create(self, path: str, data: bytes) -> None:
        """Create a node that ends with the session, with a number after its name.

        The nodes above it are created as well, and stay.
        """

    def children(self, path: str) -> list[str]: ...

    def node(self, path: str) -> Node | None: ...

    def exists(self, path: str) -> bool:
        """True if the node exists, by the leader, so that no server that lags behind answers.

        SessionOverError if the session is over.
        """

    def close(self) -> None:
        """End the session, with everything that it created.

        If the request does not reach ZooKeeper, the session ends by itself.
        """


def require_kazoo() -> None:
    """Raise InvalidRequestError, with what to install, if ZooKeeper's client is missing."""
    try:
        import kazoo  # noqa: F401
    except ImportError:
        raise InvalidRequestError(
            "the lock 'zookeeper' needs a library that is not installed",
            why="kazoo cannot be imported",
            next_step="Install it with pip install 'pyhudi[zookeeper]'",
        ) from None


class KazooSession:
    """A session by kazoo. It begins at the first `connect`."""

    def __init__(self, address: ZookeeperAddress) -> None:
        require_kazoo()
        from kazoo.client import KazooClient

        self._address = address
        self._client = KazooClient(
            hosts=address.url,
            logger=_LOGGER,
            timeout=address.session_timeout_ms / 1000,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1},
        )
        self._negotiated_ms: int | None = None
        self._note_negotiated_timeout()
        self._is_live: Any = None

    def _note_negotiated_timeout(self) -> None:
        """Read the timeout that the server grants, which may be less than requested.

        kazoo keeps it in a private attribute. If another release of kazoo hides it elsewhere, the
        least that a server grants counts.
        """
        connection, hosts = self._client._connection, self._client.hosts
        connect: Callable[..., tuple[float, float]] | None = getattr(connection, "_connect", None)
        if connect is None:
            return

        def noted(*arguments: Any) -> tuple[float, float]:
            read_ms, share_ms = connect(*arguments)
            self._negotiated_ms = round(share_ms * len(hosts))
            return read_ms, share_ms

        connection._connect = noted

    @property
    def timeout_ms(self) -> int:
        if self._negotiated_ms is None:
            return min(_FEWEST_MS, self._address.session_timeout_ms)
        return self._negotiated_ms

    def connect(self, wait_ms: int) -> None:
        if self._is_live is None:
            self._is_live = self._client.start_async()
        if not self._is_live.wait(wait_ms / 1000):
            raise UnavailableError(
                f"ZooKeeper does not answer about the lock {self._address}",
                why=f"there was no connection within {wait_ms} ms when it was tried last",
                next_step="Check that the hosts run and can be reached, and repeat the call",
            )

    def create(self, path: str, data: bytes) -> None:
        self._answer(
            lambda: self._client.create_async(
                path, data, ephemeral=True, sequence=True, makepath=True
            )
        )

    def children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            names: list[str] = self._answer(
                lambda: self._client.get_children_async(path), plain=(NoNodeError,)
            )
        except NoNodeError:
            return []  # no node is in the queue; Curator's folder is removed when it is empty
        return names

    def node(self, path: str) -> Node | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = self._answer(lambda: self._client.get_async(path), plain=(NoNodeError,))
        except NoNodeError:
            return None
        return Node(data, stat.ctime)

    def exists(self, path: str) -> bool:
        from kazoo.exceptions import SessionExpiredError

        def asked() -> Any:
            self._client.sync_async(path)  # requests of one session are answered in their order
            return self._client.exists_async(path)

        try:
            return self._answer(asked, plain=(SessionExpiredError,)) is not None
        except SessionExpiredError as error:
            raise SessionOverError from error

    def _answer(
        self, request: Callable[[], Any], *, plain: tuple[type[Exception], ...] = ()
    ) -> Any:
        from kazoo.exceptions import KazooException

        try:
            return request().get(timeout=max(1.0, min(ANSWER_S, self.timeout_ms / 3000)))
        except plain:
            raise
        except (KazooException, self._client.handler.timeout_exception) as error:
            raise _told(error, self._address) from error

    def close(self) -> None:
        if self._is_live is None:
            return
        with contextlib.suppress(Exception):  # whatever it is, the session ends by itself
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()


def _told(error: Exception, address: ZookeeperAddress) -> HudiError:
    name = type(error).__name__
    if name in _REFUSALS:
        return InvalidRequestError(
            f"ZooKeeper refuses the lock {address}",
            why=f"{name}: {redacted(str(error))}".rstrip(": ."),
            next_step="Have the path opened to this process; pyhudi and Hudi use no credentials",
        )
    return UnavailableError(
        f"ZooKeeper does not answer about the lock {address}",
        why=f"{name}: {redacted(str(error))}".rstrip(": ."),
        next_step="Repeat the call",
    )
