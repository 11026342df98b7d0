"""docs/schema_evolution.md: its examples run, and the race that it shows comes out so."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/schema_evolution.md").read_text("utf-8")
ORDERS = pa.schema(
    [("order_id", pa.string()), ("updated_at", pa.int64()), ("amount", pa.float32())]
)


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def made_table(folder: Path) -> str:
    """Make the table that the page begins with; return its address."""
    uri = str(folder / "orders")
    table = pyhudi.create_table(
        uri, ORDERS, record_key="order_id", ordering="updated_at", buckets=1
    )
    table.append(pa.table({"order_id": ["o1"], "updated_at": [1], "amount": [8.5]}, ORDERS))
    return uri


def run_examples(folder: Path) -> dict[str, Any]:
    """Run the page's examples one after the other, on a table in the folder."""
    uri = made_table(folder)
    names: dict[str, Any] = {}
    for text in examples():
        assert text.count("s3://") == text.count("s3://lake/orders")
        exec(text.replace("s3://lake/orders", uri), names)
    return names


def test_every_example_runs(tmp_path: Path) -> None:
    names = run_examples(tmp_path)
    table = names["orders"].read().to_arrow()
    assert table.to_pylist() == [
        {
            "order_id": "o1",
            "updated_at": 2,
            "amount": 9.5,
            "items": 3,
            "address": None,
            "note": None,
            "colour": None,
        }
    ]
    assert table.schema.field("items").type == pa.int64()
    assert [str(change) for change in names["preview"].changes]
    assert names["careful"].read().to_arrow().equals(table)
    assert names["orders"].read(as_of=names["before"]).to_arrow().schema == ORDERS


def test_the_example_of_a_contradiction_is_one(tmp_path: Path) -> None:
    with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError) as caught:
        contradiction(tmp_path)
    [column] = caught.value.facts["columns"]
    assert column["column"] == "colour"


def contradiction(folder: Path) -> None:
    """Run the example that contradicts, without its `except`."""
    [text] = [text for text in examples() if "except" in text]
    body = text.partition("except")[0].replace("try:\n", "if True:\n")
    exec(body, {"orders": pyhudi.open_table(made_table(folder)), "pyhudi": pyhudi})


def test_the_race_comes_out_as_the_page_says(tmp_path: Path) -> None:
    race = runpy.run_path(str(ROOT / "scripts/schema_race.py"))
    races = [each for each in race["RACES"] if each.package == "pyhudi"]
    assert len(races) == 2
    for number, each in enumerate(races):
        line = race["line"](each, tmp_path / str(number))
        outcome = line.partition("|")[2].partition("|")[2]  # without the version
        assert outcome in PAGE, line
        assert "completes" in outcome
