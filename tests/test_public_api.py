"""The front door: exactly these names, and errors that say what a caller can do."""

from __future__ import annotations

import pickle

import pytest

import pyhudi

PUBLIC = {
    "Changes",
    "ConflictError",
    "CorruptBlockWarning",
    "CorruptTableError",
    "FailedWrites",
    "HudiError",
    "InvalidRequestError",
    "LogBlockFormat",
    "OutcomeUnknownError",
    "Progress",
    "Repaired",
    "RequestedTime",
    "Scan",
    "SimpleBuckets",
    "Table",
    "UnavailableError",
    "UnsupportedTableError",
    "WriteResult",
    "WriteSettings",
    "__version__",
    "create_table",
    "is_table",
    "open_table",
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(pyhudi.__all__) == PUBLIC
    assert all(hasattr(pyhudi, name) for name in PUBLIC)


def test_a_table_has_few_verbs() -> None:
    public = {name: what for name, what in vars(pyhudi.Table).items() if name[:1] != "_"}
    verbs = sorted(name for name, what in public.items() if callable(what))
    assert len(verbs) <= 10, verbs
    assert len(public) <= 20, sorted(public)


KINDS = [
    pyhudi.ConflictError,
    pyhudi.UnavailableError,
    pyhudi.InvalidRequestError,
    pyhudi.CorruptTableError,
    pyhudi.UnsupportedTableError,
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_say_what_why_and_what_next_also_across_processes(
    kind: type[pyhudi.HudiError],
) -> None:
    error = kind("it broke", why="of rust", next_step="Oil it")
    assert str(error) == "it broke: of rust. Oil it."
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.what, again.why, again.next_step) == ("it broke", "of rust", "Oil it")


def test_a_corrupt_table_error_keeps_its_place_across_processes() -> None:
    error = pyhudi.CorruptTableError("bad", why="x", next_step="Y", path="a/b", offset=7)
    assert str(error) == "bad in 'a/b' at byte 7: x. Y."
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.path, again.offset) == ("a/b", 7)


def test_an_unknown_outcome_keeps_its_instant_across_processes() -> None:
    error = pyhudi.OutcomeUnknownError("lost", why="x", next_step="Y", instant="20260101000000000")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, pyhudi.OutcomeUnknownError)
    assert isinstance(again, pyhudi.UnavailableError)
    assert (str(again), again.instant) == (str(error), "20260101000000000")
