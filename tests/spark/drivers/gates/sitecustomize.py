"""Python loads this at its start in executors that have this folder on their path.

Before a task creates a data file or a marker, it looks for a file that tells it to hold. The first
to take that file away waits for another that lets it go; meanwhile a test does harm, and what
usually ends a worker together with its executor does not end this one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi.spark.write_task import WriteTask
from pyhudi.storage.stores.local_disk import LocalStorage

_FOLDER = Path(os.environ.get("PYHUDI_TEST_GATES", ""))
_TICK_S = 0.01
_MARKERS = ".hoodie/.temp/"


def _holds(path: str) -> bool:
    if path.startswith(_MARKERS):
        step = "marker"
    elif path.startswith(".hoodie/") or path.endswith(".hoodie_partition_metadata"):
        return False
    else:
        step = "data"
    for order in sorted(_FOLDER.glob(f"hold.{step}.*")):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            order.rename(_FOLDER / f"held.{os.getpid()}")
        except FileNotFoundError:
            continue  # another task was first
        return True
    return False


def _gated(create: Callable[..., Any]) -> Callable[..., Any]:
    def gated(storage: LocalStorage, path: str, data: bytes | Iterable[bytes]) -> Any:
        if not _holds(path):
            return create(storage, path, data)
        while not (_FOLDER / "release").exists():
            time.sleep(_TICK_S)
        told = "an error"
        try:
            created = create(storage, path, data)
            told = "created" if created else "taken"
            return created
        finally:
            (_FOLDER / f"passed.{os.getpid()}").write_text(told)

    return gated


def _told(run: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The task, which tells of its end if it was held."""

    def told(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from run(task, batches)
        finally:
            if (_FOLDER / f"passed.{os.getpid()}").exists():
                (_FOLDER / f"ended.{os.getpid()}").touch()

    return told


if _FOLDER.name:  # or somebody else loads this module, to look for doctests
    WriteTask.__call__ = _told(WriteTask.__call__)  # type: ignore[method-assign]
    LocalStorage.create = _gated(LocalStorage.create)  # type: ignore[method-assign]
    LocalStorage.create_from = _gated(LocalStorage.create_from)  # type: ignore[method-assign]
