"""The shape of the code, as rules that run with the tests.

Each rule is a function from one module to its violations, so that the same rule judges the real
tree and the planted sources below, which show that it can fail. `docs/architecture.md` argues for
the shape; the messages say what to do instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from folder_order import MAY_IMPORT, PURE

SOURCE = Path(__file__).parents[1] / "src"

# Where the pure parts would reach for the world. What they need of it comes in as an argument.
BANNED_IN_PURE = {
    *("os", "pathlib", "io.open", "shutil", "tempfile", "glob", "mmap"),
    *("time", "random", "secrets", "uuid"),
    *("threading", "multiprocessing", "concurrent", "asyncio", "socket", "subprocess"),
    *("pyspark", "obstore", "pyarrow.fs", "pyarrow.dataset"),
}
BANNED_CALLS_IN_PURE = {"open", "input", "print", "datetime.now", "datetime.utcnow", "date.today"}

# What would run bytes or names that came from outside.
BANNED_MODULES = {"pickle", "cloudpickle", "marshal", "shelve"}
FRONT_DOOR = "pyhudi/__init__.py"  # loads public names when they are used
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "importlib.import_module"}

# A user may lack these, so they are imported when used.
OPTIONAL_MODULES = {
    *("pyspark", "pandas", "polars", "duckdb", "pyhudi.spark"),
    *("boto3", "botocore", "kazoo"),
}

FUNCTION_LINES_MAX = 60
LINE_CHARACTERS_MAX = 100

# Names that tell a reader nothing about what is inside.
EMPTY_WORDS = {
    *("util", "utils", "helper", "helpers", "manager", "common", "handler"),
    *("context", "impl", "info", "hoodie", "get"),
}


@dataclass(frozen=True)
class Module:
    """One source file: its path from `src`, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def part(self) -> str | None:
        """The folder or module under `pyhudi` that this file belongs to."""
        package, first, *_ = self.path.split("/")
        return first.removesuffix(".py") if package == "pyhudi" else None

    @property
    def holds_spark(self) -> bool:
        return self.path.startswith(("pyhudi/spark/", "pyspark_pyhudi/"))


Violations = Iterator[tuple[int, str]]
Rule = Callable[[Module], Violations]


