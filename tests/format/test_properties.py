"""Java properties text, the checksum, and recovery from the backup."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.properties import (
    TableProperties,
    decode_properties,
    decode_table_properties,
    encode_properties,
    recovered_properties,
    table_checksum,
)

MINIMAL = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
}
SUM = {"hoodie.table.checksum": table_checksum("orders")}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b\n", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a  :  b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b", {"a": "b"}),
        ("a=b  ", {"a": "b  "}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("#a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("#a\\\nb=2", {"b": "2"}),  # a comment does not go on
        ("a=b#c!d", {"a": "b#c!d"}),
        ("a=one\\\n   two", {"a": "onetwo"}),
        ("a=one\\\n\nb=2", {"a": "one", "b": "2"}),  # continued by a blank line
        ("a=one\\\n #two", {"a": "one#two"}),  # no comment within a line
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=end\\", {"a": "end"}),
        ("a\\\n=b", {"a": "b"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\\\q\"\:", {"a": '\t\n\r\f\\q":'}),
        (r"a=\u0041\u00e9\u20AC", {"a": "Aé€"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"\u0061=b", {"a": "b"}),
        ("a=é", {"a": "Ã©"}),  # the bytes are ISO-8859-1, whatever the writer thought
        ("a=b\x0bc\x85d", {"a": "b\x0bcÂ\x85d"}),  # no line ends for Java
    ],
)
def test_java_syntax_is_understood(text: str, pairs: dict[str, str]) -> None:
    assert decode_properties(text.encode()) == pairs


@pytest.mark.parametrize(
    "text", [r"a=\u12", r"a=\u", r"a=\uzzzz", r"a=\ud83d", r"a=\ude00\ud83d", r"\u12=b"]
)
def test_broken_escapes_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="broken escape") as caught:
        decode_properties(text.encode(), path=".hoodie/hoodie.properties")
    assert caught.value.path == ".hoodie/hoodie.properties"


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"a": "b"}, "a=b\n"),
        ({"a b:c=d": "e"}, "a\\ b\\:c\\=d=e\n"),
        ({"a": "  b c"}, "a=\\  b c\n"),
        ({"a": "x:y=z#!"}, "a=x\\:y\\=z\\#\\!\n"),
        ({"a": "\t\n\r\f\\"}, "a=\\t\\n\\r\\f\\\\\n"),
        ({"a": "é\x00\x7f😀"}, "a=\\u00E9\\u0000\\u007F\\uD83D\\uDE00\n"),
        ({}, ""),
    ],
)
def test_text_is_written_as_java_writes_it(pairs: dict[str, str], text: str) -> None:
    assert encode_properties(pairs).decode() == text
    assert decode_properties(text.encode()) == pairs


def test_comments_come_first() -> None:
    data = encode_properties({"a": "b"}, comments=["Updated at noon", "größer"])
    assert data == b"#Updated at noon\n#gr\\u00F6\\u00DFer\na=b\n"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(deadline=None)
@given(st.dictionaries(texts, texts), st.lists(st.text("abc ", max_size=9), max_size=3))
def test_any_pairs_round_trip(pairs: dict[str, str], comments: list[str]) -> None:
    assert decode_properties(encode_properties(pairs, comments)) == pairs


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        pairs = decode_properties(data)
    except CorruptTableError:
        return
    assert decode_properties(encode_properties(pairs)) == pairs


@pytest.mark.parametrize("name", NAMES)
def test_golden_properties_are_written_back_byte_for_byte(golden: GoldenTables, name: str) -> None:
    for path in golden.path(name).rglob("hoodie.properties"):
        data = path.read_bytes()
        comments = [line[1:].decode() for line in data.splitlines() if line.startswith(b"#")]
        properties = decode_table_properties(data)
        assert properties.checksum == properties.values["hoodie.table.checksum"]
        assert encode_properties(properties.values, comments) == data


@pytest.mark.parametrize(
    ("name", "database", "checksum"),
    [("mor1", "", "2126765813"), ("morpart", "default", "4152988650")],
)
def test_checksum_covers_database_and_name(name: str, database: str, checksum: str) -> None:
    assert table_checksum(name, database) == checksum


def test_a_missing_checksum_is_accepted() -> None:
    assert decode_table_properties(encode_properties(MINIMAL)).values == MINIMAL


def test_a_wrong_checksum_is_refused() -> None:
    data = encode_properties({**MINIMAL, "hoodie.table.checksum": "1"})
    with pytest.raises(CorruptTableError, match=r"checksum.*hoodie\.properties") as caught:
        decode_table_properties(data)
    assert caught.value.path == ".hoodie/hoodie.properties"


@pytest.mark.parametrize("key", MINIMAL)
def test_a_missing_mandatory_key_is_refused_by_name(key: str) -> None:
    for values in ({k: v for k, v in MINIMAL.items() if k != key}, {**MINIMAL, key: ""}):
        with pytest.raises(CorruptTableError, match=f"{key} not found"):
            decode_table_properties(encode_properties(values), path="elsewhere")


MAIN = encode_properties({**MINIMAL, **SUM, "a": "main"})
BACKUP = encode_properties({**MINIMAL, **SUM, "a": "backup"})
MAIN_UNSUMMED = encode_properties({**MINIMAL, "a": "main"})
BACKUP_UNSUMMED = encode_properties({**MINIMAL, "a": "backup"})
CUT_SHORT = MAIN[:30]
WRONG_SUM = encode_properties({**MINIMAL, "hoodie.table.checksum": "1"})


@pytest.mark.parametrize(
    ("main", "backup", "chosen"),
    [
        (MAIN, None, MAIN),
        (MAIN, BACKUP, MAIN),
        (MAIN, CUT_SHORT, MAIN),
        (MAIN_UNSUMMED, None, MAIN_UNSUMMED),
        (MAIN_UNSUMMED, BACKUP_UNSUMMED, MAIN_UNSUMMED),
        (MAIN_UNSUMMED, BACKUP, BACKUP),  # the main file may have been cut short
        (None, BACKUP, BACKUP),
        (None, BACKUP_UNSUMMED, BACKUP_UNSUMMED),
        (b"", BACKUP, BACKUP),
        (CUT_SHORT, BACKUP, BACKUP),
        (WRONG_SUM, BACKUP, BACKUP),
        (rb"a=\u12", BACKUP, BACKUP),
    ],
)
def test_reader_believes_the_sound_file(
    main: bytes | None, backup: bytes | None, chosen: bytes
) -> None:
    assert recovered_properties(main, backup) is chosen


@pytest.mark.parametrize(
    ("main", "backup"),
    [(None, None), (b"", None), (None, b""), (CUT_SHORT, WRONG_SUM), (rb"a=\u12", None)],
)
def test_reader_refuses_when_no_file_is_sound(main: bytes | None, backup: bytes | None) -> None:
    with pytest.raises(CorruptTableError):
        recovered_properties(main, backup)


class Size(StrEnum):
    SMALL = "SMALL"
    LARGE = "LARGE"


PROPERTIES = TableProperties(
    {
        "n": "12",
        "yes": "true",
        "no": "FALSE",
        "e": "",
        "size": "small",
        "list": "a, b,,c ",
        "f": "x/y",
    }
)


def test_values_are_read_by_type() -> None:
    assert (PROPERTIES.number("n"), PROPERTIES.number("e")) == (12, None)
    assert PROPERTIES.flag("yes", default=False)
    assert not PROPERTIES.flag("no", default=True)
    assert PROPERTIES.flag("e", default=True)
    assert PROPERTIES.choice("size", Size) is Size.SMALL
    assert PROPERTIES.choice("e", Size) is None
    assert PROPERTIES.names("list") == ("a", "b", "c")
    assert PROPERTIES.names("absent") == ()
    assert PROPERTIES.folder("f", "z") == "x/y"
    assert PROPERTIES.folder("e", "z") == "z"
    assert PROPERTIES.text("e") is None


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "1" * 11, "1" * 5000])
def test_a_malformed_number_is_refused_by_key(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.key is"):
        TableProperties({"some.key": text}).number("some.key")


@pytest.mark.parametrize("text", ["1", "yes", "tru"])
def test_a_malformed_flag_is_refused_by_key(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.key is"):
        TableProperties({"some.key": text}).flag("some.key", default=True)


def test_an_unknown_choice_is_refused_by_key() -> None:
    with pytest.raises(CorruptTableError, match=r"some.key is 'MEDIUM', not one of SMALL, LARGE"):
        TableProperties({"some.key": "MEDIUM"}).choice("some.key", Size)


@pytest.mark.parametrize("text", ["/x", "x/", "x//y", "..", "a/../b", ".", "a\\b", "s3://x", "C:x"])
def test_a_folder_that_leads_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.key is"):
        TableProperties({"some.key": text}).folder("some.key", "d")
