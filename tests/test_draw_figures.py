"""The figures of the documentation are what `scripts/draw_figures.py` draws."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts/draw_figures.py"))
DRAW_AGAIN = "run `.venv/bin/python scripts/draw_figures.py`, look at the files, and commit them"


def test_the_figures_of_the_documentation_are_what_the_code_draws() -> None:
    drawn = dict(SCRIPT["figures"]())
    stored = {path.name: path.read_text("utf-8") for path in SCRIPT["FOLDER"].iterdir()}
    assert stored == drawn, DRAW_AGAIN
    assert all(ElementTree.fromstring(text) is not None for text in drawn.values())


def test_every_figure_is_shown_with_a_text_for_those_who_do_not_see_it() -> None:
    page = (ROOT / "docs/resizing.md").read_text("utf-8")
    shown = dict(re.findall(r"!\[([^\]]{20,})\]\(images/([^)]+)\)", page.replace("\n", " ")))
    assert sorted(shown.values()) == sorted(name for name, _ in SCRIPT["figures"]())
