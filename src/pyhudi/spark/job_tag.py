"""How is the job of one write cancelled, from whichever thread, and no other job with it?

By a tag. Spark 4 and Spark Connect have tags of a session, classic Spark 3.5 those of its context.
Both give a tag to the jobs of the thread that sets it. Where neither exists, tasks end at the fence
of their write.
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
    for tags in _tags(session):
        with suppress(Exception):
            tags.cancel(tag)


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of this thread in the block, and cancel them if anything ends it early.

    An interrupt by the caller ends it early, too.
    """
    added = None
    for tags in _tags(session):
        with suppress(AttributeError, RuntimeError, PySparkException):
            tags.add(tag)
            added = tags
            break
    try:
        yield
    except BaseException:
        cancel_tagged(session, tag)
        raise
    finally:
        if added is not None:
            with suppress(Exception):
                added.remove(tag)


def _tags(session: SparkSession) -> Iterator[_Tags]:
    """Yield the tags that the session has; of classic Spark 3.5 only those of its context work."""
    with suppress(AttributeError):
        yield _Tags(session.addTag, session.removeTag, session.interruptTag)
    # Through Connect there is no context, and asking for it raises an error of PySpark's own.
    with suppress(AttributeError, RuntimeError, PySparkException):
        context = session.sparkContext
        yield _Tags(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)
