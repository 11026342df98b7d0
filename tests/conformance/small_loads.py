"""Spark's Python daemon for this suite: its workers make base files of small loads already.

`spark.python.daemon.module` names it. The size that a load of a bucket must have is a constant of
the module that runs in the workers, and they are forks of this process. With the real size, the
judges would be handed megabytes to compare.
"""

from __future__ import annotations

from pyspark.daemon import manager

import pyhudi.write.tasks

LOAD_BYTES_MIN = 500

if __name__ == "__main__":
    pyhudi.write.tasks.LOAD_BYTES_MIN = LOAD_BYTES_MIN
    manager()
