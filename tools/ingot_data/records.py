"""From raw bytes to documents: JSON Lines, JSON and plain text.

Every reader yields records in file order. A record is a text, or a problem with a category
(what is counted) and a detail (what is printed for the first one). Places are counted from 1
inside the bytes that the reader was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

BLANK = b" \t\r"
UTF8_BOM = b"\xef\xbb\xbf"

NOT_UTF8 = "not UTF-8"
NOT_JSON = "not valid JSON"
TOO_DEEP = "nested too deeply"
NOT_OBJECT = "not a JSON object"
NO_TEXT = "no text key"
NOT_STRING = "text is not a string"
NULL_ROW = "text is null"
TOO_LONG = "document too long"
FORGED_EOS = "text became the end-of-document token"
TOKENIZER_FAILED = "the tokenizer failed"


@dataclass(frozen=True)
class Problem:
    """Why a record is not a document."""

    category: str
    detail: str
    fatal: bool = False  # The rest of the file cannot be read either, so it is never skipped.


@dataclass(frozen=True)
class Record:
    """One document, or the reason why there is none, and its line or row."""

    place: int
    text: str = ""
    problem: Problem | None = None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


# Numbers are not used, so no digit limit may apply to them and none may become a string.
_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant)


def describe_utf8_error(error: UnicodeDecodeError) -> str:
    bad = error.object[error.start : error.end].hex(" ")
    return f"byte {error.start + 1} ({bad}): {error.reason}"


def text_of(value: Any, key: str, place: int) -> Record:
    """The document inside a parsed JSON value."""
    if not isinstance(value, dict):
        kind = _JSON_KINDS.get(type(value), "another value")
        return Record(place, problem=Problem(NOT_OBJECT, f'{kind} instead of {{"{key}": ...}}'))
    if key not in value:
        keys = ", ".join(repr(name)[:40] for name in list(value)[:5]) or "none"
        return Record(place, problem=Problem(NO_TEXT, f'no key "{key}"; keys here: {keys}'))
    text = value[key]
    if not isinstance(text, str):
        kind = _JSON_KINDS.get(type(text), "another value")
        return Record(place, problem=Problem(NOT_STRING, f'"{key}" is {kind}'))
    return Record(place, text)


_JSON_KINDS = {
    dict: "an object", list: "a list", str: "a string", float: "a number", bool: "true or false",
    type(None): "null",
}


def parse_line(line: bytes, key: str, place: int) -> Record:
    """One line of a JSON Lines file, without its newline."""
    try:
        decoded = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Record(place, problem=Problem(NOT_UTF8, describe_utf8_error(error)))
    try:
        value = _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        return Record(place, problem=Problem(NOT_JSON, f"{error.msg} at column {error.colno}"))
    except ValueError as error:
        return Record(place, problem=Problem(NOT_JSON, str(error)))
    except RecursionError:
        return Record(place, problem=Problem(TOO_DEEP, "more brackets than can be followed"))
    return text_of(value, key, place)


def read_json_lines(data: bytes, key: str) -> Iterator[Record]:
    """Only byte 0x0A ends a line; lines of blanks are no records; U+2028 and the like are text."""
    for place, line in enumerate(data.split(b"\n"), start=1):
        if line.strip(BLANK):
            yield parse_line(line, key, place)


def read_json(data: bytes, key: str) -> Iterator[Record]:
    """A JSON file: a list of objects, or one object. A syntax error ends the whole file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        detail = describe_utf8_error(error)
        yield Record(line, problem=Problem(NOT_UTF8, detail, fatal=True))
        return
    cursor = _JsonCursor(text)
    try:
        yield from _read_json_values(cursor, key)
    except json.JSONDecodeError as error:
        detail = f"{error.msg} at column {error.colno}"
        yield Record(error.lineno, problem=Problem(NOT_JSON, detail, fatal=True))
    except ValueError as error:
        yield Record(cursor.line(), problem=Problem(NOT_JSON, str(error), fatal=True))
    except RecursionError:
        detail = "more brackets than can be followed"
        yield Record(cursor.line(), problem=Problem(TOO_DEEP, detail, fatal=True))


class _JsonCursor:
    """A position in a JSON text that knows its line without counting from the start again."""

    _SPACE = re.compile(r"[ \t\r\n]*")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._counted_to = 0
        self._line = 1

    def line(self) -> int:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line

    def skip_space(self) -> str:
        """Moves to the next character that is not white space and returns it, "" at the end."""
        self.at = self._SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        result, self.at = _DECODER.raw_decode(self.text, self.at)
        return result

    def expect(self, wanted: str, found: str) -> None:
        if found not in wanted or not found:
            raise json.JSONDecodeError(f"expected one of {wanted!r}", self.text, self.at)
        self.at += 1


def _read_json_values(cursor: _JsonCursor, key: str) -> Iterator[Record]:
    first = cursor.skip_space()
    if not first:
        return
    if first != "[":
        line = cursor.line()
        value = cursor.value()
        if cursor.skip_space():
            message = "more data after the first value (JSON Lines? give --format jsonl)"
            raise json.JSONDecodeError(message, cursor.text, cursor.at)
        yield text_of(value, key, line)
        return
    cursor.at += 1
    if cursor.skip_space() == "]":
        cursor.at += 1
    else:
        while True:
            cursor.skip_space()
            line = cursor.line()
            yield text_of(cursor.value(), key, line)
            found = cursor.skip_space()
            cursor.expect(",]", found)
            if found == "]":
                break
    if cursor.skip_space():
        raise json.JSONDecodeError("more data after the list", cursor.text, cursor.at)


def read_text(data: bytes, delimiter: bytes | None) -> Iterator[Record]:
    """Plain text: one document, or the pieces between occurrences of `delimiter`.

    A delimiter at the very end closes the last piece and does not open another one.
    """
    line = 1
    pieces = data.split(delimiter) if delimiter else [data]
    if delimiter and not pieces[-1]:
        pieces.pop()
    for piece in pieces:
        try:
            yield Record(line, piece.decode("utf-8"))
        except UnicodeDecodeError as error:
            bad_line = line + piece.count(b"\n", 0, error.start)
            yield Record(bad_line, problem=Problem(NOT_UTF8, describe_utf8_error(error)))
        line += piece.count(b"\n") + (delimiter.count(b"\n") if delimiter else 0)


_SURROGATE = re.compile("[\ud800-\udfff]")


def to_utf8(text: str) -> tuple[str, bytes, bool]:
    """The text and its bytes, each lone surrogate replaced by U+FFFD; says whether there was one.

    JSON allows an escape like "\\ud800" alone, UTF-8 does not. Pairs were joined by the parser.
    """
    try:
        return text, text.encode("utf-8"), False
    except UnicodeEncodeError:
        text = _SURROGATE.sub("\ufffd", text)
        return text, text.encode("utf-8"), True
