"""A resize of buckets, as Hudi's clustering plan holds it.

Each group of the plan is one split or merge: the file slices of the buckets that it replaces, and
in its extra metadata the partition, the sequence number of the ring that it was planned on, and the
children as JSON nodes. A plan is a resize if its groups have such children.

Hudi stores whole paths. The table may have been moved since, so files are taken by the partition
path and their bare names, and a name counts only if it is that of a file of its own file group.
Whether the children fit the ring is decided where the ring is known (`index.ring_changes`).

The execution strategy says who may execute the plan. Where pyhudi alone writes it names pyhudi: a
Hudi that tries to execute the plan fails on that name, and it would lose what completes in the
inputs meanwhile, because it does not copy it. With Hudi's own strategy either engine may, and so
writers of both write twice beside the plan, to the inputs and to the children (`is_dual`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import BaseFileName, FileGroupId, LogFileName, parse_data_file
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.paths import file_name, table_folder
from pyhudi.format.table.ring_file import NodeTag, RingNode, decode_nodes, encode_nodes
from pyhudi.format.timeline.plan_files import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    ClusteringStrategy,
    RequestedReplaceMetadata,
    decode_requested_replace,
    encode_requested_replace,
)
from pyhudi.format.timeline.stored_paths import path_in_partition

RESIZE_STRATEGY: Final = "pyhudi.resize"
DUAL_STRATEGY: Final = (
    "org.apache.hudi.client.clustering.run.strategy"
    ".SparkConsistentBucketClusteringExecutionStrategy"
)
CHILDREN_KEY: Final = "clustering.group.child.node"

_OPERATION = "CLUSTER"
_PARTITION_KEY = "clustering.group.partition"
_SEQUENCE_KEY = "clustering.group.sequence.no"
_CHILDREN_LENGTH_MAX = 8 * 1024 * 1024  # characters of JSON; a ring of 32,768 nodes has 4 million
_SEQUENCE_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class InputSlice:
    """The latest file slice of a bucket that is replaced, by bare file names.

    A bucket that was never written has none.
    """

    file_id: str
    base_file: str | None
    log_files: tuple[str, ...] = ()  # in any order; Hudi lists the newest first

    @property
    def files(self) -> tuple[str, ...]:
        return (*([self.base_file] if self.base_file else []), *self.log_files)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One split or merge: the slices of some buckets, and the nodes that replace them."""

    partition: str
    sequence_number: int  # of the ring that it was planned on
    slices: tuple[InputSlice, ...]  # in the order of the ring
    children: tuple[RingNode, ...]  # REPLACE and DELETE, in the order in which they apply
    metrics: Mapping[str, float] | None = None

    @property
    def inputs(self) -> tuple[FileGroupId, ...]:
        return tuple(FileGroupId(self.partition, part.file_id) for part in self.slices)

    @property
    def made(self) -> tuple[FileGroupId, ...]:
        """The file groups of the new buckets."""
        new = (child for child in self.children if child.tag is NodeTag.REPLACE)
        return tuple(FileGroupId(self.partition, child.file_id) for child in new)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in the table of all files of the slices."""
        names = (name for part in self.slices for name in part.files)
        return tuple(path_in_partition(self.partition, name) for name in names)


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """The splits and merges of one resize, in one partition or several."""

    groups: tuple[GroupChange, ...]
    #: Writers write twice while it is pending: Hudi, which copies nothing, can execute it.
    is_dual: bool = False

    @property
    def is_own(self) -> bool:
        """True if only pyhudi can execute it."""
        return not self.is_dual

    @property
    def is_virtual(self) -> bool:
        """True if writes that begin later put their rows into its children at once."""
        return any(is_virtual_child(group.file_id) for group in self.made)

    @property
    def inputs(self) -> frozenset[FileGroupId]:
        return frozenset(group for change in self.groups for group in change.inputs)

    @property
    def made(self) -> frozenset[FileGroupId]:
        return frozenset(group for change in self.groups for group in change.made)

    @property
    def by_partition(self) -> Mapping[str, tuple[GroupChange, ...]]:
        found: dict[str, tuple[GroupChange, ...]] = {}
        for change in self.groups:
            found[change.partition] = (*found.get(change.partition, ()), change)
        return found


def encode_resize_plan(plan: ResizePlan, base_uri: str, sync: bytes) -> bytes:
    """Return the requested file of the resize, for a table at `base_uri`."""
    return encode_requested_replace(resize_request(plan, base_uri), sync)


def resize_request(plan: ResizePlan, base_uri: str) -> RequestedReplaceMetadata:
    """Return the resize as Hudi's record of a clustering that is requested."""
    groups = tuple(_stored(change, base_uri.rstrip("/")) for change in plan.groups)
    clustering = ClusteringPlan(
        groups,
        ClusteringStrategy(DUAL_STRATEGY if plan.is_dual else RESIZE_STRATEGY, {}),
        extra_metadata={},
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=(),
    )
    return RequestedReplaceMetadata(_OPERATION, clustering, extra_metadata={})


