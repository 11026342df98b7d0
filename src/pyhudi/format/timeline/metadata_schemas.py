"""The Avro schemas of the records that Hudi's timeline files hold, as JSON data.

Names, order, types and defaults are Hudi's, because they are what its readers resolve against.
Hudi's own copies also carry hints for Java and prose; both are optional and left out here.

A record that occurs twice in one schema is spelled out the first time and named the second.
"""

from __future__ import annotations

from typing import Any

NAMESPACE = "org.apache.hudi.avro.model"

AvroSchema = Any  # JSON: a name, a list (union) or an object


def _array(items: AvroSchema) -> AvroSchema:
    return {"type": "array", "items": items}


def _map(values: AvroSchema) -> AvroSchema:
    return {"type": "map", "values": values}


def _with_default(kind: AvroSchema, default: Any) -> AvroSchema:
    """Return a field's type and the default that a reader takes if the writer lacks the field."""
    return {"type": kind, "default": default}


def _optional(kind: AvroSchema) -> AvroSchema:
    return _with_default(["null", kind], None)


def _required(kind: AvroSchema) -> AvroSchema:
    return {"type": kind}


def _version(default: int) -> AvroSchema:
    return _with_default(["int", "null"], default)


def _record(name: str, **fields: AvroSchema) -> AvroSchema:
    named = [{"name": field, **kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": named}


def _file(record: AvroSchema) -> AvroSchema:
    """Return a record that stands alone in a timeline file; those inside it share its namespace."""
    return {
        "type": "record",
        "name": record["name"],
        "namespace": NAMESPACE,
        "fields": record["fields"],
    }


_STRING = _optional("string")
_STRINGS = _optional(_array("string"))
_LONG = _optional("long")
_BOOLEAN = _optional("boolean")
_TEXTS = _optional(_map("string"))
_COUNTS = _optional(_map("long"))
_METRICS = _optional(_map("double"))
_TEXT = _required("string")
_LIST = _required(_array("string"))

_RUNTIME_STATS = _record(
    "HoodieRuntimeStats",
    totalScanTime=_LONG,
    totalCreateTime=_LONG,
    totalUpsertTime=_LONG,
)
_WRITE_STAT = _record(
    "HoodieWriteStat",
    fileId=_STRING,
    path=_STRING,
    prevCommit=_STRING,
    numWrites=_LONG,
    numDeletes=_LONG,
    numUpdateWrites=_LONG,
    totalWriteBytes=_LONG,
    totalWriteErrors=_LONG,
    partitionPath=_STRING,
    totalLogRecords=_LONG,
    totalLogFiles=_LONG,
    totalUpdatedRecordsCompacted=_LONG,
    numInserts=_LONG,
    totalLogBlocks=_LONG,
    totalCorruptLogBlock=_LONG,
    totalRollbackBlocks=_LONG,
    fileSizeInBytes=_LONG,
    logVersion=_optional("int"),
    logOffset=_LONG,
    baseFile=_STRING,
    logFiles=_STRINGS,
    cdcStats=_COUNTS,
    prevBaseFile=_STRING,
    minEventTime=_LONG,
    maxEventTime=_LONG,
    runtimeStats=_optional(_RUNTIME_STATS),
    totalLogFilesCompacted=_LONG,
    totalLogReadTimeMs=_LONG,
    totalLogSizeCompacted=_LONG,
    tempPath=_STRING,
    numUpdates=_LONG,
)
_COMMIT_FIELDS = {
    "partitionToWriteStats": _optional(_map(_array(_WRITE_STAT))),
    "compacted": _BOOLEAN,
    "extraMetadata": _TEXTS,
    "version": _version(1),
    "operationType": _STRING,
}
COMMIT_METADATA = _file(_record("HoodieCommitMetadata", **_COMMIT_FIELDS))
REPLACE_COMMIT_METADATA = _file(
    _record(
        "HoodieReplaceCommitMetadata",
        **_COMMIT_FIELDS,
        partitionToReplaceFileIds=_optional(_map(_array("string"))),
    )
)

_SLICE = _record(
    "HoodieSliceInfo",
    dataFilePath=_STRING,
    deltaFilePaths=_STRINGS,
    fileId=_required(["null", "string"]),
    partitionPath=_STRING,
    bootstrapFilePath=_STRING,
    version=_version(1),
)
_CLUSTERING_GROUP = _record(
    "HoodieClusteringGroup",
    slices=_optional(_array(_SLICE)),
    metrics=_METRICS,
    numOutputFileGroups=_version(1),
    extraMetadata=_TEXTS,
    version=_version(1),
)
_CLUSTERING_STRATEGY = _record(
    "HoodieClusteringStrategy",
    strategyClassName=_STRING,
    strategyParams=_TEXTS,
    version=_version(1),
)
_CLUSTERING_PLAN = _record(
    "HoodieClusteringPlan",
    inputGroups=_optional(_array(_CLUSTERING_GROUP)),
    strategy=_optional(_CLUSTERING_STRATEGY),
    extraMetadata=_TEXTS,
    version=_version(1),
    preserveHoodieMetadata=_BOOLEAN,
    missingSchedulePartitions=_STRINGS,
)
REQUESTED_REPLACE_METADATA = _file(
    _record(
        "HoodieRequestedReplaceMetadata",
        operationType=_STRING,
        clusteringPlan=_optional(_CLUSTERING_PLAN),
        extraMetadata=_TEXTS,
        version=_version(1),
    )
)

_COMPACTION_OPERATION = _record(
    "HoodieCompactionOperation",
    baseInstantTime=_required(["null", "string"]),
    deltaFilePaths=_STRINGS,
    dataFilePath=_STRING,
    fileId=_required(["null", "string"]),
    partitionPath=_STRING,
    metrics=_METRICS,
    bootstrapFilePath=_STRING,
)
_COMPACTION_STRATEGY = _record(
    "HoodieCompactionStrategy",
    compactorClassName=_STRING,
    strategyParams=_TEXTS,
    version=_version(1),
)
COMPACTION_PLAN = _file(
    _record(
        "HoodieCompactionPlan",
        operations=_optional(_array(_COMPACTION_OPERATION)),
        extraMetadata=_TEXTS,
        version=_version(1),
        strategy=_optional(_COMPACTION_STRATEGY),
        preserveHoodieMetadata=_with_default(["boolean", "null"], False),
        missingSchedulePartitions=_STRINGS,
    )
)

_ACTION_INSTANT = _record("HoodieActionInstant", timestamp=_TEXT, action=_TEXT, state=_TEXT)
_CLEAN_FILE = _record("HoodieCleanFileInfo", filePath=_STRING, isBootstrapBaseFile=_BOOLEAN)
CLEANER_PLAN = _file(
    _record(
        "HoodieCleanerPlan",
        earliestInstantToRetain=_optional(_ACTION_INSTANT),
        lastCompletedCommitTimestamp=_with_default("string", ""),
        policy=_TEXT,
        filesToBeDeletedPerPartition=_optional(_map(_array("string"))),
        version=_version(1),
        filePathsToBeDeletedPerPartition=_optional(_map(_array(_CLEAN_FILE))),
        partitionsToBeDeleted=_STRINGS,
        extraMetadata=_TEXTS,
    )
)
_CLEAN_PARTITION = _record(
    "HoodieCleanPartitionMetadata",
    partitionPath=_TEXT,
    policy=_TEXT,
    deletePathPatterns=_LIST,
    successDeleteFiles=_LIST,
    failedDeleteFiles=_LIST,
    isPartitionDeleted=_BOOLEAN,
)
CLEAN_METADATA = _file(
    _record(
        "HoodieCleanMetadata",
        startCleanTime=_TEXT,
        timeTakenInMillis=_required("long"),
        totalFilesDeleted=_required("int"),
        earliestCommitToRetain=_TEXT,
        lastCompletedCommitTimestamp=_with_default("string", ""),
        partitionMetadata=_required(_map(_CLEAN_PARTITION)),
        version=_version(1),
        bootstrapPartitionMetadata=_optional(_map(_CLEAN_PARTITION["name"])),
        extraMetadata=_TEXTS,
    )
)

_INSTANT = _record("HoodieInstantInfo", commitTime=_TEXT, action=_TEXT)
_ROLLBACK_REQUEST = _record(
    "HoodieRollbackRequest",
    partitionPath=_TEXT,
    fileId=_STRING,
    latestBaseInstant=_STRING,
    filesToBeDeleted=_with_default(_array("string"), []),
    logBlocksToBeDeleted=_COUNTS,
)
ROLLBACK_PLAN = _file(
    _record(
        "HoodieRollbackPlan",
        instantToRollback=_optional(_INSTANT),
        RollbackRequests=_optional(_array(_ROLLBACK_REQUEST)),
        version=_version(1),
    )
)
_ROLLBACK_PARTITION = _record(
    "HoodieRollbackPartitionMetadata",
    partitionPath=_TEXT,
    successDeleteFiles=_LIST,
    failedDeleteFiles=_LIST,
    rollbackLogFiles=_COUNTS,
    logFilesFromFailedCommit=_COUNTS,
)
_ROLLBACK_METADATA = _record(
    "HoodieRollbackMetadata",
    startRollbackTime=_TEXT,
    timeTakenInMillis=_required("long"),
    totalFilesDeleted=_required("int"),
    commitsRollback=_LIST,
    partitionMetadata=_required(_map(_ROLLBACK_PARTITION)),
    version=_version(1),
    instantsRollback=_with_default(_array(_INSTANT), []),
)
ROLLBACK_METADATA = _file(_ROLLBACK_METADATA)

_SAVEPOINT_PARTITION = _record(
    "HoodieSavepointPartitionMetadata",
    partitionPath=_TEXT,
    savepointDataFile=_LIST,
)
SAVEPOINT_METADATA = _file(
    _record(
        "HoodieSavepointMetadata",
        savepointedBy=_TEXT,
        savepointedAt=_required("long"),
        comments=_TEXT,
        partitionMetadata=_required(_map(_SAVEPOINT_PARTITION)),
        version=_version(1),
    )
)

RESTORE_PLAN = _file(
    _record(
        "HoodieRestorePlan",
        instantsToRollback=_with_default(_array(_INSTANT), []),
        version=_version(2),
        savepointToRestoreTimestamp=_STRING,
    )
)
RESTORE_METADATA = _file(
    _record(
        "HoodieRestoreMetadata",
        startRestoreTime=_TEXT,
        timeTakenInMillis=_required("long"),
        instantsToRollback=_LIST,
        hoodieRestoreMetadata=_required(_map(_array(["null", _ROLLBACK_METADATA]))),
        version=_version(1),
        restoreInstantInfo=_with_default(_array(_INSTANT["name"]), []),
    )
)

ARCHIVED_INSTANT = _file(
    _record(
        "HoodieLSMTimelineInstant",
        instantTime=_STRING,
        completionTime=_STRING,
        action=_STRING,
        metadata=_optional("bytes"),
        plan=_optional("bytes"),
        version=_with_default("int", 1),
    )
)
