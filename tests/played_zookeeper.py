"""ZooKeeper as its clients see it, with the time of a `Universe`: no server, and no waiting.

Sessions end when their process was silent for too long; it is silent while it is frozen, and speaks
by itself otherwise, as the real client does in its background. Requests can go unanswered, before
or after they were carried out. What the real server does is asked in `conformance/`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from locking_world import Universe
from pyhudi.errors import UnavailableError
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.storage.locks.zookeeper_lock import ZookeeperLock
from pyhudi.storage.locks.zookeeper_session import Node, SessionOverError

ADDRESS = ZookeeperAddress(url="played:2181", base_path="/locks", lock_key="orders")


@dataclass
class _Kept:
    node: Node
    owner: PlayedSession | None  # None for one that outlives its creator


@dataclass
class PlayedZookeeper:
    """The service: its nodes, and whether it answers."""

    universe: Universe
    nodes: dict[str, _Kept] = field(default_factory=dict)
    is_down: bool = False
    loses_replies: int = 0  # of the next requests: they are made, and nobody hears of it
    sessions: list[PlayedSession] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def lock(self, label: str, address: ZookeeperAddress = ADDRESS) -> ZookeeperLock:
        """The lock as the writer of this name sees it."""

        def connect(address: ZookeeperAddress) -> PlayedSession:
            self.sessions.append(PlayedSession(self, label, address.session_timeout_ms))
            return self.sessions[-1]

        world = self.universe.world(label, skew_ms=self.universe.skew_ms.get(label, 0))
        return ZookeeperLock(self.universe.memory(), world, address, connect=connect)

    def names(self) -> list[str]:
        """The nodes in the queue, in no order."""
        self.expire()
        prefix = f"{ADDRESS.path}/"
        return [path.removeprefix(prefix) for path in self.nodes if path.startswith(prefix)]

    def put(self, name: str, data: bytes = b"", owner: PlayedSession | None = None) -> None:
        """Put a node with this very name into the queue, as anybody may."""
        self.nodes[f"{ADDRESS.path}/{name}"] = _Kept(Node(data, self.universe.now_ms), owner)

    def next_number(self) -> str:
        return f"{next(self._numbers):010d}"

    def expire(self) -> None:
        """End the sessions that were silent for too long."""
        for session in self.sessions:
            silent_ms = self.universe.now_ms - session.heard_ms
            if not self.is_down and silent_ms > session.timeout_ms:
                self.end(session)

    def end(self, session: PlayedSession) -> None:
        session.is_over = True
        self.nodes = {path: kept for path, kept in self.nodes.items() if kept.owner is not session}


class PlayedSession:
    """One client's session. The client begins another, as the real one does, if it has ended."""

    def __init__(self, zookeeper: PlayedZookeeper, label: str, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.heard_ms = zookeeper.universe.now_ms
        self.is_over = False
        self._zookeeper = zookeeper
        world = zookeeper.universe.world(label, skew_ms=zookeeper.universe.skew_ms.get(label, 0))
        self._stop_pinging = world.every(timeout_ms // 3, self._ping)

    def _ping(self) -> None:
        self._zookeeper.expire()
        if not self._zookeeper.is_down:
            self.heard_ms = self._zookeeper.universe.now_ms

    def connect(self, wait_ms: int) -> None:
        if self._zookeeper.is_down:
            self._zookeeper.universe.pass_ms(wait_ms)
            raise _unanswered()

    def _answer(self, deed: Callable[[], object]) -> None:
        zookeeper = self._zookeeper
        if zookeeper.is_down:
            raise _unanswered()
        zookeeper.expire()
        self.heard_ms = zookeeper.universe.now_ms
        self.is_over = False
        deed()
        if zookeeper.loses_replies:
            zookeeper.loses_replies -= 1
            raise _unanswered()

    def create(self, path: str, data: bytes) -> None:
        def created() -> None:
            number = self._zookeeper.next_number()
            self._zookeeper.nodes[f"{path}{number}"] = _Kept(
                Node(data, self._zookeeper.universe.now_ms), self
            )

        self._answer(created)

    def children(self, path: str) -> list[str]:
        names: list[str] = []
        self._answer(
            lambda: names.extend(
                node.rpartition("/")[2]
                for node in self._zookeeper.nodes
                if node.rpartition("/")[0] == path
            )
        )
        return names

    def node(self, path: str) -> Node | None:
        found: list[Node] = []
        self._answer(
            lambda: found.extend(
                kept.node for there, kept in self._zookeeper.nodes.items() if there == path
            )
        )
        return found[0] if found else None

    def exists(self, path: str) -> bool:
        self._zookeeper.expire()
        if self.is_over and not self._zookeeper.is_down:
            raise SessionOverError
        return self.node(path) is not None

    def close(self) -> None:
        self._stop_pinging()
        if not self._zookeeper.is_down:
            self._zookeeper.end(self)


def _unanswered() -> UnavailableError:
    return UnavailableError("no answer", why="it is played so", next_step="Repeat the call")
