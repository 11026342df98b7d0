"""What a Python worker of Spark does once, before its first task of ours."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def spare_modules() -> None:
    """Take what is loaded out of the garbage collector's sight.

    Spark collects garbage after every task. With Arrow and pandas loaded that is mostly a look at
    their modules, and takes longer than the whole work of a small task.
    """
    gc.freeze()
