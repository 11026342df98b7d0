"""The first judge: Apache Hudi itself, its bundle on PySpark 3.5.

The bundle is one of the locked jars, which `scripts/fetch_jars.py` fetches into the judges'
environment. `JUDGE_JAR` names a file instead.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    TimestampType,
)

from conformance.judge import s3
from conformance.judge.encoding import (
    META_COLUMNS,
    Row,
    chosen_columns,
    encode,
    is_local,
    stable_order,
)

ROOT = Path(__file__).parents[3]
HUDI_JARS = "hudi"  # a set of requirements/jars.toml

#: A quick start, UTC, and no attempt of Hudi's size estimator to attach a debugger to its own JVM.
JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Duser.timezone=UTC",
    "-Djol.skipDynamicAttach=true",
    "-Djol.skipHotspotSAAttach=true",
)

SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(JVM_OPTIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}

#: Short names that `call` takes beside Hudi's own.
PROCEDURES = {
    "compaction": "run_compaction",
    "clustering": "run_clustering",
    "clean": "run_clean",
    "rollback": "rollback_to_instant",
    "savepoint": "create_savepoint",
    "archive": "archive_commits",
}
#: Procedures that take a path; every other one wants a registered table's name.
PATH_PROCEDURES = {"run_compaction", "run_clustering", "show_compaction", "show_clustering"}

#: The most that a decimal of Spark may have.
ALL_DIGITS = Context(prec=38)

#: After every instant there will be.
END_OF_TIME = "99991231235959999"


class SparkJudge:
    """The bundle behind one Spark session, which starts with the first question."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="judge-")
        self._registered: dict[str, str] = {}

    # -- the session

    @property
    def spark(self) -> SparkSession:
        if self._session is None:
            self._session = self._start()
        return self._session

    def _start(self) -> SparkSession:
        os.environ["TZ"] = "UTC"
        time.tzset()
        settings = {**SESSION, "spark.sql.warehouse.dir": self._scratch.name}
        settings |= jar_settings(os.environ.get("JUDGE_MORE_JARS", "").split())
        builder = SparkSession.builder.master(os.environ.get("JUDGE_MASTER", "local[2]"))
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.appName("hudi judge").getOrCreate()
        session.sparkContext.setLogLevel(os.environ.get("JUDGE_LOG", "OFF"))
        return session

    def use_s3_server(self, endpoint: str, key: str, secret: str) -> list[Row]:
        """From now on, tables at s3:// are on this server."""
        s3.use_server(self.spark, self._scratch.name, endpoint, key, secret)
        return []

    @property
    def hudi_version(self) -> str:
        return hudi_version(self.spark)

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None
        self._scratch.cleanup()

    # -- rows in and out

    def _collect(self, frame: DataFrame) -> list[Row]:
        fields = frame.schema.fields
        return stable_order(
            {f.name: encode(_plain(v, f.dataType)) for f, v in zip(fields, row, strict=True)}
            for row in frame.collect()
        )

    def _frame(self, rows: Iterable[Row], schema: str | None) -> DataFrame:
        spark = self.spark
        handle, name = tempfile.mkstemp(suffix=".jsonl", dir=self._scratch.name)
        with os.fdopen(handle, "w") as sink:
            sink.writelines(json.dumps(row) + "\n" for row in rows)
        reader = spark.read.option("mode", "FAILFAST")
        return (reader.schema(schema) if schema else reader).json(name)

    # -- reads

    def _load(
        self,
        path: str,
        *,
        query_type: str = "snapshot",
        as_of: str | None = None,
        begin: str | None = None,
        end: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        if begin is not None and query_type == "snapshot":
            query_type = "incremental"
        chosen = {"hoodie.datasource.query.type": query_type}
        if query_type in ("incremental", "cdc"):
            chosen["hoodie.datasource.query.type"] = "incremental"
            chosen["hoodie.datasource.read.begin.instanttime"] = begin or "000"
            if end:
                chosen["hoodie.datasource.read.end.instanttime"] = end
            if query_type == "cdc":
                chosen["hoodie.datasource.query.incremental.format"] = "cdc"
        if as_of:
            chosen["as.of.instant"] = as_of
        chosen.update(options or {})
        return self.spark.read.format("hudi").options(**chosen).load(_location(path))

    def read(
        self, path: str, *, columns: list[str] | None = None, meta: bool = True, **how: Any
    ) -> list[Row]:
        frame = self._load(path, **how)
        if how.get("query_type") != "cdc":
            names = chosen_columns(frame.columns, columns, meta=meta)
            frame = frame.select(*[f"`{name}`" for name in names])
        return self._collect(frame)

    def stream(self, path: str, checkpoint: str) -> list[Row]:
        """The rows of one micro-batch, of everything since what the checkpoint has."""
        rows: list[Row] = []
        source = self.spark.readStream.format("hudi").load(_location(path))
        query = (
            source.writeStream.option("checkpointLocation", checkpoint)
            .trigger(once=True)
            .foreachBatch(lambda frame, _: rows.extend(self._collect(frame)))
            .start()
        )
        query.awaitTermination()
        return stable_order(rows)

    def schema(self, path: str) -> str:
        """The columns of a snapshot, without meta columns, as Spark writes them in SQL."""
        fields = (f for f in self._load(path).schema.fields if f.name not in META_COLUMNS)
        return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)

    # -- writes and services

    def write(
        self,
        path: str,
        rows: list[Row],
        options: Mapping[str, str],
        *,
        op: str = "upsert",
        schema: str | None = None,
        mode: str = "append",
    ) -> list[Row]:
        """Write the rows; the answer lists the instants that this added."""
        known = self._known_instants(path)
        chosen = {**options, "hoodie.datasource.write.operation": op}
        frame = self._frame(rows, schema)
        frame.write.format("hudi").options(**chosen).mode(mode).save(_location(path))
        return [instant for instant in self.timeline(path) if instant["requested"] not in known]

    def sql(self, text: str, tables: Mapping[str, str] | None = None) -> list[Row]:
        for name, path in (tables or {}).items():
            self._register(path, name)
        return self._collect(self.spark.sql(text))

    def call(
        self, procedure: str, path: str, arguments: Mapping[str, Any] | None = None
    ) -> list[Row]:
        procedure = PROCEDURES.get(procedure, procedure)
        given = dict(arguments or {})
        if procedure in PATH_PROCEDURES:
            given.setdefault("path", _location(path))
        else:
            given.setdefault("table", self._register(path))
        text = ", ".join(f"{name} => {_literal(value)}" for name, value in given.items())
        return self._collect(self.spark.sql(f"CALL {procedure}({text})"))

    def _register(self, path: str, name: str | None = None) -> str:
        """Give a table a name in the session's catalog."""
        location = _location(path)
        name = name or self._registered.get(location) or f"judge_{len(self._registered)}"
        if self._registered.get(location) != name:
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION '{location}'")
            self._registered[location] = name
        return name

    # -- Hudi's own view of the timeline and of the files

    def timeline(self, path: str, *, archived: bool = False) -> list[Row]:
        client = self._meta_client(path)
        names = client.getInstantFileNameGenerator()
        timeline = client.getArchivedTimeline() if archived else client.getActiveTimeline()
        rows = [
            {
                "requested": instant.requestedTime(),
                "completed": instant.getCompletionTime(),
                "action": instant.getAction(),
                "state": instant.getState().name(),
                **({} if archived else {"file": names.getFileName(instant)}),
            }
            for instant in timeline.getInstants()
        ]
        return sorted(rows, key=lambda row: (row["requested"], row["action"], row["state"]))

    def slices(self, path: str) -> list[Row]:
        """File slices of every partition, in two views, log files in the order they are read.

        `latest`: a pending compaction starts a new slice. `merged`: what a snapshot sees, with the
        slices on both sides of a pending compaction joined.
        """
        view = self._file_system_view(path)
        rows = [
            {"view": kind, "partition": partition, **_slice_row(found)}
            for partition in view.getPartitionNames()
            for kind, stream in (
                ("latest", view.getLatestFileSlices(partition)),
                ("merged", view.getLatestMergedFileSlicesBeforeOrOn(partition, END_OF_TIME)),
            )
            for found in _each(stream)
        ]
        order = ("view", "partition", "file_id", "base_instant")
        return sorted(rows, key=lambda row: tuple(row[name] for name in order))

    def _meta_client(self, path: str) -> Any:
        builder = self.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        builder = builder.setConf(self.storage_conf)
        return builder.setBasePath(_location(path)).build()

    def _file_system_view(self, path: str) -> Any:
        hudi = self.jvm.org.apache.hudi
        client = self._meta_client(path)
        engine = hudi.client.common.HoodieSparkEngineContext(self._java_context)
        config = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(False).build()
        writes = client.getActiveTimeline().getWriteTimeline()
        views = hudi.common.table.view.FileSystemViewManager
        view = views.createInMemoryFileSystemViewWithTimeline(
            engine, client, config, writes.filterCompletedAndCompactionInstants()
        )
        view.loadAllPartitions()
        return view

    @property
    def jvm(self) -> Any:
        return self.spark._jvm

    @property
    def storage_conf(self) -> Any:
        """How Hudi's classes are told about file systems."""
        hadoop = self._java_context.hadoopConfiguration()
        return self.jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(hadoop)

    @property
    def _java_context(self) -> Any:
        return self.spark.sparkContext._jsc

    def _known_instants(self, path: str) -> set[str]:
        if is_local(path) and not (Path(path) / ".hoodie" / "hoodie.properties").exists():
            return set()
        return {instant["requested"] for instant in self.timeline(path)}


