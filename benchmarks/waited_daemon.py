"""Spark's Python daemon, which keeps the CPU seconds of workers that were killed.

The worker of a cancelled task is killed, and so is one that was idle for a minute. PySpark's daemon
ignores SIGCHLD, and then the kernel drops what a child took (times(2)). A child that is waited for
counts among the children of the daemon, where `measure.ProcessTree` finds it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial

from pyspark.daemon import manager


def _wait(_signal: int, _frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for_children_of(daemon: int) -> None:
    if os.getpid() == daemon:  # a worker has this hook, too
        signal.signal(signal.SIGCHLD, _wait)


if __name__ == "__main__":
    # The manager ignores the signal when it starts, and forks workers later.
    os.register_at_fork(after_in_parent=partial(_wait_for_children_of, os.getpid()))
    manager()
