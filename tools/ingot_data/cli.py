"""Command line of prepare_data.py: arguments in, a report out."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ingot_data.errors import DataError
from ingot_data.inputs import FORMATS
from ingot_data.pipeline import Options, Summary, prepare
from ingot_data.shards import SPLIT_NAMES
from ingot_data.worker import SplitRule

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prepare_data.py",
        description="Turn text files into token shards for training.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", nargs="+", type=Path, required=True, metavar="FILE",
        help="files or folders: .jsonl, .json, .txt, .parquet, .arrow")
    add("--tokenizer", required=True,
        help="a tokenizer.json, its folder, or 'bytes' (256 bytes and one end-of-text id)")
    add("--out", type=Path, required=True, help="folder for shards, tokenizer and dataset.json")
    add("--val-fraction", default="0.05", metavar="F",
        help="part of the documents for validation (default %(default)s)")
    add("--test-fraction", default="0.05", metavar="F",
        help="part of the documents for the test set (default %(default)s)")
    add("--split-seed", type=int, default=0, metavar="N",
        help="changes which documents are chosen (default %(default)s)")
    add("--shard-tokens", type=int, default=100_000_000, metavar="N",
        help="most tokens in a shard (default %(default)s)")
    add("--format", choices=sorted(set(FORMATS.values())),
        help="read all inputs as this, whatever their names end in")
    add("--text-key", default="text", metavar="NAME",
        help="JSON key or column that holds the text (default %(default)s)")
    add("--text-delimiter", metavar="TEXT",
        help=r"cut plain text into documents here; \n, \t, \r and \\ are understood "
             "(default: one document a file)")
    add("--eos", default="auto", metavar="TOKEN",
        help="token after every document: auto, none, or its text (default %(default)s)")
    add("--parse-special", action="store_true",
        help="let special text inside documents become special tokens")
    add("--skip-invalid", action="store_true",
        help="leave invalid documents out and count them, instead of stopping at the first")
    add("--overwrite", action="store_true", help="replace an earlier output of this program")
    add("--no-ngrams", action="store_true", help="do not compute the n-gram losses")
    add("--max-document-mib", type=int, default=256, metavar="N",
        help="longest document in MiB (default %(default)s)")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes (default: as many as processors, here %(default)s)")
    return parser


def parse_options(arguments: list[str]) -> Options:
    """Reads and range-checks the command line."""
    given = build_parser().parse_args(arguments)
    rule = split_rule(given.val_fraction, given.test_fraction, given.split_seed)
    for name in ("shard_tokens", "max_document_mib", "jobs"):
        value = getattr(given, name)
        if value < 1:
            raise DataError(f"--{name.replace('_', '-')} = {value}, at least 1 is needed")
    delimiter = None
    if given.text_delimiter is not None:
        delimiter = unescape(given.text_delimiter).encode("utf-8", "surrogateescape")
        if not delimiter:
            raise DataError("--text-delimiter is empty; leave it out for one document a file")
    return Options(
        inputs=given.input, tokenizer=given.tokenizer, out=given.out, format=given.format,
        text_key=given.text_key, text_delimiter=delimiter, eos=given.eos,
        parse_special=given.parse_special, skip_invalid=given.skip_invalid,
        overwrite=given.overwrite, ngrams=not given.no_ngrams, shard_tokens=given.shard_tokens,
        max_document_bytes=given.max_document_mib << 20, jobs=given.jobs, split_rule=rule,
        command=recorded_command(given),
    )


def recorded_command(given: argparse.Namespace) -> list[str]:
    """The command for dataset.json, without what has no influence on the result."""
    command = ["prepare_data.py"]
    for name, value in sorted(vars(given).items()):
        if name in ("out", "jobs", "overwrite") or value is None or value is False:
            continue
        command.append("--" + name.replace("_", "-"))
        if value is not True:
            command += map(str, value) if isinstance(value, list) else [str(value)]
    return command


def split_rule(val: str, test: str, seed: int) -> SplitRule:
    """Fractions as exact bounds of 2^64."""
    parts = []
    for name, text in (("--val-fraction", val), ("--test-fraction", test)):
        try:
            part = Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise DataError(f"{name} = {text!r} is not a number; give e.g. 0.05") from None
        if not 0 <= part < 1:
            raise DataError(f"{name} = {text}, it must be at least 0 and less than 1")
        parts.append(part)
    if sum(parts) >= 1:
        raise DataError(f"--val-fraction {val} and --test-fraction {test} leave nothing for "
                        "training; their sum must be less than 1")
    if not 0 <= seed < 1 << 64:
        raise DataError(f"--split-seed = {seed}, it must be at least 0 and less than 2^64")
    return SplitRule(seed, int(parts[0] * 2**64), int((parts[0] + parts[1]) * 2**64))


def unescape(text: str) -> str:
    """Replaces backslash escapes; an unknown one is refused rather than guessed."""
    result = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escape = next(characters, "")
            if escape not in _ESCAPES or not escape:
                raise DataError(rf"--text-delimiter has the unknown escape \{escape}; known are "
                                r"\n, \t, \r and \\")
            character = _ESCAPES[escape]
        result.append(character)
    return "".join(result)


def report(summary: Summary, options: Options) -> str:
    """What a person wants to know, one fact a line."""
    info, meta, counts = summary.tokenizer, summary.meta, summary.counts
    eos = "none" if info.eos_text is None else f"{info.eos_text} = {meta.eos_id}"
    input_bytes = sum(file.num_bytes for file in summary.files)
    lines = [
        f"input       {len(summary.files)} files, {input_bytes} bytes, "
        f"{counts.documents} documents",
        f"tokenizer   {info.source} ({info.kind}), vocabulary {meta.vocab_size}, "
        f"{8 * meta.token_bytes}-bit ids, end of document {eos}, sha256 {info.sha256.hex()[:16]}",
        f"special     {counts.with_special_text} documents contain special text, "
        + ("parsed into special tokens" if options.parse_special else "kept as text"),
    ]
    if counts.empty:
        lines.append(f"empty       {counts.empty} documents without text left out")
    if counts.with_lone_surrogates:
        lines.append(f"replaced    lone surrogates by U+FFFD in {counts.with_lone_surrogates} "
                     "documents")
    if counts.unknown_tokens:
        lines.append(f"unknown     {counts.unknown_tokens} unknown tokens in "
                     f"{counts.with_unknown_tokens} documents")
    for category, count in sorted(counts.skipped.items()):
        lines.append(f"skipped     {count} x {category}; first: {summary.first_problems[category]}")
    for split, name in enumerate(SPLIT_NAMES):
        lines.append(f"{name:<12}{summary.documents(split)} documents, {summary.tokens(split)} "
                     f"tokens, {len(summary.shards[split])} shards")
    lines += _split_warnings(summary, options)
    lines.append(_ngram_line(summary, options))
    lines.append(f"written     {options.out}")
    return "\n".join(lines)


def _split_warnings(summary: Summary, options: Options) -> list[str]:
    rule = options.split_rule
    wanted = (True, rule.val_below > 0, rule.test_below > rule.val_below)
    return [
        f"warning     the {name} split is empty: documents go to a split as a whole, and none of "
        f"{summary.counts.documents} fell to it; give more documents (--text-delimiter cuts plain "
        "text) or a larger fraction"
        for split, name in enumerate(SPLIT_NAMES)
        if wanted[split] and not summary.shards[split]
    ]


def _ngram_line(summary: Summary, options: Options) -> str:
    losses = summary.losses
    if not options.ngrams:
        return "n-grams     not computed (--no-ngrams)"
    if losses is None:
        return "n-grams     not computed: train and val need at least 3 tokens each"
    text = (f"n-grams     validation loss in nats per token: unigram {losses.unigram:.4f}, bigram "
            f"{losses.bigram:.4f}, trigram {losses.trigram:.4f}")
    if losses.train_tokens < summary.tokens(0) or losses.val_tokens + 2 < summary.tokens(1):
        text += (f" (from the first {losses.train_tokens} training and {losses.val_tokens} "
                 "validation tokens)")
    return text


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Runs the program; every expected failure is one line on stderr and a non-zero status."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        options = parse_options(arguments)
        text = report(prepare(options), options)
        try:
            print(text, flush=True)
        except OSError as error:
            raise DataError(f"{options.out} is complete, but its report cannot be printed: "
                            f"{os.strerror(error.errno or 0)}") from error
    except DataError as error:
        print(f"prepare_data: {error}", file=sys.stderr)
        return 1
    except MemoryError:
        print("prepare_data: memory ran out; give fewer --jobs, smaller documents or --no-ngrams",
              file=sys.stderr)
        return 1
    except OSError as error:
        print(f"prepare_data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare_data: stopped by a signal, nothing was written", file=sys.stderr)
        return 130
    return 0