def hudi_version(session: SparkSession) -> str:
    jvm: Any = session._jvm
    return str(jvm.org.apache.hudi.HoodieVersion.get())


def jar_settings(more: Sequence[str] = ()) -> dict[str, str]:
    """The settings that give Spark Hudi's bundle and more sets of locked jars."""
    if jar := os.environ.get("JUDGE_JAR"):
        found = {"spark.driver.extraClassPath": jar}
        return {**found, "spark.jars": fetched_jars(more)} if more else found
    return {"spark.jars": fetched_jars([HUDI_JARS, *more])}


def fetched_jars(sets: Sequence[str]) -> str:
    """The paths of the sets' jars, with commas between them."""
    program = str(ROOT / "scripts" / "fetch_jars.py")
    folder = str(ROOT / ".venv-judge" / "jars")
    command = [sys.executable, program, "--into", folder, *sets]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return ",".join(done.stdout.splitlines())


def _location(path: str) -> str:
    return str(Path(path).resolve()) if is_local(path) else path


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "\\'") + "'"


def _plain(value: Any, kind: DataType) -> Any:
    """A collected value with rows as dicts, timestamps, which come naive, in UTC, and decimals of
    the column's scale: small ones come as engineers write them, 1E-10 as 100E-12.
    """
    if value is None:
        return None
    match kind:
        case DecimalType():
            return value.quantize(Decimal((0, (1,), -kind.scale)), context=ALL_DIGITS)
        case TimestampType():
            return value.replace(tzinfo=dt.UTC)
        case ArrayType():
            return [_plain(item, kind.elementType) for item in value]
        case MapType():
            return {key: _plain(item, kind.valueType) for key, item in value.items()}
        case StructType():
            pairs = zip(kind.fields, value, strict=True)
            return {field.name: _plain(item, field.dataType) for field, item in pairs}
    return value


def _each(stream: Any) -> Iterator[Any]:
    """The items of a Java stream."""
    items = stream.iterator()
    while items.hasNext():
        yield items.next()


def _slice_row(found: Any) -> Row:
    base = found.getBaseFile()
    logs = [log.getFileName() for log in _each(found.getLogFiles())]
    return {
        "file_id": found.getFileId(),
        "base_instant": found.getBaseInstantTime(),
        "base_file": base.get().getFileName() if base.isPresent() else None,
        "log_files": logs[::-1],  # Hudi gives the newest first
    }
