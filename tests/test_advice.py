"""What errors advise: nothing that takes rows away unless the reader knows what it costs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"

#: Advice that takes something out of a table, and what has to stand beside it.
RULES = {
    # Only if a condition says when that is safe.
    r"\b(delete|remove)s? (it|them|this|that|the (object|file|marker))\b": (
        r"\bif\b|when no writer|make sure|no writer is|after finding out|stop the writers"
        r"|which (removes|loses)"
    ),
    # A write that has completed is gone with its rollback, in all its file groups.
    r"\broll\b.*\bback\b": r"write its rows again|its plan|is rolled back",
    # A table that is restored loses all that was written since.
    r"\bsavepoint\b": r"(?!)",
    # What a table was written with, such as its number of buckets, is not to be chosen anew.
    r"^Correct (hoodie|\{)": r"set it back",
}


def advice() -> Iterator[tuple[str, str]]:
    """Where each `next_step` is given, and its text, as far as it is written there."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "next_step" and (text := _text(keyword.value)):
                        yield f"{path.relative_to(SOURCES)}:{node.lineno}", text


def _text(node: ast.expr) -> str:
    """Constants as they are, and {} for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (_text(value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
        return "".join(parts)
    return ""


def harmful(text: str) -> list[str]:
    return [
        risk
        for risk, cure in RULES.items()
        if re.search(risk, text, re.IGNORECASE) and not re.search(cure, text, re.IGNORECASE)
    ]


def test_no_error_advises_what_may_cost_rows() -> None:
    found = list(advice())
    assert len(found) > 250
    assert [(place, text) for place, text in found if harmful(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Delete the object: the next write makes it again",
        "delete it to return to the owners that were declared before",
        "Restore the file from a copy, or roll back the instant in its name",
        "Restore the file from a copy, or restore the table to a savepoint",
        "Correct {}",
    ],
)
def test_every_rule_has_been_seen_to_fail(text: str) -> None:
    assert harmful(text)
