"""How is the job of one write cancelled, from whichever thread, and no other job with it?

By a tag, which the jobs of a thread have while it is set. Classic Spark has tags of the context.
Spark Connect has no context, and tags of the session. (Classic Spark 4 has those, too, but finds
the jobs of a tag only from the thread that set it.) Where neither exists, tasks end at the fence of
their write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


class _Tags(NamedTuple):
    add: Callable[[str], object]
    remove: Callable[[str], object]
    cancel: Callable[[str], object]


def cancel_tagged(session: SparkSession, tag: str) -> None:
    """Cancel the jobs that have the tag; a session that is gone has none."""
    if (tags := _tags(session)) is not None:
        with suppress(Exception):
            tags.cancel(tag)


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of this thread in the block, and cancel them if anything ends it early.

    An interrupt by the caller ends it early, too.
    """
    if (tags := _tags(session)) is None:
        yield
        return
    tags.add(tag)
    try:
        yield
    except BaseException:
        cancel_tagged(session, tag)
        raise
    finally:
        with suppress(Exception):
            tags.remove(tag)


def _tags(session: SparkSession) -> _Tags | None:
    # Through Connect, asking for the context raises an error of PySpark's own.
    with suppress(AttributeError, RuntimeError, PySparkException):
        context = session.sparkContext
        return _Tags(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)
    with suppress(AttributeError):
        return _Tags(session.addTag, session.removeTag, session.interruptTag)
    return None
