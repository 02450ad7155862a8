"""What prepare_data.py reads: JSON Lines, JSON, plain text, Parquet, Arrow, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from prepared import CASES, dataset, prepare, refuse, run, texts, write_jsonl

OBJECTS = CASES / "B20_jsonl_objects"
LINES = CASES / "B19_jsonl_u2028"
MARKS = CASES / "B17_jsonl_bom"


def expected(folder: Path) -> dict[str, object]:
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def encoded(documents: object) -> list[bytes]:
    assert isinstance(documents, list)
    return [document.encode("utf-8") for document in documents]


# --- JSON Lines --------------------------------------------------------------------------------


def test_b16_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    folder = CASES / "B16_jsonl_lone"
    printed = prepare(folder / "lone_surrogates.jsonl", tmp_path / "out")
    assert texts(tmp_path / "out") == encoded(expected(folder)["documents_if_replaced"])
    assert texts(tmp_path / "out")[0].hex() == "61efbfbd62"
    assert "lone surrogates by U+FFFD in 5 documents" in printed


def test_surrogate_pairs_become_one_character(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "\\ud83d\\ude00"}\n', encoding="ascii")
    prepare(source, tmp_path / "out")
    assert texts(tmp_path / "out") == ["\U0001f600".encode()]


@pytest.mark.parametrize("name", ["utf8_bom.jsonl", "bom_inside_text.jsonl"])
def test_b17_a_byte_order_mark_is_dropped_at_the_start_only(tmp_path: Path, name: str) -> None:
    prepare(MARKS / name, tmp_path / "out")
    assert texts(tmp_path / "out") == encoded(expected(MARKS)[name])


@pytest.mark.parametrize("arguments", [(), ("--skip-invalid",)])
def test_b17_utf16_is_refused_by_name(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    source = MARKS / "utf16le_bom.jsonl"
    message = refuse(source, tmp_path / "out", *arguments)
    assert f"{source} is UTF-16" in message and "not UTF-8" in message and "iconv" in message


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.txt", "\ufeffx".encode("utf-16-be"), "is UTF-16 (big-endian"),
        ("a.json", "\ufeff[]".encode("utf-32-le"), "is UTF-32 (little-endian"),
        ("a.jsonl", '{"text": "x"}'.encode("utf-16-le"), "without a byte-order mark"),
        ("a.jsonl", b"\x1f\x8b\x08\0", "is gzip-compressed"),
        ("a.jsonl", b"\x28\xb5\x2f\xfd", "is zstd-compressed"),
        ("a.jsonl", b"PAR1....", "give --format parquet"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    ],
)
def test_files_that_are_something_else_are_named(
    tmp_path: Path, name: str, content: bytes, part: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert part in refuse(tmp_path / name, tmp_path / "out")


@pytest.mark.parametrize("name", ["line_separators_inside_strings.jsonl", "crlf.jsonl"])
def test_b19_only_a_newline_byte_ends_a_record(tmp_path: Path, name: str) -> None:
    prepare(LINES / name, tmp_path / "out")
    assert texts(tmp_path / "out") == encoded(expected(LINES)[name])


GOOD = {
    "blank_lines.jsonl": [b"hello", b"world"],
    "no_final_newline.jsonl": [b"hello", b"world"],
    "big_numbers.jsonl": [b"ok"],
    "duplicate_keys.jsonl": [b"second"],
    "nul_and_escapes.jsonl": [bytes.fromhex("610062"), bytes.fromhex("225c2f080c0a0d09c3a9")],
}


@pytest.mark.parametrize("name", GOOD)
def test_b20_odd_but_valid_lines_are_read(tmp_path: Path, name: str) -> None:
    prepare(OBJECTS / name, tmp_path / "out")
    assert texts(tmp_path / "out") == GOOD[name]


BAD = {
    "wrong_shapes.jsonl": (1, 'no text key: no key "text"; keys here: \'txt\''),
    "truncated_last_line.jsonl": (3, "not valid JSON: Unterminated string"),
    "deep_nesting.jsonl": (1, "nested too deeply"),
    "invalid_utf8.jsonl": (1, "not UTF-8: byte 13 (e9)"),
}


@pytest.mark.parametrize("name", BAD)
def test_b20_strict_stops_with_file_line_and_reason(tmp_path: Path, name: str) -> None:
    line, reason = BAD[name]
    message = refuse(OBJECTS / name, tmp_path / "out")
    assert f"{OBJECTS / name}:{line}: {reason}" in message and "--skip-invalid" in message


SKIPPED = {
    "wrong_shapes.jsonl": (
        [b"ok"], {"no text key": 1, "text is not a string": 3, "not a JSON object": 4},
    ),
    "truncated_last_line.jsonl": ([b"hello", b"world"], {"not valid JSON": 1}),
    "invalid_utf8.jsonl": ([b"ok"], {"not UTF-8": 5}),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_b20_skip_mode_keeps_the_good_and_counts_by_reason(tmp_path: Path, name: str) -> None:
    good, counts = SKIPPED[name]
    printed = prepare(OBJECTS / name, tmp_path / "out", "--skip-invalid")
    assert texts(tmp_path / "out") == good
    assert dataset(tmp_path / "out")["skipped"] == counts
    for reason, count in counts.items():
        assert f"{count} x {reason}; first: {OBJECTS / name}:" in printed


@pytest.mark.parametrize("name", ["empty.jsonl", "only_newlines.jsonl", "deep_nesting.jsonl"])
def test_b20_no_documents_at_all_is_refused(tmp_path: Path, name: str) -> None:
    message = refuse(OBJECTS / name, tmp_path / "out", "--skip-invalid")
    assert "0 documents in 1 input files" in message and name in message


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1" * 5000])
def test_numbers_are_neither_texts_nor_limits(tmp_path: Path, value: str) -> None:
    """Python's own limit of 4300 digits does not apply; NaN is not JSON."""
    source = tmp_path / "in.jsonl"
    source.write_text(f'{{"n": {value}, "text": "x"}}\n', encoding="ascii")
    if value.startswith("1"):
        prepare(source, tmp_path / "out")
        assert texts(tmp_path / "out") == [b"x"]
    else:
        assert ":1: not valid JSON" in refuse(source, tmp_path / "out")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_first_bad_line_is_named_across_units_and_processes(
    tmp_path: Path, jobs: str
) -> None:
    lines = [json.dumps({"text": "word " * 50 + str(i)}) for i in range(20_000)]
    lines[15_000] = '{"text": 5}'
    lines[17_000] = "worse"
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines), encoding="ascii")
    assert source.stat().st_size > 4 << 20, "several units are needed"
    message = refuse(source, tmp_path / "out", "--jobs", jobs)
    assert f'{source}:15001: text is not a string: "text" is a number' in message


