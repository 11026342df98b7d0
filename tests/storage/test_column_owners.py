"""Declarations of owners: one history, whoever declares at the same moment, and whatever fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.errors import ConflictError, CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.table.column_owners import OWNERS_BYTES_MAX, ColumnOwners, encode_owners
from pyhudi.storage.objects.column_owners import (
    OWNERS_FOLDER,
    ROUNDS_MAX,
    change_owners,
    declare_owners,
    load_owners,
    owners_path,
)
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

A, B = ColumnOwners({"a": ("x", "y")}), ColumnOwners({"b": ("y", "z")})


def still() -> int:
    """A clock that nobody looks at."""
    return 0


@pytest.fixture
def storage() -> Storage:
    return MemoryStorage(still)


def test_a_table_without_declarations_has_no_owners(storage: Storage) -> None:
    assert load_owners(storage) == ColumnOwners()


def test_each_declaration_is_an_object_and_the_last_one_counts(storage: Storage) -> None:
    declare_owners(storage, A)
    declare_owners(storage, ColumnOwners({"c": ("w",)}))
    change_owners(storage, lambda now: now.without("a"))
    found = [stat.path for stat in storage.list(OWNERS_FOLDER)]
    assert found == [owners_path(number) for number in (1, 2, 3)]
    assert load_owners(storage) == ColumnOwners({"c": ("w",)})


def test_numbers_count_as_numbers(storage: Storage) -> None:
    for number in range(12):
        declare_owners(storage, ColumnOwners({f"o{number}": (f"c{number}",)}))
    assert len(load_owners(storage).columns) == 12


def test_the_same_declaration_again_makes_no_object(storage: Storage) -> None:
    declare_owners(storage, A)
    declare_owners(storage, A)
    assert len(list(storage.list(OWNERS_FOLDER))) == 1


def test_of_several_owners_all_are_declared_or_none(storage: Storage) -> None:
    declare_owners(storage, A)
    with pytest.raises(InvalidRequestError, match="owner 'a' has it"):
        declare_owners(storage, ColumnOwners({"c": ("w",), "b": ("y",)}))
    assert load_owners(storage) == A


@pytest.mark.parametrize("name", ["0.json", "01.json", "x.json", "2.json.tmp", "2", "-1.json"])
def test_objects_of_other_names_are_passed_over(storage: Storage, name: str) -> None:
    declare_owners(storage, A)
    storage.write(f"{OWNERS_FOLDER}/{name}", b"?")
    assert load_owners(storage) == A


def test_a_damaged_declaration_is_an_error_and_not_a_table_without_owners(
    storage: Storage,
) -> None:
    storage.write(owners_path(3), b"?")
    with pytest.raises(CorruptTableError, match=r"owners/3\.json"):
        load_owners(storage)


def test_a_declaration_that_vanishes_between_two_looks_is_an_error_to_be_tried_again() -> None:
    class Vanishing(MemoryStorage):
        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            raise FileNotFoundError(path)

    vanishing = Vanishing(still)
    vanishing.write(owners_path(1), encode_owners(A))
    with pytest.raises(UnavailableError, match="is gone"):
        load_owners(vanishing)


# ---- races


class Raced(MemoryStorage):
    """Lets somebody else declare just before one of ours is created."""

    def __init__(self, rivals: list[ColumnOwners]) -> None:
        super().__init__(still)
        self.rivals = rivals

    def create(self, path: str, data: bytes) -> bool:
        if self.rivals:
            rival = self.rivals.pop(0)
            declare_owners(self, rival)
        return super().create(path, data)


def test_who_loses_the_race_for_a_column_is_told_who_has_it() -> None:
    storage = Raced([B])
    with pytest.raises(InvalidRequestError, match="'y': owner 'b' has it"):
        declare_owners(storage, A)
    assert load_owners(storage) == B


def test_who_loses_a_race_for_other_columns_is_declared_behind() -> None:
    storage = Raced([ColumnOwners({"b": ("z",)})])
    declare_owners(storage, A)
    assert load_owners(storage) == ColumnOwners({"b": ("z",), "a": ("x", "y")})


def test_who_loses_every_race_gives_up_some_day() -> None:
    class Unlucky(MemoryStorage):
        def create(self, path: str, data: bytes) -> bool:
            return False

    with pytest.raises(ConflictError, match=f"{ROUNDS_MAX} times"):
        declare_owners(Unlucky(still), A)


def test_of_many_threads_that_want_one_column_exactly_one_gets_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))

    def declare(number: int) -> str:
        try:
            declare_owners(storage, ColumnOwners({f"o{number}": ("x", f"c{number}")}))
        except InvalidRequestError as error:
            return error.why
        return "declared"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(declare, range(16)))
    [winner] = [number for number, outcome in enumerate(outcomes) if outcome == "declared"]
    assert load_owners(storage).columns == {f"o{winner}": ("x", f"c{winner}")}
    told = {outcome for outcome in outcomes if outcome != "declared"}
    assert told == {f"owner 'o{winner}' has it, and a column has one owner"}


# ---- faults


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
def test_a_declaration_whose_reply_is_lost_can_be_repeated(effect: Effect) -> None:
    storage = MemoryStorage(still)
    faulty = FaultyStorage(storage, [Fault(effect, "create")])
    with pytest.raises(UnavailableError):
        declare_owners(faulty, A)
    declare_owners(faulty, A)
    assert load_owners(storage) == A
    assert len(list(storage.list(OWNERS_FOLDER))) == 1


def test_of_an_object_that_is_too_large_no_more_is_read_than_may_be_there() -> None:
    storage = MemoryStorage(still)
    storage.create(owners_path(1), b"[" * (OWNERS_BYTES_MAX + 10))
    asked: list[int | None] = []
    read = storage.read

    def noted(path: str, start: int = 0, end: int | None = None) -> bytes:
        asked.append(end)
        return read(path, start, end)

    storage.read = noted  # type: ignore[method-assign]
    with pytest.raises(CorruptTableError):
        load_owners(storage)
    assert asked == [OWNERS_BYTES_MAX + 1]