def _stored(change: GroupChange, base_uri: str) -> ClusteringGroup:
    folder = f"{base_uri}/{change.partition}" if change.partition else base_uri
    slices = (
        ClusteringSlice(
            f"{folder}/{part.base_file}" if part.base_file else "",
            tuple(f"{folder}/{name}" for name in part.log_files),
            part.file_id,
            change.partition,
            bootstrap_file_path="",
        )
        for part in change.slices
    )
    extra = {
        _PARTITION_KEY: change.partition,
        CHILDREN_KEY: encode_nodes(change.children),
        _SEQUENCE_KEY: str(change.sequence_number),
    }
    return ClusteringGroup(tuple(slices), change.metrics or {}, len(change.made), extra)


def decode_resize_plan(data: bytes, path: str) -> ResizePlan | None:
    """Return the resize that a requested file holds; None for any other clustering or overwrite.

    CorruptTableError if it is a resize, and names what cannot be.
    """
    return resize_of(decode_requested_replace(data, path), path)


def decode_clustering(data: bytes, path: str) -> ResizePlan | ClusteringPlan:
    """Return the plan of a pending clustering: as a resize, if it resizes buckets.

    CorruptTableError if it cannot be read, or is not that of a clustering.
    """
    request = decode_requested_replace(data, path)
    clustering = clustering_plan_of(request, path)
    return resize_of(request, path) or clustering


def clustering_plan_of(request: RequestedReplaceMetadata | None, path: str) -> ClusteringPlan:
    """Return the plan in the requested file of a clustering; CorruptTableError if it has none."""
    if request is None:
        found = "the file is empty"
    elif request.operation_type != _OPERATION:
        found = f"it is that of another operation, {request.operation_type!r:.40}"
    elif request.clustering_plan is None:
        found = "it names nothing to rewrite"
    else:
        return request.clustering_plan
    raise CorruptTableError(
        "a clustering has no plan",
        why=found,
        next_step="Cancel it with the engine that planned it: a resize of pyhudi's with"
        " table.services.cancel_resize",
        path=path,
    )


def resize_of(request: RequestedReplaceMetadata | None, path: str) -> ResizePlan | None:
    """Return the resize that a decoded file holds; see `decode_resize_plan`."""
    plan = request and request.clustering_plan
    groups = (plan and plan.input_groups) or ()
    if not any(CHILDREN_KEY in (group.extra_metadata or {}) for group in groups):
        return None
    changes = tuple(_change(group, path) for group in groups)
    _refuse_contradictions(changes, path)
    strategy = plan and plan.strategy
    is_own = bool(strategy and strategy.strategy_class_name == RESIZE_STRATEGY)
    return ResizePlan(changes, is_dual=not is_own)