def test_documents_without_text_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["", "a", " ", ""])
    assert "2 documents without text left out" in prepare(source, tmp_path / "out")
    assert texts(tmp_path / "out") == [b"a", b" "]


def test_the_text_key_can_be_chosen_and_long_documents_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"body": "x" * (1 << 20), "text": 1}) + "\n", encoding="ascii")
    prepare(source, tmp_path / "out", "--text-key", "body", "--max-document-mib", "1")
    source.write_text(json.dumps({"text": "x" * ((1 << 20) + 1)}) + "\n", encoding="ascii")
    message = refuse(source, tmp_path / "out2", "--max-document-mib", "1")
    assert ":1: document too long: 1048577 bytes, the limit is 1048576" in message


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        ('[\n {"text": "a"},\n {"text": "b", "n": 1}\n]\n', [b"a", b"b"]),
        ('\n{"text": "one",\n "more": [1, 2]}\n', [b"one"]),
        ('\ufeff[{"text": "\u00e9"}]', ["\u00e9".encode()]),
    ],
)
def test_json_lists_and_single_objects_are_read(
    tmp_path: Path, content: str, documents: list[bytes]
) -> None:
    (tmp_path / "in.json").write_text(content, encoding="utf-8")
    prepare(tmp_path / "in.json", tmp_path / "out")
    assert texts(tmp_path / "out") == documents


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('[{"text": "a"},\n {"text": 5}]', ':2: text is not a string: "text" is a number'),
        ('[{"text": "a"},\n "b"]', ":2: not a JSON object: a string"),
        ('[{"text": "a"}\n {"text": "b"}]', ":2: not valid JSON: expected one of ',]'"),
        ('[{"text": "a"},\n', ":2: not valid JSON: Expecting value"),
        ('[{"text": "a"}]\nx', ":2: not valid JSON: more data after the list"),
        ('{"text": "a"}\n{"text": "b"}\n', ":2: not valid JSON: more data after the first value"),
        ('[\n{"text": ' + "[" * 100_000, ":2: nested too deeply"),
        ('[\n{"text": NaN}]', ":2: not valid JSON: NaN"),
        ("[]", "0 documents in 1 input files"),
    ],
)
def test_json_faults_are_named_with_their_line(tmp_path: Path, content: str, part: str) -> None:
    (tmp_path / "in.json").write_text(content, encoding="ascii")
    assert part in refuse(tmp_path / "in.json", tmp_path / "out")


