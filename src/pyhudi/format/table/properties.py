"""Java properties text, and `hoodie.properties`, the file that makes a folder a table.

The syntax is Java's, whole: ISO-8859-1 bytes with `\\uXXXX` for the rest, `=`, `:` or blanks
between key and value, backslash escapes, continuation lines, `#` and `!` comments.

`hoodie.properties` carries a checksum of the table's name. It guards little (no other key is
covered), but Hudi refuses a table whose checksum is wrong, so we do too. Hudi replaces the file
in steps, and a reader may find it absent or cut short; then the backup beside it counts.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from pyhudi.errors import CorruptTableError

PROPERTIES_FILE: Final = "hoodie.properties"
BACKUP_FILE: Final = "hoodie.properties.backup"
PROPERTIES_BYTES_MAX: Final = 4 * 1024 * 1024  # most of it would be the table's first schema

TABLE_NAME: Final = "hoodie.table.name"
DATABASE_NAME: Final = "hoodie.database.name"
TABLE_TYPE: Final = "hoodie.table.type"
TABLE_VERSION: Final = "hoodie.table.version"
TABLE_CHECKSUM: Final = "hoodie.table.checksum"

_BLANKS = " \t\f"
_LINE_BREAK = re.compile("\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPED_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTER_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_ESCAPED_SIGNS = frozenset("\\=:#!")

_FLAGS = {"": False, "true": True, "false": False}
_NUMBER_DIGITS_MAX = 10
_Choice = TypeVar("_Choice", bound=StrEnum)

_RESTORE = "Restore the file from a backup of the table"


def decode_properties(data: bytes, path: str | None = None) -> dict[str, str]:
    """Return the keys and values of Java properties text, in file order.

    A repeated key's last wins.
    """
    if len(data) > PROPERTIES_BYTES_MAX:
        raise CorruptTableError(
            "properties text is too large",
            why=f"it has more than {PROPERTIES_BYTES_MAX} bytes",
            next_step=_RESTORE,
            path=path,
        )
    pairs: dict[str, str] = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        key = _matched(_KEY, line, 0)
        separator = _matched(_SEPARATOR, line, len(key))
        value = line[len(key) + len(separator) :]
        try:
            pairs[_unescaped(key)] = _unescaped(value)
        except ValueError as error:
            raise CorruptTableError(
                "properties text has a broken escape",
                why=f"{key[:80]!r} or its value holds half a character or an incomplete \\u",
                next_step=_RESTORE,
                path=path,
            ) from error
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones, each joined with its continuations."""
    parts: list[str] = []
    for natural in _LINE_BREAK.split(text):
        line = natural.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        continued = _is_continued(line)
        parts.append(line[:-1] if continued else line)
        if not continued:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _is_continued(line: str) -> bool:
    """True if the line ends with an odd number of backslashes.

    The last one then escapes the line break.
    """
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _matched(pattern: re.Pattern[str], line: str, start: int) -> str:
    match = pattern.match(line, start)
    assert match is not None, "both patterns match the empty text"
    return match.group()


def _unescaped(text: str) -> str:
    """Resolve the escapes.

    Java writes a character outside the first 65,536 as two escapes; such halves are joined.
    """
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescaped_one, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescaped_one(match: re.Match[str]) -> str:
    escaped = match.group(1)
    if escaped[0] == "u":
        return chr(int(escaped[1:], 16))  # ValueError for a bare \u
    return _ESCAPED_LETTERS.get(escaped, escaped)