def _change(group: ClusteringGroup, path: str) -> GroupChange:
    extra = group.extra_metadata or {}
    if missing := {_PARTITION_KEY, CHILDREN_KEY, _SEQUENCE_KEY} - extra.keys():
        raise _refusal(path, f"a group lacks {min(missing)}")
    try:
        partition = table_folder(extra[_PARTITION_KEY])
    except CorruptTableError as error:
        raise _refusal(path, f"{error.what} ({error.why})") from None
    children = extra[CHILDREN_KEY]
    if len(children) > _CHILDREN_LENGTH_MAX:
        raise _refusal(path, f"the children of a group take {len(children)} characters", partition)
    slices = tuple(_slice(part, partition, path) for part in group.slices or ())
    if not slices:
        raise _refusal(path, "a group names no file group", partition)
    number = _sequence_number(extra[_SEQUENCE_KEY], partition, path)
    return GroupChange(partition, number, slices, decode_nodes(children, path), group.metrics)


def _sequence_number(text: str, partition: str, path: str) -> int:
    if len(text) > _SEQUENCE_DIGITS_MAX or not (text.isascii() and text.isdigit()):
        raise _refusal(path, f"the sequence number {text[:40]!r} is no number", partition)
    return int(text)


def _slice(part: ClusteringSlice, partition: str, path: str) -> InputSlice:
    if (part.partition_path or "") != partition or not part.file_id:
        why = f"it reaches outside: file group {part.file_id} of {part.partition_path!r}"
        raise _refusal(path, why, partition)
    base = _name(part.data_file_path, part.file_id, partition, BaseFileName, path)
    logs = (
        _name(log, part.file_id, partition, LogFileName, path)
        for log in part.delta_file_paths or ()
    )
    return InputSlice(part.file_id, base, tuple(filter(None, logs)))


def _name(stored: str | None, file_id: str, partition: str, kind: type, path: str) -> str | None:
    """Return the bare name of a stored path; None if it is empty."""
    if not stored:
        return None
    name = file_name(stored)
    parsed = parse_data_file(name)
    folder = stored.removesuffix(f"/{name}")
    if partition and folder != partition and not folder.endswith(f"/{partition}"):
        raise _refusal(path, f"it reaches outside: {stored[:200]!r}", partition)
    if parsed is None or not isinstance(parsed, kind) or parsed.file_id != file_id:
        raise _refusal(path, f"{name[:200]!r} is no file of file group {file_id}", partition)
    return name


def _refuse_contradictions(changes: Collection[GroupChange], path: str) -> None:
    """Raise if a group is named twice, or two groups were planned on different rings."""
    numbers: dict[str, int] = {}
    for change in changes:
        if numbers.setdefault(change.partition, change.sequence_number) != change.sequence_number:
            raise _refusal(path, "its groups were planned on different rings", change.partition)
        if any(child.file_id_prefix is None for child in change.children if _is_new(child)):
            raise _refusal(path, "a new bucket has no file id", change.partition)
    if len({is_virtual_child(g.file_id) for each in changes for g in each.made}) > 1:
        raise _refusal(path, "some of its new buckets are of a virtual resize, and some are not")
    if twice := _repeated(g for each in changes for g in (*each.inputs, *each.made)):
        raise _refusal(path, f"it names the file group {twice.file_id} twice", twice.partition)


def _is_new(child: RingNode) -> bool:
    return child.tag is NodeTag.REPLACE


def _repeated(groups: Iterable[FileGroupId]) -> FileGroupId | None:
    seen: set[FileGroupId] = set()
    for group in groups:
        if group in seen:
            return group
        seen.add(group)
    return None


def _refusal(path: str, why: str, partition: str | None = None) -> CorruptTableError:
    where = "" if partition is None else f"in partition {partition!r}, "
    return CorruptTableError(
        "the plan of a resize is damaged",
        why=f"{where}{why}",
        next_step="Nothing was rewritten. Cancel the resize with table.services.cancel_resize,"
        " which loses no row, and plan another",
        path=path,
    )
