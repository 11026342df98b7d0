"""Loads and stores the record of a table's last maintenance. The last process that stores it wins:
mostly one maintains the table at a time, and the record is a hint."""

from __future__ import annotations

from pyhudi.format.table.upkeep_record import (
    RECORD_BYTES_MAX,
    UPKEEP_RECORD,
    UpkeepRecord,
    decode_upkeep_record,
    encode_upkeep_record,
)
from pyhudi.storage.protocol import Storage


def load_upkeep_record(storage: Storage) -> UpkeepRecord:
    try:
        return decode_upkeep_record(storage.read(UPKEEP_RECORD, 0, RECORD_BYTES_MAX + 1))
    except FileNotFoundError:
        return UpkeepRecord()


def store_upkeep_record(storage: Storage, record: UpkeepRecord) -> None:
    storage.write(UPKEEP_RECORD, encode_upkeep_record(record))
