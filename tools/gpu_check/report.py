"""The tables of docs/performance.md, from bench/results/*.json.

A block <!-- gpu: NAME begin --> ... <!-- gpu: NAME end --> is replaced by what the function of that
name in TABLES gives for every card; everything else in the page is written by hand.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_check import part_kernels, results, sources

PAGE = "docs/performance.md"
BLOCK = re.compile(r"(<!-- gpu: (\w+) begin -->\n).*?(<!-- gpu: \2 end -->)", re.S)
Parts = dict[str, Any]


def table(header: str, rows: list[list[str]]) -> list[str]:
    titles = [title.strip() for title in header.split("|")]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def when(entry: dict[str, Any]) -> str:
    text = f"commit {entry['commit'][:7]}, {entry['date'][:10]}"
    if entry["changed_files"]:
        text += f" with {len(entry['changed_files'])} changed files"
    return text


def machine(entry: dict[str, Any]) -> str:
    gpu, versions = entry["gpu"], entry["versions"]
    return (f"{gpu['name']}, driver {gpu['driver_version']}, cuBLASLt "
            f"{versions.get('cublasLt', '-')}, PyTorch {versions.get('torch', '-')}; {when(entry)}")


def measured(results_of_card: dict[str, Any], part: str) -> Parts | None:
    """The part's entry when it came far enough to hold figures."""
    entry = results_of_card["parts"].get(part)
    return entry if entry and entry["data"] else None


def outcome(card: dict[str, Any]) -> list[str]:
    rows, notes = [], []
    for name, part in sources.read_parts().items():
        entry = card["parts"].get(name)
        if entry is None:
            rows.append([f"`{name}`", part["what"], "not run yet", "", ""])
            continue
        met = sum(bar["passed"] for bar in entry["bars"])
        rows.append([f"`{name}`", part["what"], "passed" if entry["passed"] else "**failed**",
                     f"{met} of {len(entry['bars'])}", when(entry)])
        missed = [bar for bar in entry["bars"] if not bar["passed"]]
        notes += [f"- `{name}`: {problem.splitlines()[0]}" for problem in entry["problems"]]
        notes += [f"- `{name}`: {bar['what']}: {bar['value']:.6g} {bar['unit']}, bar "
                  f"{bar['limit']:.6g}" for bar in missed]
    lines = table("part | what | outcome | bars met | measured at", rows)
    return lines + (["", "What failed:", "", *notes] if notes else [])


def e2e_row(title: str, ours: Parts, torch: Parts | None, memory: str) -> list[str]:
    rate = ours["tokens_per_s"]
    step = statistics.median(ours["samples"]["step_ms"])
    beside = [f"{torch['tokens_per_s']:,.0f}",
              f"{rate['median'] / torch['tokens_per_s']:.2f}"] if torch else ["", ""]
    return [title, f"{rate['median']:,.0f} ({rate['min']:,.0f} - {rate['max']:,.0f})",
            f"{step:.1f} ms", *beside, memory]


def memory_text(data: Parts) -> str:
    ours, torch = data["ours"]["memory"], data["torch"]["memory"]
    context = torch["used_bytes"] - torch["reserved_bytes"]
    return (f"{ours['measured_bytes'] / 1e9:.1f} (planned {ours['planned_bytes'] / 1e9:.1f}); "
            f"{(torch['max_allocated_bytes'] + context) / 1e9:.1f}")


def e2e_by_hand(card: dict[str, Any]) -> list[str]:
    hand = card.get("by_hand", {}).get("e2e")
    if hand is None:
        return ["Not measured yet."]
    rate, torch = hand["tokens_per_s"], hand["pytorch_same_run"]
    rows = [["GPT-2 124M, 64 x 1024 x 8",
             f"{rate['median']:,.0f} ({rate['min']:,.0f} - {rate['max']:,.0f})",
             f"{statistics.median(hand['step_ms']):.1f} ms", f"{torch['tokens_per_s']:,.0f}",
             f"{rate['median'] / torch['tokens_per_s']:.2f}",
             f"{hand['memory_bytes']['measured_gib'] * 1.073741824:.1f} "
             f"(planned {hand['memory_bytes']['planned_gib'] * 1.073741824:.1f}); "
             f"{torch['peak_memory_gb']:.1f} (tensors alone)"]]
    return [f"Put together by hand from the records of {len(rate['samples'])} steps of commit "
            f"{hand['commit']}, {hand['date']}, driver {card['by_hand']['gpu']['driver']}; "
            "`tools/gpu_check.sh e2e` has not replaced it yet.", "", *e2e_table(rows)]


def e2e_table(rows: list[list[str]]) -> list[str]:
    return table("model, B x T x micro-steps | Ingot, tokens/s (median, range) | step | PyTorch, "
                 "tokens/s | ratio | memory, GB: Ingot; PyTorch", rows)


def e2e(card: dict[str, Any]) -> list[str]:
    rows, lines = [], []
    for part, title in (("e2e", "GPT-2 124M, 64 x 1024 x 8"), ("e2e_1558m", "GPT-2 1558M, 16 x 1024")):
        entry = measured(card, part)
        if entry is None or "torch" not in entry["data"]:
            continue
        data = entry["data"]
        rows.append(e2e_row(title, data["ours"], data["torch"], memory_text(data)))
        if "cudnn" in data:
            rows.append(e2e_row(f"{title}, cuDNN's attention", data["cudnn"], data["torch"], ""))
        lines.append(f"{title}: {machine(entry)}.")
    return [*lines, "", *e2e_table(rows)] if rows else e2e_by_hand(card)