def test_a_json_syntax_error_is_never_skipped(tmp_path: Path) -> None:
    """What follows it cannot be found again, so skipping would lose documents silently."""
    source = tmp_path / "in.json"
    source.write_text('[{"text": "a"}, {"text": 5}, {"text": "b"}, oops]', encoding="ascii")
    message = refuse(source, tmp_path / "out", "--skip-invalid")
    assert "nothing behind this place can be read" in message
    source.write_text('[{"text": "a"}, {"text": 5}, {"text": "b"}]', encoding="ascii")
    prepare(source, tmp_path / "out", "--skip-invalid")
    assert texts(tmp_path / "out") == [b"a", b"b"]


# --- plain text --------------------------------------------------------------------------------


def test_a_text_file_is_one_document_byte_for_byte(tmp_path: Path) -> None:
    content = "line one\r\n\n\x00 caf\u00e9 \u2028\n".encode()
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + content)
    prepare(tmp_path / "in.txt", tmp_path / "out")
    assert texts(tmp_path / "out") == [content]


def test_a_delimiter_cuts_text_into_documents(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\nb\n\nc\n\n\n\nd\n\n")
    prepare(tmp_path / "in.txt", tmp_path / "out", "--text-delimiter", r"\n\n")
    assert texts(tmp_path / "out") == [b"a\nb", b"c", b"d"]
    assert dataset(tmp_path / "out")["empty_documents"] == 1


def test_an_overlapping_delimiter_cuts_as_from_the_left_in_large_files(tmp_path: Path) -> None:
    """Units end where a split of the whole file would cut, also inside long runs."""
    content = b"\n" * 1_500_001 + b"x" + b"\n" * 1_200_000 + b"y\n\nz"
    (tmp_path / "in.txt").write_bytes(content)
    prepare(tmp_path / "in.txt", tmp_path / "out", "--text-delimiter", r"\n\n")
    wanted = [piece for piece in content.split(b"\n\n") if piece]
    assert texts(tmp_path / "out") == wanted == [b"\nx", b"y", b"z"]


def test_bad_utf8_in_text_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"ok\n\nfine\nca\xff\n\nend")
    message = refuse(tmp_path / "in.txt", tmp_path / "out")
    assert "in.txt:4: not UTF-8: byte 12 (ff)" in message
    message = refuse(tmp_path / "in.txt", tmp_path / "out", "--text-delimiter", r"\n\n")
    assert "in.txt:4: not UTF-8: byte 8 (ff)" in message
    prepare(tmp_path / "in.txt", tmp_path / "out", "--text-delimiter", r"\n\n", "--skip-invalid")
    assert texts(tmp_path / "out") == [b"ok", b"end"]


# --- Parquet and Arrow -------------------------------------------------------------------------


def columns(count: int, null_at: int | None = None):
    pyarrow = pytest.importorskip("pyarrow")
    values = [f"row {i} \u00e9" for i in range(count)]
    if null_at is not None:
        values[null_at] = None
    return pyarrow.table({"id": list(range(count)), "text": values})


