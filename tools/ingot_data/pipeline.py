"""From inputs to a finished folder of shards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ingot_data import ngrams
from ingot_data.errors import DataError, io_errors
from ingot_data.files import to_json_bytes
from ingot_data.inputs import InputFile, Unit, find_inputs, plan_units
from ingot_data.output import MARK, check_output, staged_folder
from ingot_data.processes import run_units
from ingot_data.records import Record
from ingot_data.shards import SPLIT_NAMES, ShardMeta, ShardRecord, SplitWriter
from ingot_data.tokenizer import TokenizerInfo, load_tokenizer
from ingot_data.worker import Counts, SplitRule, UnitResult, WorkerOptions


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    inputs: list[Path]
    tokenizer: str
    out: Path
    format: str | None
    text_key: str
    text_delimiter: bytes | None
    eos: str
    parse_special: bool
    skip_invalid: bool
    overwrite: bool
    ngrams: bool
    shard_tokens: int
    max_document_bytes: int
    jobs: int
    split_rule: SplitRule
    command: list[str]  # As recorded: without what cannot change the result.


@dataclass(frozen=True)
class Summary:
    """What was written, for the report and for dataset.json."""

    files: list[InputFile]
    tokenizer: TokenizerInfo
    meta: ShardMeta
    counts: Counts
    first_problems: dict[str, str]
    shards: list[list[ShardRecord]]  # By split.
    losses: ngrams.NgramLosses | None

    def tokens(self, split: int) -> int:
        return sum(shard.tokens for shard in self.shards[split])

    def documents(self, split: int) -> int:
        return sum(shard.documents for shard in self.shards[split])


def prepare(options: Options) -> Summary:
    """Runs the whole preparation. On any error the output folder is as it was before."""
    info = load_tokenizer(options.tokenizer, options.eos)
    files = find_inputs(options.inputs, options.format)
    sources = [file.path for file in files]
    if info.source != options.tokenizer or Path(info.source).exists():
        sources.append(Path(info.source))
    check_output(options.out, options.overwrite, sources)
    units = [unit for file in files for unit in plan_units(file, options.text_delimiter)]
    meta = ShardMeta(info.vocab_size, info.eos_id, info.sha256)
    with staged_folder(options.out) as folder:
        for name, content in info.files:
            with io_errors("write", folder / name):
                (folder / name).write_bytes(content)
        worker = _worker_options(options, info, meta, folder)
        counts, first_problems, shards = _write_shards(options, units, worker, meta, folder)
        _refuse_empty(counts, files, shards)
        losses = None
        if options.ngrams:
            paths = [[folder / shard.file for shard in split] for split in shards]
            losses = ngrams.losses_of_shards(paths[0], paths[1], info.vocab_size)
        summary = Summary(files, info, meta, counts, first_problems, shards, losses)
        with io_errors("write", folder / MARK):
            (folder / MARK).write_bytes(to_json_bytes(describe(summary, options)))
    return summary


def _worker_options(
    options: Options, info: TokenizerInfo, meta: ShardMeta, folder: Path
) -> WorkerOptions:
    return WorkerOptions(
        tokenizer_kind=info.kind, tokenizer_file=folder / "tokenizer.json",
        token_bytes=meta.token_bytes, eos_id=info.eos_id, eos_text=info.eos_text,
        unk_id=info.unk_id, special_texts=info.special_texts,
        parse_special=options.parse_special, skip_invalid=options.skip_invalid,
        text_key=options.text_key, text_delimiter=options.text_delimiter,
        max_document_bytes=options.max_document_bytes, split_rule=options.split_rule,
    )


def _write_shards(
    options: Options, units: Sequence[Unit], worker: WorkerOptions, meta: ShardMeta, folder: Path
) -> tuple[Counts, dict[str, str], list[list[ShardRecord]]]:
    counts = Counts()
    first_problems: dict[str, str] = {}
    places: dict[Path, int] = {}  # Lines or rows of a file before the current unit.
    with ExitStack() as stack:
        writers = [SplitWriter(folder, split, options.shard_tokens, meta) for split in range(3)]
        for writer in writers:
            stack.callback(writer.abandon)
        total = sum(unit.num_bytes for unit in units)
        progress = stack.enter_context(
            tqdm(total=total, unit="B", unit_scale=True, desc="tokenizing", disable=None)
        )
        results = stack.enter_context(closing(run_units(units, worker, options.jobs)))
        for unit, result in results:
            path = unit.file.path
            base = places.get(path, 0)
            if result.stop is not None:
                raise DataError(_describe_stop(unit, base, result.stop))
            for category, record in result.first_problems.items():
                first_problems.setdefault(category, _describe_place(unit, base, record))
            places[path] = base + result.num_places
            counts.add(result.counts)
            _add_documents(writers, result)
            progress.update(unit.num_bytes)
        return counts, first_problems, [writer.close() for writer in writers]


def _add_documents(writers: Sequence[SplitWriter], result: UnitResult) -> None:
    start = 0
    for length, split in zip(result.lengths, result.splits):
        writers[split].add_document(result.tokens[start : start + length])
        start += length


def _describe_place(unit: Unit, base: int, record: Record) -> str:
    assert record.problem is not None
    row = "row " if unit.file.format in ("parquet", "arrow") else ""
    place = f"{unit.file.path}:{row}{base + record.place}"
    return f"{place}: {record.problem.category}: {record.problem.detail}"


def _describe_stop(unit: Unit, base: int, record: Record) -> str:
    assert record.problem is not None
    text = _describe_place(unit, base, record)
    if record.problem.fatal:
        return f"{text}; nothing behind this place can be read, fix the file"
    return f"{text}; fix it, or give --skip-invalid to leave such documents out and count them"


def _refuse_empty(
    counts: Counts, files: Sequence[InputFile], shards: Sequence[Sequence[ShardRecord]]
) -> None:
    if counts.documents == 0:
        skipped = sum(counts.skipped.values())
        raise DataError(
            f"0 documents in {len(files)} input files ({counts.empty} empty, {skipped} skipped); "
            f"nothing was written; check the first file, {files[0].path}"
        )
    if not shards[0]:
        raise DataError(
            f"no document is left for training: the splits are by document and all "
            f"{counts.documents} fell to validation or test; give more documents "
            "(--text-delimiter cuts plain text), or --val-fraction 0 --test-fraction 0"
        )


def describe(summary: Summary, options: Options) -> dict[str, object]:
    """The content of dataset.json: nothing in it depends on time, place or processes."""
    info, meta, counts = summary.tokenizer, summary.meta, summary.counts
    splits = {
        name: {
            "documents": summary.documents(split),
            "tokens": summary.tokens(split),
            "text_bytes": counts.text_bytes[split],
            "shards": [vars(shard) for shard in summary.shards[split]],
        }
        for split, name in enumerate(SPLIT_NAMES)
    }
    rule = options.split_rule
    return {
        "format": "ingot-dataset",
        "version": 1,
        "command": options.command,
        "inputs": [{"path": str(f.path), "bytes": f.num_bytes} for f in summary.files],
        "tokenizer": {
            "source": info.source,
            "kind": info.kind,
            "sha256": info.sha256.hex(),
            "files": [name for name, _ in info.files],
            "eos": info.eos_text,
        },
        "vocab_size": meta.vocab_size,
        "token_bytes": meta.token_bytes,
        "eos_id": meta.eos_id,
        "splits": splits,
        "split_rule": {
            "hash": "sha256(seed as 8 little-endian bytes + UTF-8 text), first 8 bytes big-endian",
            "seed": rule.seed,
            "val_below": str(rule.val_below),
            "test_below": str(rule.test_below),
        },
        "skipped": dict(sorted(counts.skipped.items())),
        "empty_documents": counts.empty,
        "documents_with_special_text": counts.with_special_text,
        "special_text_parsed": options.parse_special,
        "documents_with_lone_surrogates": counts.with_lone_surrogates,
        "documents_with_unknown_tokens": counts.with_unknown_tokens,
        "ngram_losses": vars(summary.losses) if summary.losses else None,
    }
