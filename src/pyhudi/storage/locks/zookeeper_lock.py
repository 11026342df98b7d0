"""Hudi's ZooKeeper lock: a queue of nodes that end with their sessions.

A process that wants the lock creates a numbered node under the lock's path and has the lock once no
node is before it. The names are those of Curator's `InterProcessMutex`, which Hudi's Java writers
use: `_c_<uuid>-lock-<number>`. What comes after the last `lock-` decides the order, as text, and a
name without that counts whole; we sort by the same rule, so that all clients read the queue alike.

The uuid is unique: after a create whose reply got lost we find our node by it, as Curator does.

**A lock is lost with its session**, without notice: a process that was frozen wakes up as an owner,
and another has the lock. So an owner notes when it sent the last request that ZooKeeper answered.
Its session lives for the granted time from then at least, whichever server it talks to, for the
request is one that the leader answers. The owner counts that time on its steady clock, with a
margin, and sends another request six times within it, in the background. kazoo's own pings keep the
session alive, too, but their answers are not visible to us.

Each acquisition has a session of its own, which ends when the lock is released. With it every node
ends that we may have created, known to us or not.
"""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.errors import HudiError
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.lock import MARGIN_MS, HeldLock, Taken, moment, quoted, wait_for
from pyhudi.storage.locks.zookeeper_session import (
    KazooSession,
    SessionOverError,
    ZookeeperSession,
    require_kazoo,
)
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

#: The longest pause between two looks at the queue. The next in line should not be kept waiting,
#: and a look costs ZooKeeper next to nothing.
LOOK_MS = 100
LOOKS_PER_SESSION = 6
CONNECT_LEAST_MS = 2_000  # also for callers that do not want to wait for others

_LOCK_NAME = "lock-"
_LABEL_CHARACTERS_MAX = 200

Connect = Callable[[ZookeeperAddress], ZookeeperSession]


def queue_order(name: str) -> str:
    """Return the text by which Curator sorts the nodes.

    >>> queue_order("_c_5d8e-lock-0000000042"), queue_order("garbage")
    ('0000000042', 'garbage')
    """
    return name[name.rfind(_LOCK_NAME) + len(_LOCK_NAME) :] if _LOCK_NAME in name else name


class ZookeeperLock:
    """The lock of a table whose writers have agreed on a node."""

    kind = LockKind.ZOOKEEPER

    def __init__(
        self,
        storage: Storage,
        world: World,
        address: ZookeeperAddress,
        *,
        connect: Connect | None = None,
    ) -> None:
        if connect is None:
            require_kazoo()
        self._table_uri = storage.uri
        self._world = world
        self._address = address
        self._connect = connect or KazooSession

    def acquire(self, wait_ms: int) -> HeldLock:
        session = self._connect(self._address)
        connect_ms = self._connect_ms(wait_ms)
        held = _HeldZookeeperLock(session, self._world, self._address.path, connect_ms)
        try:
            wait_for(
                held.claim,
                self._world,
                wait_ms=wait_ms,
                table_uri=self._table_uri,
                poll_ms=LOOK_MS,
            )
            held.keep()
        except BaseException:
            session.close()
            raise
        return held

    def is_taken_by(self, held: HeldLock, wait_ms: int) -> bool:
        """True if it is the lock that was taken, perhaps through other hosts.

        A node's name belongs to one acquisition: if ours is in the queue, it is the same queue.
        """
        if not isinstance(held, _HeldZookeeperLock):
            return False
        node = f"{self._address.path}/{held.node_name}"
        session = self._connect(self._address)

        def asked() -> bool | Taken:
            session.connect(self._connect_ms(wait_ms))
            try:
                return session.exists(node)
            except SessionOverError:
                return Taken("the session in which it was asked for ended", _REPEAT)

        try:
            return wait_for(asked, self._world, wait_ms=wait_ms, table_uri=self._table_uri)
        finally:
            session.close()

    def _connect_ms(self, wait_ms: int) -> int:
        return min(self._address.connection_timeout_ms, max(wait_ms, CONNECT_LEAST_MS))


