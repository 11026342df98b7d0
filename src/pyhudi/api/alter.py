"""table.alter: which properties of a table can be changed after it was created?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyhudi.api.inputs import parse_upkeep_choice
from pyhudi.format.lock.lock_kind import parse_lock_kind
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.lock_change import use_lock
from pyhudi.session.metadata_table import disable_metadata_table
from pyhudi.session.open import OpenTable
from pyhudi.session.upkeep_setting import record_upkeep
from pyhudi.wording import public_methods
from pyhudi.write.begin import data_schema
from pyhudi.write.column_owners import own_columns, release_columns


class Alterations:
    """Changes of properties that all writers of the table use: its lock, its maintenance policy,
    the owners of its columns, its metadata table."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"<alter of {self._table.storage.uri}: {', '.join(public_methods(type(self)))}>"

    def use_lock(self, lock: str, *, lock_options: Mapping[str, object] | None = None) -> None:
        """Give the table a lock, or another one, which all its writers take from now on.

        `lock` and `lock_options` are as for `create_table` (docs/locks.md). Call it before a Java
        writer starts to write a table that has no lock, or when pyhudi has detected one. Other
        pyhudi processes read the new lock from the table: once this returns, none of them commits
        without it. A pending write whose rows are in memory begins again by itself; one from Spark
        or from a stream fails with a ConflictError and has to be repeated. Java writers do not read
        it. Configure them, and stop them while a lock that they take is changed. If the call fails,
        call it again.
        """
        use_lock(self._table, parse_lock_kind(lock), lock_options)

    def upkeep(self, upkeep: Upkeep | bool = True) -> None:
        """Record the table's maintenance policy, which all its processes follow from now on.

        True stands for `pyhudi.Upkeep()`, and False records that the table has no policy: then no
        writer runs services after its commits. Writers follow with their next write, and services
        that are running end by the old policy. On a table that a Java writer uses as well, turn off
        the services of one of the two (docs/services.md).
        """
        choice = parse_upkeep_choice(upkeep)
        policy = None if choice is False else choice if isinstance(choice, Upkeep) else Upkeep()
        table = self._table
        with table.exclusive:
            wait_ms = table.settings.lock_wait_ms
            record_upkeep(table.storage, table.world, table.overrides, wait_ms, policy)

    def own_columns(self, owner: str, columns: Sequence[str]) -> None:
        """Declare that only this owner writes these columns of a joined table.

        A column has one owner: if two processes declare it at once, one is refused. Repeating a
        declaration changes nothing.
        """
        with self._table.exclusive:
            session = self._table.session()
            schema = data_schema(session)
            own_columns(session.storage, session.config, schema, owner, columns)

    def release_columns(self, owner: str) -> None:
        """Take an owner's columns from it, so that other owners may declare them.

        Values that were written stay. Writes of the owner that have not completed are refused.
        """
        with self._table.exclusive:
            release_columns(self._table.storage, self._table.known().config, owner)

    def disable_metadata_table(self) -> None:
        """Remove Hudi's metadata table, which pyhudi does not maintain, so that it is never stale.

        Readers then list the table's folders. A Hudi writer builds it again unless it runs with
        `hoodie.metadata.enable=false`.
        """
        table = self._table
        with table.exclusive:
            disable_metadata_table(
                table.storage, table.world, table.overrides, table.settings.lock_wait_ms
            )
