"""Table services: what compaction costs, how planning grows, and what writers notice of it.

Three parts, each in a file of its own that says what is measured and how:
`services_compaction.py` (against Apache Hudi), `services_planning.py` with `services_archive.py`,
and `services_beside.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import services_archive
import services_beside
import services_compaction
import services_planning

PARTS: dict[str, Callable[..., bool]] = {
    "planning": services_planning.main,
    "archive": services_archive.main,
    "beside": services_beside.main,
    "compaction": services_compaction.main,
}


def main(*, is_quick: bool = False, parts: Sequence[str] = tuple(PARTS)) -> bool:
    print("services: compaction, cleaning and archiving")
    met = [PARTS[part](is_quick=is_quick) for part in parts]  # all, whatever the first says
    return all(met)


if __name__ == "__main__":
    named = [name for name in sys.argv[1:] if name in PARTS]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, parts=named or tuple(PARTS)) else 1)