def write_columns(path: Path, table) -> Path:
    import pyarrow
    from pyarrow import parquet

    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=100)
        return path
    kind = pyarrow.ipc.new_file if path.stem == "file" else pyarrow.ipc.new_stream
    with pyarrow.OSFile(str(path), "wb") as sink, kind(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_columns_are_read_in_order(tmp_path: Path, name: str) -> None:
    source = write_columns(tmp_path / name, columns(1050))
    from ingot_data import arrow_files

    kind = "parquet" if name.endswith("parquet") else "arrow"
    parts = list(arrow_files.plan(source, kind, unit_bytes=4000))
    assert len(parts) > 3 and parts[0][0] == 0 and parts[-1][1] == 11
    read = [r.text for a, b, _ in parts for r in arrow_files.read(source, kind, a, b, "text")]
    assert read == [f"row {i} \u00e9" for i in range(1050)]
    prepare(source, tmp_path / "out", "--jobs", "2")
    assert [t.decode() for t in texts(tmp_path / "out")] == read


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_null_row_is_named_or_counted(tmp_path: Path, name: str) -> None:
    source = write_columns(tmp_path / name, columns(500, null_at=420))
    assert f"{source}:row 421: text is null" in refuse(source, tmp_path / "out")
    prepare(source, tmp_path / "out", "--skip-invalid")
    assert len(texts(tmp_path / "out")) == 499
    assert dataset(tmp_path / "out")["skipped"] == {"text is null": 1}


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow"])
def test_missing_and_wrong_columns_and_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    source = write_columns(tmp_path / name, columns(300))
    message = refuse(source, tmp_path / "out", "--text-key", "body")
    assert 'no column "body"; its columns are id, text' in message
    message = refuse(source, tmp_path / "out", "--text-key", "id")
    assert 'the column "id" is of type int64, a string is needed' in message
    source.write_bytes(source.read_bytes()[:-20])
    assert f"{source} cannot be read as" in refuse(source, tmp_path / "out")


def test_without_pyarrow_the_install_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "block" / "pyarrow").mkdir(parents=True)
    stub = "raise ImportError('blocked')\n"
    (tmp_path / "block" / "pyarrow" / "__init__.py").write_text(stub, encoding="ascii")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "block"))
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    message = refuse(tmp_path / "a.parquet", tmp_path / "out")
    assert "pip install -r tools/requirements-arrow.txt" in message
    write_jsonl(tmp_path / "a.jsonl", ["works without"])
    prepare(tmp_path / "a.jsonl", tmp_path / "out")


# --- finding files -----------------------------------------------------------------------------


def test_folders_are_read_sorted_and_other_endings_are_mentioned(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "sub/a.txt", "a.txt", "c.bin", ".hidden.txt"):
        (folder / name).write_text(name, encoding="ascii")
    printed = prepare(folder, tmp_path / "out")
    assert texts(tmp_path / "out") == [b"a.txt", b"b.txt", b"sub/a.txt"]
    assert "1 files of" in printed and "are not read" in printed
    prepare(folder, tmp_path / "all", "--format", "text")
    assert texts(tmp_path / "all") == [b"a.txt", b"b.txt", b"c.bin", b"sub/a.txt"]


def test_unreadable_inputs_are_named(tmp_path: Path) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", ["x"])
    (tmp_path / "x.bin").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    message = refuse([good, tmp_path / "gone.jsonl"], out)
    assert f"cannot read {tmp_path / 'gone.jsonl'}: No such file or directory" in message
    assert "ends in '.bin', known endings are .jsonl" in refuse(tmp_path / "x.bin", out)
    assert "holds no input file" in refuse(tmp_path / "empty", out)
    assert "is given twice" in refuse([good, good], out)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is not a regular file" in refuse(tmp_path / "pipe.jsonl", out)
    assert "cannot read /gone/tokenizer.json" in refuse(good, out, tokenizer="/gone/tokenizer.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["x"])
    source.chmod(0)
    result = run(source, tmp_path / "out")
    assert result.returncode == 1 and "check the permissions" in result.stderr
