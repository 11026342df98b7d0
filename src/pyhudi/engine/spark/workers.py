"""What a Python worker of Spark does once, before its first task of ours."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def spare_modules() -> None:
    """Take what is loaded out of the garbage collector's sight.

    Spark collects garbage after every task. With Arrow and pandas loaded that takes some 40 ms of
    nothing but looking at modules, more than the whole work of a small task.
    """
    gc.freeze()
