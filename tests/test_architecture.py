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

# Attributes that are set from outside of their object today, by file. What is not so any more
# leaves the list; nothing comes in. The simulator's parts share their state, so it may.
SET_FROM_OUTSIDE: dict[str, set[str]] = {
    "pyhudi/commit/clock.py": {"tried.waited_ms", "tried.waits_ms"},
    "pyhudi/commit/foreign_writers.py": {"live.is_ours"},
    "pyhudi/commit/decision_log.py": {
        "known.settled",
        "self._known.settled",
        "self._lease.has_new_entries",
        "tried.may_stand",
    },
    "pyhudi/format/avro/columns.py": {"cursor.at"},
    "pyhudi/format/avro/records.py": {"source.allowance"},
    "pyhudi/plan/predicate/from_arrow.py": {"calls[-1].options"},
    "pyhudi/read/plan.py": {"self._loader.clean_bounds"},
    "pyhudi/read/slice.py": {
        "tally.block_bytes",
        "tally.blocks",
        "tally.corrupt_blocks",
        "tally.logs",
        "tally.records",
        "tally.rollback_blocks",
    },
    "pyhudi/services/archiving/execute.py": {
        "done.archived",
        "done.finished",
        "done.held_by",
        "done.merged",
        "done.removed",
        "done.stopped_at",
        "done.swept",
    },
    "pyhudi/services/maintenance.py": {"memory.repaired_at_ms"},
    "pyhudi/storage/locks/zookeeper_session.py": {"connection._connect"},
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


def objects_set_their_own_attributes(module: Module) -> Violations:
    if module.part == "simulate":
        return
    listed = SET_FROM_OUTSIDE.get(module.path, set())
    for line, target in set_from_outside(module.tree):
        if target not in listed:
            yield line, f"{target} is set from outside; let a method or the constructor set it"


def set_from_outside(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every attribute that is set or deleted of another object than `self`, `cls` or one that the
    same function has just made."""
    for own_nodes in _functions(tree):
        made = {"self", "cls"} | _made(own_nodes)
        for node in own_nodes:
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del(), value=object_):
                    target = ast.unparse(node)
                case ast.Call(args=[object_, *_]) if ast.unparse(node.func) in _SETTERS:
                    target = ast.unparse(node)
                case _:
                    continue
            if not (isinstance(object_, ast.Name) and object_.id in made):
                yield node.lineno, target


_SETTERS = ("setattr", "delattr", "object.__setattr__", "object.__delattr__")
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _functions(tree: ast.Module) -> Iterator[list[ast.AST]]:
    """The nodes of the module itself and of each function, without those of functions inside."""
    left: list[ast.AST] = [tree]
    while left:
        own: list[ast.AST] = []
        inside = list(ast.iter_child_nodes(left.pop()))
        while inside:
            node = inside.pop()
            own.append(node)
            if isinstance(node, _Function):
                left.append(node)
            else:
                inside += ast.iter_child_nodes(node)
        yield own


def _made(nodes: list[ast.AST]) -> set[str]:
    """Names that are bound to new objects alone: to calls of a class."""
    is_made: dict[str, bool] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_new = isinstance(node.value, ast.Call) and _is_class(node.value.func)
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                is_made[name] = is_made.get(name, True) and is_new
    return {name for name, only_new in is_made.items() if only_new}


def _is_class(callee: ast.expr) -> bool:
    name = ast.unparse(callee).rpartition(".")[2].lstrip("_")
    return name in ("cls", "copy") or name[:1].isupper()


RULES: list[Rule] = [
    folders_import_only_downwards,
    imports_are_absolute,
    pure_folders_do_not_touch_the_world,
    pyspark_stays_in_its_adapter,
    functions_import_only_what_is_optional,
    nothing_runs_foreign_code,
    lines_and_functions_are_short,
    names_say_something,
    objects_set_their_own_attributes,
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


def test_the_list_of_attributes_set_from_outside_only_shrinks() -> None:
    stale = {}
    for path, listed in SET_FROM_OUTSIDE.items():
        file = SOURCE / path
        tree = ast.parse(file.read_text("utf-8") if file.exists() else "")
        if gone := listed - {target for _, target in set_from_outside(tree)}:
            stale[path] = gone
    assert not stale, "they are gone: take them off the list"


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
    (folders_import_only_downwards, "pyhudi/read/a.py", "from pyhudi.commit import guard"),
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
    *(
        (objects_set_their_own_attributes, "pyhudi/a.py", text)
        for text in (
            "def f(log):\n    log.is_looking = True",
            "def f(log):\n    log.count += 1",
            "def f(log):\n    log.count: int = 1",
            "def f(self):\n    self.log.is_looking = True",
            "def f(logs):\n    logs[0].count = 1",
            "def f(log, lock):\n    with lock as log.lock:\n        pass",
            "def f(log):\n    for log.at in range(3):\n        pass",
            "def f(log):\n    log.a, b = 1, 2",
            "def f(log):\n    del log.count",
            "def f(log):\n    setattr(log, 'count', 1)",
            "def f(log):\n    object.__setattr__(log, 'count', 1)",
            "def f(log):\n    log = log or Log()\n    log.count = 1",
            "def f(a):\n    log = Log()\n    if a:\n        log = a.log\n    log.count = 1",
            "def f():\n    log = Log()\n    def g():\n        log.count = 1",
            "log.count = 1",
            "class A:\n    log.count = 1",
        )
    ),
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
    ("pyhudi/commit/a.py", "class Log:\n    def f(self):\n        self.count += 1"),
    ("pyhudi/commit/a.py", "def f():\n    log = commit.Log()\n    log.count = 1"),
    ("pyhudi/commit/a.py", "def f(cls):\n    log = cls()\n    log.count, log.at = 1, 2"),
    ("pyhudi/commit/a.py", "def f(log):\n    made: Log = copy(log)\n    made.count = 1"),
    ("pyhudi/commit/a.py", "def f(log):\n    log.counts['a'] = 1\n    count = log.count"),
    ("pyhudi/commit/a.py", "def f(self):\n    object.__setattr__(self, 'count', 1)"),
    ("pyhudi/simulate/a.py", "def f(actor):\n    actor.done = True"),
    ("pyspark_pyhudi/__init__.py", "from pyhudi.spark.datasource import DefaultSource"),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_rules_let_good_code_pass(path: str, text: str) -> None:
    assert [broken for rule in RULES for broken in rule(Module(path, text))] == []
