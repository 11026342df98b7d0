"""Early detection (RFC-56): what it costs, and what it saves.

Parts, each in a file of its own that says what is measured and how: `early_writers.py`,
`early_rivals.py`, `early_markers.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import early_markers
import early_rivals
import early_writers

PARTS: dict[str, Callable[..., bool]] = {
    "writers": early_writers.main,
    "rivals": early_rivals.main,
    "markers": early_markers.main,
}


def main(*, is_quick: bool = False, parts: Sequence[str] = tuple(PARTS)) -> bool:
    print("early: conflicts that are found while a write runs", flush=True)
    met = [PARTS[part](is_quick=is_quick) for part in parts]  # all, whatever the first says
    return all(met)


if __name__ == "__main__":
    named = [name for name in sys.argv[1:] if name in PARTS]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, parts=named or tuple(PARTS)) else 1)