def imported_names(node: ast.AST) -> list[str]:
    """The dotted names an import statement may load; empty for any other node."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{alias.name}" for alias in names]
    return []


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for name in imported_names(node):
            yield getattr(node, "lineno", 0), name


def type_only_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(node)


def is_within(name: str, modules: set[str]) -> bool:
    """True if the dotted name is one of the modules, or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def called_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every call as (line, last two parts of the callee's name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ".".join(ast.unparse(node.func).split(".")[-2:])


def definitions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def folders_import_only_downwards(module: Module) -> Violations:
    if module.part is None:
        return
    if module.part not in MAY_IMPORT:
        yield 1, f"{module.part} has no place in MAY_IMPORT"
        return
    allowed = MAY_IMPORT[module.part] | {module.part}
    for line, name in imports(module.tree):
        package, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if package == "pyhudi" and other not in allowed:
            yield line, f"{module.part} must not import {other or 'the front door'}"


def imports_are_absolute(module: Module) -> Violations:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "name the module in full"


def pure_folders_do_not_touch_the_world(module: Module) -> Violations:
    if module.part not in PURE:
        return
    for line, name in imports(module.tree):
        if is_within(name, BANNED_IN_PURE):
            yield line, f"{name} touches the world; take a value as an argument"
    for line, name in called_names(module.tree):
        if name in BANNED_CALLS_IN_PURE:
            yield line, f"{name}() touches the world; take a value as an argument"


def pyspark_stays_in_its_adapter(module: Module) -> Violations:
    if module.holds_spark:
        return
    for_types = set(type_only_imports(module.tree))  # a signature may name what it never loads
    for line, name in imports(module.tree):
        if is_within(name, {"pyspark"}) and (line, name) not in for_types:
            yield line, "pyspark is imported under spark and pyspark_pyhudi alone"


def functions_import_only_what_is_optional(module: Module) -> Violations:
    for function in definitions(module.tree):
        if not isinstance(function, ast.ClassDef):
            for line, name in imports(function):
                if not is_within(name, OPTIONAL_MODULES):
                    yield line, f"import {name} at the top"


def nothing_runs_foreign_code(module: Module) -> Violations:
    for line, name in imports(module.tree):
        if is_within(name, BANNED_MODULES):
            yield line, f"{name} runs what it reads; write a format instead"
    for line, name in called_names(module.tree):
        if name == "importlib.import_module" and module.path == FRONT_DOOR:
            continue  # of modules that its own table names
        if name in BANNED_CALLS:
            yield line, f"{name}() runs what it is given; name the code instead"


def lines_and_functions_are_short(module: Module) -> Violations:
    lines = module.text.splitlines()
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_CHARACTERS_MAX:
            yield number, f"line of more than {LINE_CHARACTERS_MAX} characters"
    for node in definitions(module.tree):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if not isinstance(node, ast.ClassDef) and length > FUNCTION_LINES_MAX:
            yield node.lineno, f"{node.name} has {length} lines, more than {FUNCTION_LINES_MAX}"


def names_say_something(module: Module) -> Violations:
    named = [(1, part.removesuffix(".py")) for part in module.path.split("/")]
    named += [(node.lineno, node.name) for node in definitions(module.tree)]
    for line, name in named:
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        if empty := words & EMPTY_WORDS:
            yield line, f"{name} says {empty.pop()!r}; say what it does"


RULES: list[Rule] = [
    folders_import_only_downwards,
    imports_are_absolute,
    pure_folders_do_not_touch_the_world,
    pyspark_stays_in_its_adapter,
    functions_import_only_what_is_optional,
    nothing_runs_foreign_code,
    lines_and_functions_are_short,
    names_say_something,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_source_keeps_the_rule(rule: Rule) -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths, f"no source under {SOURCE}"
    broken = [
        f"{path}:{line}: {why}"
        for path in paths
        for line, why in rule(Module(path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")))
    ]
    assert not broken, "\n".join(broken)


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX

PLANTED = [
    (folders_import_only_downwards, "pyhudi/format/a.py", "from pyhudi.timeline import timeline"),
    (folders_import_only_downwards, "pyhudi/format/a.py", "import pyhudi.storage.protocol"),
    (
        folders_import_only_downwards,
        "pyhudi/plan/a.py",
        "from pyhudi.conflict.file_groups import x",
    ),
    (folders_import_only_downwards, "pyhudi/storage/a.py", "from pyhudi.table import snapshot"),
    (folders_import_only_downwards, "pyhudi/read/a.py", "from pyhudi.commit import log"),
    (folders_import_only_downwards, "pyhudi/commit/a.py", "from pyhudi.write.result import x"),
    (folders_import_only_downwards, "pyhudi/write/a.py", "from pyhudi.services import repair"),
    (folders_import_only_downwards, "pyhudi/services/a.py", "from pyhudi.api import table"),
    (folders_import_only_downwards, "pyhudi/spark/a.py", "import pyhudi"),
    (folders_import_only_downwards, "pyhudi/table/a.py", "def f():\n    import pyhudi.read"),
    (folders_import_only_downwards, "pyhudi/newcomer/a.py", ""),
    (imports_are_absolute, "pyhudi/format/a.py", "from . import instant"),
    (imports_are_absolute, "pyhudi/format/a.py", "from ..timeline import timeline"),
    (pure_folders_do_not_touch_the_world, "pyhudi/plan/a.py", "import os.path"),
    (pure_folders_do_not_touch_the_world, "pyhudi/table/a.py", "from pyarrow import fs"),
    (pure_folders_do_not_touch_the_world, "pyhudi/index/a.py", "data = open('x').read()"),
    (pure_folders_do_not_touch_the_world, "pyhudi/timeline/a.py", "t = datetime.now(UTC)"),
    (pure_folders_do_not_touch_the_world, "pyhudi/timeline/a.py", "t = datetime.datetime.now()"),
    (pyspark_stays_in_its_adapter, "pyhudi/write/local.py", "from pyspark.sql import DataFrame"),
    (pyspark_stays_in_its_adapter, "pyhudi/api/table.py", "def f():\n    import pyspark"),
    (functions_import_only_what_is_optional, "pyhudi/a.py", "def f():\n    import json"),
    (nothing_runs_foreign_code, "pyhudi/a.py", "import pickle"),
    (nothing_runs_foreign_code, "pyhudi/a.py", "from pickle import loads"),
    (nothing_runs_foreign_code, "pyhudi/a.py", "x = eval('1')"),
    (nothing_runs_foreign_code, "pyhudi/a.py", "exec('1')"),
    (nothing_runs_foreign_code, "pyhudi/a.py", "importlib.import_module(name)"),
    (lines_and_functions_are_short, "pyhudi/a.py", "#" * (LINE_CHARACTERS_MAX + 1)),
    (lines_and_functions_are_short, "pyhudi/a.py", LONG_FUNCTION),
    (names_say_something, "pyhudi/format/utils.py", ""),
    (names_say_something, "pyhudi/common/a.py", ""),
    (names_say_something, "pyhudi/a.py", "def parse_helper(): ..."),
    (names_say_something, "pyhudi/a.py", "class LockManager: ..."),
    (names_say_something, "pyhudi/a.py", "def get_instant(): ..."),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_rule_catches_what_it_forbids(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text)))


def test_every_rule_has_been_seen_to_fail() -> None:
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


ALLOWED = [
    ("pyhudi/plan/a.py", "from pyhudi.index import simple_bucket\nimport pyarrow.compute"),
    ("pyhudi/storage/a.py", "import os\nfrom pyhudi.errors import UnavailableError"),
    ("pyhudi/spark/a.py", "from pyspark.sql import DataFrame"),
    ("pyhudi/api/scan.py", "def to_spark():\n    from pyhudi.spark import scan"),
    ("pyhudi/api/scan.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
    ("pyhudi/__init__.py", "from pyhudi.api.table import open_table"),
    ("pyhudi/format/a.py", "import re\npattern = re.compile('x')"),
    ("pyspark_pyhudi/__init__.py", "from pyhudi.spark.datasource import DefaultSource"),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_rules_let_good_code_pass(path: str, text: str) -> None:
    assert [broken for rule in RULES for broken in rule(Module(path, text))] == []
