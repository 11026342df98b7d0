"""What Hudi stores in the key-value metadata of a parquet base file's footer.

All of it is optional to a reader. The bloom filter and the lowest and highest record key serve
writers of Hudi that find records with the BLOOM index: without a filter their upsert fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.files.bloom_filter import GrowingFilter, bloom_filter_text
from pyhudi.format.hashing import has_astral_characters

AVRO_SCHEMA: Final = b"parquet.avro.schema"
MODEL_NAME: Final = b"writer.model.name"
BLOOM_FILTER: Final = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE: Final = b"hoodie_bloom_filter_type_code"
MIN_RECORD_KEY: Final = b"hoodie_min_record_key"
MAX_RECORD_KEY: Final = b"hoodie_max_record_key"


#: One "maybe" in so many is wrong. Hudi asks for one in a billion, at three times the cost; but
#: readers of a bucket table never use the filter.
_FALSE_ANSWERS = 1e-3


@dataclass(frozen=True, slots=True)
class BaseFileFooter:
    """Hudi's part of the footer."""

    avro_schema: str | None = None  # with the meta columns
    bloom: str | None = None  # base64
    bloom_type: str | None = None
    min_key: str | None = None
    max_key: str | None = None


class KeyDigest:
    """What a footer says of the record keys, collected batch by batch without keeping them."""

    def __init__(self) -> None:
        self._bloom = GrowingFilter(_FALSE_ANSWERS)
        self._extremes: list[str] = []

    def add(self, keys: pa.Array) -> None:
        if len(keys):
            self._bloom.add(keys)
            self._extremes = _key_range([*self._extremes, *_part_range(keys)])

    def footer(self, avro_schema: str) -> BaseFileFooter:
        bloom = self._bloom.filter()
        lowest, highest = self._extremes or (None, None)
        text = bloom_filter_text(bloom)
        return BaseFileFooter(avro_schema, text, bloom.type_code, lowest, highest)


def _part_range(keys: pa.Array) -> list[str]:
    """Return the lowest and the highest of some keys, in Java's order.

    Arrow compares UTF-8 bytes, which is the same except for characters beyond the first 65,536.
    """
    if has_astral_characters(keys):
        return _key_range(pc.unique(keys).to_pylist())
    extremes = pc.min_max(keys)
    return [extremes["min"].as_py(), extremes["max"].as_py()]


def _key_range(texts: list[str]) -> list[str]:
    """Return the lowest and the highest key as Java compares them, by UTF-16 units."""
    return [min(texts, key=_utf16_order), max(texts, key=_utf16_order)]


def _utf16_order(text: str) -> bytes:
    return text.encode("utf-16-be")


def encode_footer(footer: BaseFileFooter) -> dict[bytes, bytes]:
    """Return the entries to add to a base file's key-value metadata."""
    entries = {
        AVRO_SCHEMA: footer.avro_schema,
        MODEL_NAME: None if footer.avro_schema is None else "avro",
        BLOOM_FILTER: footer.bloom,
        BLOOM_TYPE: footer.bloom_type,
        MIN_RECORD_KEY: footer.min_key,
        MAX_RECORD_KEY: footer.max_key,
    }
    return {key: text.encode() for key, text in entries.items() if text is not None}
