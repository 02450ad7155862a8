"""prepare_data.py as a whole: splits, shards, special text, and what a failure leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from prepared import (
    CASES, NO_SPLIT, ROOT, dataset, documents, prepare, refuse, run, shards, texts, write_jsonl,
)

SPECIALS = CASES / "B13_tok_special_in_text" / "specials.json"


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def many_documents(count: int) -> list[str]:
    return [f"document {i}: " + "word " * (i * 7 % 300) + "\u00e9\U0001f600" for i in range(count)]


# --- separators, index, shards -----------------------------------------------------------------


def test_b22_starts_follow_separators_and_lengths_add_up(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a", "bc", "def"])
    prepare(source, tmp_path / "out")
    (shard,) = shards(tmp_path / "out")
    assert shard.header.num_tokens == 9
    assert shard.starts.tolist() == [0, 2, 5]
    assert all(shard.tokens[start - 1] == 256 for start in (2, 5)) and shard.tokens[8] == 256
    assert sum(len(ids) for ids in shard.documents()) == shard.header.num_tokens


def test_one_and_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", many_documents(6000))
    assert source.stat().st_size > 3 << 20, "several units of work are needed"
    for jobs in ("1", "2"):
        result = run(source, tmp_path / jobs, "--jobs", jobs, "--shard-tokens", "400000",
                     tokenizer=SPECIALS)
        assert result.returncode == 0, result.stderr
    one, two = folder_bytes(tmp_path / "1"), folder_bytes(tmp_path / "2")
    assert one == two
    assert {"train_002.bin", "val_000.bin", "test_000.bin"} <= one.keys()


def test_a_document_never_spans_shards_unless_it_is_longer_than_one(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["aaaa", "bbbb", "c" * 25, "dd", "e" * 9])
    prepare(source, tmp_path / "out", "--shard-tokens", "10")
    found = [(s.header.num_tokens, s.starts.tolist()) for s in shards(tmp_path / "out")]
    assert found == [(10, [0, 5]), (10, [0]), (10, []), (9, [6]), (10, [0])]
    stream = [t for s in shards(tmp_path / "out") for t in s.tokens.tolist()]
    assert bytes(t for t in stream if t < 256) == b"aaaabbbb" + b"c" * 25 + b"dd" + b"e" * 9
    assert [s.header.shard_index for s in shards(tmp_path / "out")] == [0, 1, 2, 3, 4]


def test_names_of_shards_sort_in_order_beyond_a_thousand(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [chr(33 + i % 90) for i in range(1001)])
    prepare(source, tmp_path / "out", "--shard-tokens", "2")
    names = sorted(path.name for path in (tmp_path / "out").glob("train_*.bin"))
    assert names[0] == "train_0000.bin" and names[-1] == "train_1000.bin"
    assert [s.header.shard_index for s in shards(tmp_path / "out")] == list(range(1001))


# --- splits ------------------------------------------------------------------------------------


def test_the_split_is_a_function_of_the_text_alone(tmp_path: Path) -> None:
    """Order of lines and files changes nothing; equal documents share a split."""
    all_texts = [f"text number {i}" for i in range(400)]
    one = write_jsonl(tmp_path / "one.jsonl", all_texts + all_texts[:50])
    half = write_jsonl(tmp_path / "half.jsonl", all_texts[::-1][:200])
    rest = write_jsonl(tmp_path / "rest.jsonl", all_texts[::-1][200:])
    fractions = ("--val-fraction", "0.2", "--test-fraction", "0.1", "--no-ngrams")
    for name, inputs in (("a", [one]), ("b", [rest, half])):
        assert run(inputs, tmp_path / name, *fractions).returncode == 0
    sets = {
        (name, split): {bytes(ids[:-1]) for ids in documents(tmp_path / name, split)}
        for name in "ab" for split in ("train", "val", "test")
    }
    for split in ("train", "val", "test"):
        assert sets["a", split] == sets["b", split]
    assert not sets["a", "train"] & (sets["a", "val"] | sets["a", "test"])
    assert 50 < len(sets["a", "val"]) < 110 and 20 < len(sets["a", "test"]) < 65


def test_the_split_follows_the_stated_hash(tmp_path: Path) -> None:
    all_texts = [f"text number {i}" for i in range(100)]
    source = write_jsonl(tmp_path / "in.jsonl", all_texts)
    assert run(source, tmp_path / "out", "--val-fraction", "0.25", "--split-seed", "7",
               "--no-ngrams").returncode == 0
    expected = []
    for text in all_texts:
        digest = hashlib.sha256((7).to_bytes(8, "little") + text.encode()).digest()
        if int.from_bytes(digest[:8], "big") / 2**64 < 0.25:
            expected.append(text.encode())
    assert [bytes(ids[:-1]) for ids in documents(tmp_path / "out", "val")] == expected


def test_an_empty_split_is_warned_about_and_an_empty_training_split_refused(
    tmp_path: Path,
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["only one"])
    result = run(source, tmp_path / "out", "--val-fraction", "0.001", "--test-fraction", "0")
    assert result.returncode == 0 and "the val split is empty" in result.stdout
    assert "the test split is empty" not in result.stdout
    assert not list((tmp_path / "out").glob("val_*"))
    result = run(source, tmp_path / "out2", "--val-fraction", "0.999", "--test-fraction", "0")
    assert result.returncode == 1 and "no document is left for training" in result.stderr
    assert not (tmp_path / "out2").exists()


# --- special text and the end-of-document token ------------------------------------------------


def test_b13_special_text_stays_text_unless_asked_for(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a<|endoftext|>b", "plain"])
    printed = prepare(source, tmp_path / "out", tokenizer=SPECIALS)
    first = documents(tmp_path / "out")[0]
    assert first == [64, 27, 91, 68, 77, 67, 78, 69, 83, 68, 87, 83, 91, 29, 65, 280]
    assert "1 documents contain special text, kept as text" in printed
    assert dataset(tmp_path / "out")["documents_with_special_text"] == 1

    printed = prepare(source, tmp_path / "parsed", "--parse-special", tokenizer=SPECIALS)
    assert documents(tmp_path / "parsed")[0] == [64, 280, 65, 280]
    assert "1 documents contain special text, parsed into special tokens" in printed


def test_special_text_with_the_bytes_tokenizer(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a<|endoftext|>b", "<|endoftext|>"])
    assert "2 documents contain special text" in prepare(source, tmp_path / "out")
    assert texts(tmp_path / "out") == [b"a<|endoftext|>b", b"<|endoftext|>"]
    prepare(source, tmp_path / "parsed", "--parse-special")
    assert documents(tmp_path / "parsed") == [[97, 256, 98, 256], [256, 256]]


def test_a_forged_separator_through_a_token_not_marked_special_is_refused(tmp_path: Path) -> None:
    content = json.loads(SPECIALS.read_text(encoding="utf-8"))
    for token in content["added_tokens"]:
        token["special"] = False
    tokenizer = tmp_path / "unmarked.json"
    tokenizer.write_text(json.dumps(content), encoding="utf-8")
    source = write_jsonl(tmp_path / "in.jsonl", ["fine", "a<|endoftext|>b"])
    message = refuse(source, tmp_path / "out", tokenizer=tokenizer)
    assert f"{source}:2: text became the end-of-document token" in message and "280" in message


def test_eos_can_be_named_left_out_and_must_exist(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["ab", "ab"])
    prepare(source, tmp_path / "im", "--eos", "<|im_end|>", tokenizer=SPECIALS)
    assert [ids[-1] for ids in documents(tmp_path / "im")] == [282, 282]
    prepare(source, tmp_path / "none", "--eos", "none", tokenizer=SPECIALS)
    (shard,) = shards(tmp_path / "none")
    assert shard.header.eos_id is None and 280 not in shard.tokens
    assert "--eos = '<nope>'" in refuse(source, tmp_path / "x", "--eos", "<nope>",
                                        tokenizer=SPECIALS)
    without = SPECIALS.with_name("same_without_added_tokens.json")
    message = refuse(source, tmp_path / "x", tokenizer=without)
    assert "no end-of-document token by a known name" in message and "--eos none" in message


# --- what a failure leaves behind --------------------------------------------------------------


def test_a_non_empty_output_folder_is_refused_and_replaced_only_if_ours(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["first"])
    out = tmp_path / "out"
    out.mkdir()
    prepare(source, out)
    write_jsonl(source, ["second"])
    assert "is not empty" in refuse(source, out) and texts(out) == [b"first"]
    prepare(source, out, "--overwrite")
    assert texts(out) == [b"second"]
    assert sorted(tmp_path.iterdir()) == [source, out]

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work", encoding="utf-8")
    assert "was not written by this program" in refuse(source, foreign, "--overwrite")
    assert (foreign / "thesis.txt").exists()

    inside = write_jsonl(out / "inside.jsonl", ["third"])
    assert "lies inside --out" in refuse(inside, out, "--overwrite")
    assert "is a file" in refuse(source, source, "--overwrite")


def test_a_failed_overwrite_keeps_the_old_output(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["first"])
    out = tmp_path / "out"
    prepare(source, out)
    before = folder_bytes(out)
    source.write_text('{"text": "good"}\nbad\n', encoding="utf-8")
    refuse(source, out, "--overwrite")
    assert folder_bytes(out) == before


def test_a_full_disk_gives_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["x" * 100_000])

    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    message = refuse(source, tmp_path / "out", preexec=limit_file_size)
    assert "cannot write" in message and "bytes free there" in message


def test_a_report_that_cannot_be_printed_says_that_the_output_is_there(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["text"])
    command = [sys.executable, ROOT / "tools/prepare_data.py", "--jobs", "1", "--input", source,
               "--tokenizer", "bytes", "--out", tmp_path / "out", *NO_SPLIT]
    with open("/dev/full", "w") as full:
        done = subprocess.run(list(map(str, command)), stdout=full, stderr=subprocess.PIPE,
                              text=True)
    assert done.returncode == 1
    assert done.stderr == (f"prepare_data: {tmp_path}/out is complete, but its report cannot be "
                           "printed: No space left on device\n")
    assert (tmp_path / "out/dataset.json").exists()


def start_long_run(
    tmp_path: Path, jobs: str, start_new_session: bool = False
) -> subprocess.Popen[str]:
    """Starts a run of many seconds and waits until its processes are at work."""
    source = write_jsonl(tmp_path / "in.jsonl", many_documents(60_000))
    command = [sys.executable, str(ROOT / "tools" / "prepare_data.py"), "--input", str(source),
               "--tokenizer", str(SPECIALS), "--out", str(tmp_path / "out"), "--jobs", jobs]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               start_new_session=start_new_session)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.partial-*/train.0.unfinished")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process


def expect_stopped(process: subprocess.Popen[str], tmp_path: Path) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "prepare_data: stopped by a signal, nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_sigterm_ends_the_run_and_removes_what_was_begun(tmp_path: Path, jobs: str) -> None:
    process = start_long_run(tmp_path, jobs)
    process.send_signal(signal.SIGTERM)
    expect_stopped(process, tmp_path)


@pytest.mark.parametrize("delay_s", [0.01, 0.02, 0.04, 0.08, 0.16])
def test_a_signal_while_processes_start_ends_the_run(tmp_path: Path, delay_s: float) -> None:
    process = start_long_run(tmp_path, "2")
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    expect_stopped(process, tmp_path)


def test_ctrl_c_reaches_all_processes_and_gives_one_message(tmp_path: Path) -> None:
    process = start_long_run(tmp_path, "2", start_new_session=True)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    expect_stopped(process, tmp_path)


def test_sigkill_leaves_no_finished_looking_output_and_no_process(tmp_path: Path) -> None:
    process = start_long_run(tmp_path, "2")
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
    process.kill()
    process.communicate(timeout=60)
    assert not (tmp_path / "out").exists()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in listed.split()):
        assert time.monotonic() < deadline, f"processes {listed} outlive their parent"
        time.sleep(0.05)


def test_a_dead_worker_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    process = start_long_run(tmp_path, "2")
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in command:
            os.kill(int(child), signal.SIGKILL)
            break
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "a tokenizing process died" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


# --- command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--val-fraction", "1"], "--val-fraction = 1, it must be at least 0 and less than 1"),
        (["--val-fraction", "x"], "--val-fraction = 'x' is not a number"),
        (["--test-fraction", "nan"], "--test-fraction = 'nan' is not a number"),
        (["--val-fraction", "0.6", "--test-fraction", "0.4"], "leave nothing for training"),
        (["--shard-tokens", "0"], "--shard-tokens = 0, at least 1"),
        (["--jobs", "-1"], "--jobs = -1, at least 1"),
        (["--split-seed", "-3"], "--split-seed = -3"),
        (["--text-delimiter", ""], "--text-delimiter is empty"),
        (["--text-delimiter", r"\q"], r"unknown escape \q"),
        (["--eos", "</s>"], "--eos = '</s>', the bytes tokenizer only knows <|endoftext|>"),
    ],
)
def test_values_out_of_range_are_named(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["x"])
    assert expected in refuse(source, tmp_path / "out", *arguments)


def test_a_progress_bar_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["x"])
    assert run(source, tmp_path / "a", *NO_SPLIT).stderr == ""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    command = [sys.executable, str(ROOT / "tools" / "prepare_data.py"), "--input", str(source),
               "--tokenizer", "bytes", "--out", str(tmp_path / "b"), *NO_SPLIT]
    process = subprocess.Popen(command, stderr=child, stdout=subprocess.DEVNULL)
    os.close(child)
    shown = b""
    try:
        while part := os.read(parent, 4096):
            shown += part
    except OSError:
        pass  # Linux reports the end of a terminal's other side as an input/output error.
    os.close(parent)
    assert process.wait(timeout=60) == 0 and b"tokenizing: 100%" in shown
