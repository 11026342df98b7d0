"""The marker service beside the job of a write, in the driver of a classic Spark session.

It listens where Spark's own driver does, and executors find it under the same host name. Through
Spark Connect there is no such process: the client of a session is not known to the executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyhudi.conflict.announced import Met
from pyhudi.conflict.file_groups import Footprint
from pyhudi.settings import MarkerService, WriteSettings
from pyhudi.world import World
from pyhudi.write.markers.kind import are_listed, warn_of_direct
from pyhudi.write.markers.server import MarkerServer
from pyhudi.write.plan import WritePlan, with_markers

_HOST = "spark.driver.host"
_BIND_ADDRESS = "spark.driver.bindAddress"


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """A plan as its tasks get it, and the service that stores their markers, if there is one."""

    plan: WritePlan
    server: MarkerServer | None = None

    @property
    def announced(self) -> Callable[[], Footprint] | None:
        """Return what tells where tasks have announced files to the service; None without one."""
        return None if self.server is None else self.server.announced

    def stop(self, met: Met | None) -> None:
        """Let no task that reaches the service create a file any more."""
        if self.server is not None:
            self.server.stop(met)


@contextmanager
def serving(
    plan: WritePlan, settings: WriteSettings, spark: SparkSession, world: World
) -> Iterator[ServedPlan]:
    """Serve the markers of the plan's tasks in the block, if they are to be stored in lists."""
    served = ServedPlan(plan)
    if are_listed(settings, plan.files.config):
        served = _served(plan, settings.marker_service, spark, world)
    try:
        yield served
    finally:
        if served.server is not None:
            served.server.close()


def _served(
    plan: WritePlan, settings: MarkerService, spark: SparkSession, world: World
) -> ServedPlan:
    hosts = _hosts(spark)
    if hosts is None:
        warn_of_direct("executors do not know where a client of Spark Connect runs")
        return ServedPlan(plan)
    server = MarkerServer(plan.files.storage, plan.spec.requested, world, settings)
    try:
        markers = server.start(hosts.bind, settings.port, hosts.known_as)
    except OSError as error:
        where, why = f"{hosts.bind}:{settings.port}", error.strerror or error
        warn_of_direct(f"the service cannot listen on {where} ({why})")
        return ServedPlan(plan)
    return ServedPlan(with_markers(plan, markers), server)


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Where the driver listens, and under which name executors know it."""

    bind: str
    known_as: str


def _hosts(spark: SparkSession) -> _Hosts | None:
    # Through Connect, asking for the context raises an error of PySpark's own.
    with suppress(AttributeError, RuntimeError, PySparkException):
        conf = spark.sparkContext.getConf()
        if (host := conf.get(_HOST)) is not None:
            bind = conf.get(_BIND_ADDRESS, host) or host
            return _Hosts(bind.strip("[]"), host.strip("[]"))
    return None