class _HeldZookeeperLock:
    """One writer's node in the queue, from the first attempt to get it.

    `_confirmed_ms` only grows and `_is_over` only ever becomes True, so that the renewal, which
    runs beside the writer, needs no guard.
    """

    def __init__(self, session: ZookeeperSession, world: World, path: str, connect_ms: int) -> None:
        self._session = session
        self._world = world
        self._path = path
        self._connect_ms = connect_ms
        self._prefix = f"_c_{new_uuid(world)}-{_LOCK_NAME}"
        self._must_create = True
        self._node = ""
        self._confirmed_ms = 0
        self._is_over = False
        self._stop_looking = _nothing

    @property
    def node_name(self) -> str:
        return self._node.rpartition("/")[2]

    # -- getting it

    def claim(self) -> _HeldZookeeperLock | Taken:
        self._session.connect(self._connect_ms)
        if self._must_create:
            self._must_create = False  # whatever the outcome, look before another attempt
            label = self._world.label[:_LABEL_CHARACTERS_MAX]
            self._session.create(f"{self._path}/{self._prefix}", label.encode())
        sent_ms = self._world.elapsed_ms()
        queue = sorted(self._session.children(self._path), key=queue_order)
        mine = [name for name in queue if name.startswith(self._prefix)]
        if not mine:
            self._must_create = True
            return Taken("our place in the queue was lost, as with a session's end", _REPEAT)
        # Of equal names none is ours for sure: then no node is first.
        ahead = (n for n in queue if n not in mine and queue_order(n) <= queue_order(mine[0]))
        if (first := next(ahead, None)) is not None:
            return self._taken(first)
        self._node, self._confirmed_ms = f"{self._path}/{mine[0]}", sent_ms
        return self

    def _taken(self, name: str) -> Taken:
        node = self._session.node(f"{self._path}/{name}")
        if node is None:
            return Taken("its owner changed just now", _REPEAT)
        owner = quoted(node.data.decode("utf-8", "replace")) if node.data else "a nameless writer"
        return Taken(
            f"{owner} has it, in the queue since {moment(node.created_ms)} as {quoted(name)}",
            "Repeat the call when that writer is done; if it is dead its session ends by itself,"
            f" and only its operator should delete a node under {self._path!r}",
        )

    # -- keeping it

    def keep(self) -> None:
        """Check from time to time in the background whether it is still ours, until it is not."""
        interval_ms = max(1, self._session.timeout_ms // LOOKS_PER_SESSION)
        self._stop_looking = self._world.every(interval_ms, self._look)

    def _look(self) -> None:
        if self.remaining_ms() == 0:
            return
        try:
            self._confirm()
        except HudiError:
            return  # unknown; several checks fit into a session

    def _confirm(self) -> None:
        """Ask ZooKeeper whether our node exists, and count from when the request was sent."""
        sent_ms = self._world.elapsed_ms()
        try:
            is_there = self._session.exists(self._node)
        except SessionOverError:
            is_there = False
        if is_there:
            self._confirmed_ms = max(self._confirmed_ms, sent_ms)
        else:
            self._is_over = True

    def remaining_ms(self) -> int:
        timeout_ms = self._session.timeout_ms
        safe_ms = timeout_ms - min(MARGIN_MS, timeout_ms // 4)
        left_ms = self._confirmed_ms + safe_ms - self._world.elapsed_ms()
        if left_ms <= 0:
            self._is_over = True
        return 0 if self._is_over else left_ms

    def is_held(self) -> bool:
        if self.remaining_ms() > 0:
            self._confirm()
        return self.remaining_ms() > 0

    # -- releasing it

    def release(self) -> None:
        self._is_over = True
        self._stop_looking()
        self._stop_looking = _nothing
        self._session.close()


_REPEAT = "Repeat the call"


def _nothing() -> None:
    """Do nothing, as the stop of a check that does not run."""
