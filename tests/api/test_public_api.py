"""The front door: exactly these names, and errors that say what a caller can do."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import pyhudi
from pyhudi.api.alter import Alterations
from pyhudi.api.consumers import Consumers
from pyhudi.api.inspection import Inspection
from pyhudi.api.services import Services
from pyhudi.wording import public_methods

PUBLIC = {
    "SchemaWarning",
    "SimpleSchemaStrategy",
    "SchemaUpdateBlock",
    "SchemaUpdate",
    "SchemaStrategy",
    "SchemaMode",
    "SchemaContradiction",
    "ReconcileSchemaStrategy",
    "ConcurrentSchemaEvolutionError",
    "ArchivePlan",
    "ArchivePolicy",
    "ArchiveResult",
    "Changes",
    "CleanPlan",
    "CleanPolicy",
    "CleanResult",
    "Cleaned",
    "Compacted",
    "CompactionPolicy",
    "CompactionPreview",
    "CompactionResult",
    "ConflictError",
    "ConsistentBuckets",
    "Consumer",
    "CorruptBlockWarning",
    "CorruptTableError",
    "EarlyConflictError",
    "EarlyDetection",
    "EarlyStrategy",
    "FailedWrites",
    "Finding",
    "FindingKind",
    "HudiError",
    "InvalidRequestError",
    "LogBlockFormat",
    "MarkerService",
    "MarkerServiceWarning",
    "Markers",
    "Migrated",
    "OutcomeUnknownError",
    "Progress",
    "Repaired",
    "RequestedTime",
    "ResizePolicy",
    "ResizePreview",
    "ResizeResult",
    "Resized",
    "RingPicture",
    "SplitBucket",
    "SplitPolicy",
    "Scan",
    "SimpleBuckets",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "UnavailableError",
    "UnsupportedTableError",
    "Upkeep",
    "UpkeepResult",
    "UpkeepWarning",
    "Verified",
    "WritePreview",
    "WriteResult",
    "WriteSettings",
    "__version__",
    "create_table",
    "is_table",
    "open_table",
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(vars(pyhudi)["__all__"]) == PUBLIC
    assert all(hasattr(pyhudi, name) for name in PUBLIC)


def test_type_checkers_are_shown_the_same_names_from_the_same_modules() -> None:
    """A checker reads imports that never run, and a program the table beside them."""
    source = Path(pyhudi.__file__).read_text()
    shown = {
        alias.name: statement.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name  # which exports it
    }
    assert shown == pyhudi._HOMES


def modules_after(program: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after the program."""
    report = "; import sys; print(*sys.modules)"
    command = [sys.executable, "-c", program + report]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_an_import_alone_loads_no_library() -> None:
    found = modules_after("import pyhudi; pyhudi.__version__; dir(pyhudi); pyhudi.HudiError")
    assert found & {"pyarrow", "numpy", "pandas", "pyspark", "obstore", "polars"} == set()


def test_no_public_name_loads_pandas_or_spark() -> None:
    found = modules_after("from pyhudi import *")
    assert {"pyarrow", "pyhudi.api.table"} <= found
    assert found & {"pandas", "pyspark", "polars"} == set()


def test_a_public_name_is_listed_before_it_is_loaded_and_a_wrong_one_is_refused() -> None:
    assert set(dir(pyhudi)) >= PUBLIC
    with pytest.raises(AttributeError, match="module 'pyhudi' has no attribute 'opn_table'"):
        _ = pyhudi.opn_table  # type: ignore[attr-defined]  # so a type checker says it too


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_a_public_class_or_function_comes_through_a_pickle(name: str) -> None:
    public = getattr(pyhudi, name)
    assert pickle.loads(pickle.dumps(public)) is public


#: Classes with verbs, and what verbs give whose types are not of Python or Arrow alone.
VERBS = (pyhudi.Table, Services, Consumers, Alterations, Inspection)
GIVEN = (pyhudi.UpkeepResult, pyhudi.Compacted, pyhudi.CleanResult, pyhudi.Resized, pyhudi.Migrated)


def named_types(hint: object) -> Iterator[type]:
    """The classes in a hint."""
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from named_types(part)


def test_whatever_a_verb_gives_can_be_named() -> None:
    verbs = (what for kind in VERBS for what in vars(kind).values() if isfunction(what))
    hints = [get_type_hints(verb).get("return") for verb in verbs if verb.__name__[0] != "_"]
    hints += [hint for kind in GIVEN for hint in get_type_hints(kind).values()]
    hints += [base for kind in GIVEN for base in getattr(kind, "__orig_bases__", ())]
    found = {kind for hint in hints for kind in named_types(hint)}
    ours = {kind.__name__ for kind in found if kind.__module__.startswith("pyhudi")}
    assert {"CleanPlan", "CompactionResult", "Consumer"} <= ours
    assert ours - PUBLIC == set()


#: What a user calls on `table.services`, `table.consumers` and `table.alter`.
GROUPS: dict[type, set[str]] = {
    Services: {
        "archive",
        "cancel_clean",
        "cancel_compaction",
        "cancel_resize",
        "migrate_buckets",
        "clean",
        "compact",
        "repair",
        "resize",
        "run",
        "verify",
    },
    Consumers: {"advance", "register", "release"},
    Alterations: {"disable_metadata_table", "own_columns", "release_columns", "upkeep", "use_lock"},
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_exactly_these_verbs(group: type) -> None:
    assert set(public_methods(group)) == GROUPS[group]


def test_a_table_has_few_verbs() -> None:
    public = {name: what for name, what in vars(pyhudi.Table).items() if name[:1] != "_"}
    verbs = sorted(name for name, what in public.items() if callable(what))
    assert len(verbs) <= 14, verbs  # three of them plan what three others do
    assert len(public) <= 23, sorted(public)


KINDS = [
    pyhudi.ConflictError,
    pyhudi.UnavailableError,
    pyhudi.InvalidRequestError,
    pyhudi.TableNotFoundError,
    pyhudi.TableExistsError,
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


@pytest.mark.parametrize("kind", [pyhudi.TableNotFoundError, pyhudi.TableExistsError])
def test_a_missing_and_an_existing_table_are_invalid_requests(
    kind: type[pyhudi.HudiError],
) -> None:
    assert issubclass(kind, pyhudi.InvalidRequestError)


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
