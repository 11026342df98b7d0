"""Changing `hoodie.properties` while readers and other writers use it.

The file is replaced by one conditional write: a process that saw an older version starts over, and
no reader, hudi-rs included, ever finds the file missing. Hudi itself copies the file to a backup,
deletes it and writes it again. If a Hudi writer died in between, its change is repaired first: a
missing or torn file is restored from the backup, and then the backup is deleted.

Hadoop's local file system stores a checksum beside each file it wrote, and readers refuse a file
that differs from it. The checksum is removed before the file is replaced, because a file without a
checksum is accepted.

With a Java writer on the table, hold the table's lock meanwhile. Hudi's way is not atomic, and its
steps look from outside like those of a Hudi writer that died.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyhudi.errors import UnavailableError
from pyhudi.format.table.properties import (
    PROPERTIES_BYTES_MAX,
    TABLE_CHECKSUM,
    TableProperties,
    decode_table_properties,
    encode_properties,
    recovered_properties,
)
from pyhudi.format.table.table_config import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    METADATA_TABLE_ENABLED,
    TableConfig,
)
from pyhudi.read.load import HOODIE, PROPERTIES, PROPERTIES_BACKUP, load_config
from pyhudi.storage.objects.checksums import checksum_path
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

METADATA_TABLE: Final = f"{HOODIE}/metadata"
#: How many concurrent changes one change yields to before it fails.
UPDATE_ATTEMPTS_MAX: Final = 10

_CHECKSUM_FILE = checksum_path(PROPERTIES)
_BACKUP_CHECKSUM_FILE = checksum_path(PROPERTIES_BACKUP)

Change = Callable[[dict[str, str]], Mapping[str, str]]


def stamped_properties(values: Mapping[str, str], world: World, verb: str) -> bytes:
    """Return the text of a properties file, made unique by a time and an id."""
    now = datetime.fromtimestamp(world.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
    return encode_properties(values, (f"{verb} {now}", f"by pyhudi {new_uuid(world)}"))


def load_properties_file(storage: Storage, path: str = PROPERTIES) -> bytes | None:
    try:
        return storage.read(path, 0, PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError:
        return None


def update_properties(storage: Storage, change: Change, world: World) -> TableConfig:
    """Replace the table's properties by what `change` returns for them.

    `change` may be called again, also with its own result, when other processes interfere or a
    reply is lost. A change that returns its argument unchanged writes nothing.
    """
    for _ in range(UPDATE_ATTEMPTS_MAX):
        _put_right(storage)
        found, data = storage.stat(PROPERTIES), load_properties_file(storage)
        if found is None or data is None:
            return load_config(storage)  # raises: there is no table
        assert found.etag is not None, "stat always has it"
        values = decode_table_properties(data, PROPERTIES).values
        changed = _checked(change(dict(values)))
        if changed.values == values:
            return TableConfig.of(changed)
        text = stamped_properties(changed.values, world, "Updated at")
        storage.delete(_CHECKSUM_FILE)
        if _replaces(storage, text, found.etag):
            return TableConfig.of(changed)
    raise UnavailableError(
        f"the properties of the table at {storage.uri} could not be changed",
        why=f"other processes changed them during each of {UPDATE_ATTEMPTS_MAX} attempts",
        next_step="Repeat the call",
    )


def _checked(values: Mapping[str, str]) -> TableProperties:
    """Return the properties with their checksum; raise if they are not those of a table."""
    checksum = TableProperties(values).checksum
    changed = TableProperties({**values, TABLE_CHECKSUM: checksum})
    TableConfig.of(changed)
    return changed


def _replaces(storage: Storage, text: bytes, etag: str) -> bool:
    """Replace the file; return whether it holds the text now. After a lost reply it is read."""
    try:
        if storage.replace(PROPERTIES, text, etag=etag) is not None:
            return True
    except UnavailableError:
        if load_properties_file(storage) != text:
            raise
    return load_properties_file(storage) == text


def _put_right(storage: Storage) -> None:
    """Finish or revert a change during which Hudi died."""
    backup = load_properties_file(storage, PROPERTIES_BACKUP)
    if backup is None:
        return
    found, main = storage.stat(PROPERTIES), load_properties_file(storage)
    sound = recovered_properties(main, backup)
    if main != sound:
        storage.delete(_CHECKSUM_FILE)
        if found is None or found.etag is None:
            storage.create(PROPERTIES, sound)
        else:
            storage.replace(PROPERTIES, sound, etag=found.etag)
        if load_properties_file(storage) is None:
            return  # another process is changing it
    storage.delete(_BACKUP_CHECKSUM_FILE)
    storage.delete(PROPERTIES_BACKUP)


def switch_off_metadata_table(storage: Storage, world: World) -> TableConfig:
    """Make readers list files, as Hudi does when its metadata table is off: then our files are
    seen.

    The property is changed first, because a reader trusts it more than the folder. If the folder is
    half deleted, repeat the call. Spark writers leave the metadata table off from then on.
    """
    config = update_properties(storage, _without_metadata_table, world)
    for found in tuple(storage.list(METADATA_TABLE)):
        storage.delete(found.path)
    return config


def _without_metadata_table(values: dict[str, str]) -> dict[str, str]:
    gone = (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT)
    kept = {key: value for key, value in values.items() if key not in gone}
    return {**kept, METADATA_TABLE_ENABLED: "false"}