def encode_properties(pairs: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """Return properties text as Java writes it, in the mapping's order, after the comment lines."""
    lines = [f"#{_escaped_unicode(comment)}\n" for comment in comments]
    for key, value in pairs.items():
        name, content = _escaped(key).replace(" ", "\\ "), _escaped(value)
        leading = "\\" if content.startswith(" ") else ""  # later blanks belong to the value
        lines.append(f"{name}={leading}{content}\n")
    return "".join(lines).encode("ascii")


def _escaped(text: str) -> str:
    return "".join(map(_escaped_one, text))


def _escaped_one(char: str) -> str:
    if char in _ESCAPED_SIGNS:
        return "\\" + char
    return _LETTER_ESCAPES.get(char) or _escaped_unicode(char)


def _escaped_unicode(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    units = struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass"))
    return "".join(chr(u) if 0x20 <= u <= 0x7E else f"\\u{u:04X}" for (u,) in units)


def table_checksum(name: str, database: str = "") -> str:
    """Return the text of `hoodie.table.checksum`.

    >>> table_checksum("mor1")
    '2126765813'
    """
    return str(zlib.crc32(f"{database}.{name}".encode()))


@dataclass(frozen=True, slots=True)
class TableProperties:
    """What `hoodie.properties` says, every key as written, with typed access to its values.

    An empty value counts as absent, as it does in Hudi. `TableConfig` is the view to work with.
    """

    values: Mapping[str, str]
    path: str = field(default=f".hoodie/{PROPERTIES_FILE}", compare=False)

    def text(self, key: str) -> str | None:
        return self.values.get(key) or None

    def names(self, key: str) -> tuple[str, ...]:
        """Return a comma-separated list."""
        parts = (part.strip() for part in self.values.get(key, "").split(","))
        return tuple(part for part in parts if part)

    def number(self, key: str) -> int | None:
        text = self.values.get(key, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
            raise self.malformed(key, "a decimal number")
        return int(text)

    def flag(self, key: str, *, default: bool) -> bool:
        text = self.values.get(key, "").strip().lower()
        if text not in _FLAGS:
            raise self.malformed(key, "true or false")
        return default if text == "" else _FLAGS[text]

    def choice(self, key: str, choices: type[_Choice]) -> _Choice | None:
        text = self.values.get(key, "").strip().upper()
        if not text:
            return None
        try:
            return choices(text)
        except ValueError:
            raise self.malformed(key, f"one of {', '.join(choices)}") from None

    def folder(self, key: str, default: str) -> str:
        """Return a path below another folder. Anything that could lead out of it is refused."""
        text = self.values.get(key, "").strip() or default
        if any(part in ("", ".", "..") for part in text.split("/")) or "\\" in text or ":" in text:
            raise self.malformed(key, "a relative path without dots")
        return text

    def malformed(self, key: str, expected: str) -> CorruptTableError:
        """Return the error for a key whose value cannot be understood."""
        return CorruptTableError(
            "a table property cannot be used",
            why=f"{key} is {self.values[key][:80]!r}, not {expected}",
            next_step=f"Correct {key}: set it back to what it was when the table was last written",
            path=self.path,
        )

    @property
    def checksum(self) -> str:
        """The checksum that the file should carry."""
        return table_checksum(self.values.get(TABLE_NAME, ""), self.values.get(DATABASE_NAME, ""))

    def verify(self) -> None:
        """Raise CorruptTableError if a mandatory key is missing or the checksum is wrong.

        A missing checksum is accepted, as Hudi and hudi-rs accept it.
        """
        missing = [k for k in (TABLE_NAME, TABLE_TYPE, TABLE_VERSION) if self.text(k) is None]
        if missing:
            raise CorruptTableError(
                "the table's properties are incomplete",
                why=f"{', '.join(missing)} not found",
                next_step=_RESTORE,
                path=self.path,
            )
        stated = self.text(TABLE_CHECKSUM)
        if stated is not None and stated.strip() != self.checksum:
            raise CorruptTableError(
                "the table's properties fail their checksum",
                why=f"{TABLE_CHECKSUM} is {stated[:20]!r}, the table's name gives {self.checksum}",
                next_step="Correct the name of the table or database, or restore the file",
                path=self.path,
            )


def decode_table_properties(data: bytes, path: str | None = None) -> TableProperties:
    """Return the properties of a table, verified."""
    values = decode_properties(data, path)
    properties = TableProperties(values) if path is None else TableProperties(values, path)
    properties.verify()
    return properties


def recovered_properties(main: bytes | None, backup: bytes | None) -> bytes:
    """Return whichever of the two files a reader should believe; CorruptTableError if neither.

    A writer may have stopped anywhere between copying the file to the backup and deleting the
    backup. A main file that is sound wins. One that lacks the checksum may have been cut short, and
    yields to a backup that has it.
    """
    sound = [data for data in (main, backup) if data is not None and _is_sound(data)]
    whole = [data for data in sound if TABLE_CHECKSUM in decode_properties(data)]
    if sound:
        return (whole or sound)[0]
    if main is not None:
        decode_table_properties(main, f".hoodie/{PROPERTIES_FILE}")  # raises, says what is wrong
    raise CorruptTableError(
        "the table has no usable properties",
        why=f"{PROPERTIES_FILE} is absent and {BACKUP_FILE} is absent or damaged",
        next_step=_RESTORE,
    )


def _is_sound(data: bytes) -> bool:
    try:
        decode_table_properties(data)
    except CorruptTableError:
        return False
    return True