def step(card: dict[str, Any]) -> list[str]:
    entry = measured(card, "e2e")
    if entry is None or "step" not in entry["data"]:
        return ["Not measured yet."]
    data = entry["data"]["step"]
    rows = [[part["name"], str(part["calls"]), f"{part['ms']:.2f}", f"{part['floor_ms']:.2f}",
             f"{part['ms'] / part['floor_ms']:.2f}" if part["floor_ms"] else "",
             f"{100 * part['ms'] / data['step_ms']:.1f} %"] for part in data["parts"]]
    rows.append(["not explained", "", f"{data['unexplained_ms']:.2f}", "", "",
                 f"{data['unexplained_percent']:.1f} %"])
    rows.append(["step", "", f"{data['step_ms']:.2f}", f"{data['floor_ms']:.2f}",
                 f"{data['step_ms'] / data['floor_ms']:.2f}", ""])
    roof = data["roof"]
    return [f"{machine(entry)}. Step {data['step']}; copy {roof['copy_gb_per_s']:,.0f} GB/s, bf16 "
            f"products {roof['bf16_tflop_per_s']:.0f} TFLOP/s in the same run.", "",
            *table("part | calls | ms | floor, ms | times the floor | of the step", rows)]


def kernels(card: dict[str, Any]) -> list[str]:
    entry = measured(card, "kernels")
    if entry is None or "bench" not in entry["data"]:
        return ["Not measured yet."]
    data = entry["data"]
    bench, copy = data["bench"], data["bench"]["roof"]["copy_gb_per_s"]
    torch = {(row["op"], row["shape"]): row for row in data.get("torch_kernels", [])}
    rows = []
    for case in bench["cases"]:
        if case["op"] not in part_kernels.MEMORY_BOUND or case["dtype"] != "bf16":
            continue
        other = torch.get((case["op"], case["shape"]))
        rows.append([case["op"], case["shape"], f"{case['us']:.1f}", f"{case['gb_per_s']:,.0f}",
                     f"{100 * case['gb_per_s'] / copy:.0f} %",
                     f"{other['gb_per_s']:,.0f} ({other['how']})" if other else ""])
    return [f"{machine(entry)}. Copy {copy:,.0f} GB/s in the same run; bf16.", "",
            *table("op | shape | us | GB/s | of copy | PyTorch, GB/s", rows)]


def attention(card: dict[str, Any]) -> list[str]:
    entry = measured(card, "kernels")
    if entry is None or "torch_attention" not in entry["data"]:
        return ["Not measured with `tools/gpu_check.sh kernels` yet; the tables below are older."]
    ours = {(c["op"], c["shape"]): c for c in entry["data"]["bench"]["cases"]
            if c["dtype"] == "bf16"}
    theirs = {(c["backend"], c["shape"]): c for c in entry["data"]["torch_attention"]}
    rows = []
    for shape in part_kernels.ATTENTION_ROWS:
        row = [shape]
        for way in ("forward", "backward"):
            case = ours.get((f"attention_{way}", shape), {})
            own = case.get("tflop_per_s")
            flash, cudnn = (theirs.get((backend, shape), {}).get(f"{way}_tflops")
                            for backend in ("flash2", "cudnn"))
            # The engine's own call of cuDNN, which in the backward pass is deterministic.
            beside = own * case["us"] / case["library_us"] if case.get("library_us") else None
            row += [f"{value:.0f}" if value else "-" for value in (own, flash, beside, cudnn)]
            row.append(f"{own / flash:.2f}" if own and flash else "-")
        rows.append(row)
    return [f"{machine(entry)}. TFLOP/s, causal operations once. Ingot's backward is deterministic; "
            "cuDNN is called by the engine (deterministic backward) and by PyTorch, which was not "
            "asked for that; FlashAttention-2 adds in any order. Ratio: to FlashAttention-2.", "",
            *table("B, heads/kv, T, D | forward: Ingot | FA-2 | cuDNN | cuDNN in PyTorch | ratio | "
                   "backward: Ingot | FA-2 | cuDNN | cuDNN in PyTorch | ratio", rows)]


def worth(card: dict[str, Any]) -> list[str]:
    """Golden values, export, the demo."""
    entry = measured(card, "export")
    if entry is None:
        return ["Not measured yet."]
    lines = [f"{machine(entry)}.", "", *table("what | value | bar", [
        [bar["what"], f"{bar['value']:.4g} {bar['unit']}",
         f"{'at most' if bar['is_at_most'] else 'at least'} {bar['limit']:.4g}"]
        for bar in entry["bars"]])]
    samples = entry["data"].get("demo", {}).get("samples", {})
    for step in sorted(samples, key=int)[-2:]:
        lines += ["", f"Text after step {step}:", "", "```", samples[step].strip("\n"), "```"]
    return lines


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "outcome": outcome, "e2e": e2e, "step": step, "kernels": kernels, "attention": attention,
    "worth": worth}


def render(page: str, cards: list[dict[str, Any]]) -> str:
    """The page with every block made anew. ValueError for a block of an unknown name."""

    def block(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"{PAGE} has a block {match[2]}; known are {', '.join(TABLES)}")
        texts = []
        for card in cards:
            title = [f"**{card.get('gpu', 'unknown card')}**", ""] if len(cards) > 1 else []
            texts.append("\n".join(title + TABLES[match[2]](card)))
        return match[1] + "\n\n".join(texts) + "\n" + match[3]

    return BLOCK.sub(block, page)


def rendered_page(root: Path = sources.ROOT) -> str:
    cards = [results.read(path) for path in sorted((root / "bench/results").glob("*.json"))]
    return render((root / PAGE).read_text(), cards)


def write(root: Path = sources.ROOT) -> None:
    page = rendered_page(root)
    (root / PAGE).write_text(page)
