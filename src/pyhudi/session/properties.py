"""Changing `hoodie.properties` under the eyes of readers, and of other writers.

The file is replaced by one conditional write: whoever saw an older version starts over, and no
reader, hudi-rs included, ever finds the file missing. Hudi itself copies the file to a backup,
deletes it and writes it anew. What a Hudi that died on the way has left is put right first: a
missing or torn file comes back from the backup, and then the backup goes.

Hadoop's local file system keeps a checksum beside each file it wrote, and readers refuse a file
that differs from it. The checksum is removed before the file is replaced, for a file without one
is simply believed.

With a Java writer on the table, hold the table's lock meanwhile. Hudi's way is not atomic, and
its steps look from outside like those of a Hudi that died.
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
#: Changes by others that one change gives way to before it gives up.
UPDATE_ATTEMPTS_MAX: Final = 10

_CHECKSUM_FILE = checksum_path(PROPERTIES)
_BACKUP_CHECKSUM_FILE = checksum_path(PROPERTIES_BACKUP)

Change = Callable[[dict[str, str]], Mapping[str, str]]


def stamped_properties(values: Mapping[str, str], world: World, verb: str) -> bytes:
    """The text of a properties file, unlike any other: it tells when it was made, and has an id."""
    now = datetime.fromtimestamp(world.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
    return encode_properties(values, (f"{verb} {now}", f"by pyhudi {new_uuid(world)}"))


def load_properties_file(storage: Storage, path: str = PROPERTIES) -> bytes | None:
    try:
        return storage.read(path, 0, PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError:
        return None


def update_properties(storage: Storage, change: Change, world: World) -> TableConfig:
    """Replace the table's properties by what `change` makes of them.

    `change` may be called again, also with its own result, when others interfere or a reply is
    lost; a change that finds everything as it wants it writes nothing.
    """
    for _ in range(UPDATE_ATTEMPTS_MAX):
        _put_right(storage)
        found, data = storage.stat(PROPERTIES), load_properties_file(storage)
        if found is None or data is None:
            return load_config(storage)  # raises: there is no table
        assert found.etag is not None, "stat tells it always"
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
        why=f"others changed them during each of {UPDATE_ATTEMPTS_MAX} attempts",
        next_step="Repeat the call",
    )


def _checked(values: Mapping[str, str]) -> TableProperties:
    """Properties that are those of a table, whatever the change has made of them."""
    checksum = TableProperties(values).checksum
    changed = TableProperties({**values, TABLE_CHECKSUM: checksum})
    TableConfig.of(changed)
    return changed


def _replaces(storage: Storage, text: bytes, etag: str) -> bool:
    """Whether the file holds the text now; a lost reply is found out by reading."""
    try:
        if storage.replace(PROPERTIES, text, etag=etag) is not None:
            return True
    except UnavailableError:
        if load_properties_file(storage) != text:
            raise
    return load_properties_file(storage) == text


def _put_right(storage: Storage) -> None:
    """Finish or undo a change during which Hudi died."""
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
            return  # somebody is at work on it
    storage.delete(_BACKUP_CHECKSUM_FILE)
    storage.delete(PROPERTIES_BACKUP)


def switch_off_metadata_table(storage: Storage, world: World) -> TableConfig:
    """Make readers list files, as Hudi does when it is told to: what we write then is seen.

    The property goes first, for a reader believes it more than the folder. Whoever finds the
    folder half deleted repeats the call. Spark writers leave the metadata table off from then on.
    """
    config = update_properties(storage, _without_metadata_table, world)
    for found in tuple(storage.list(METADATA_TABLE)):
        storage.delete(found.path)
    return config


def _without_metadata_table(values: dict[str, str]) -> dict[str, str]:
    gone = (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT)
    kept = {key: value for key, value in values.items() if key not in gone}
    return {**kept, METADATA_TABLE_ENABLED: "false"}
