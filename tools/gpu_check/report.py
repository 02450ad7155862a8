"""The tables of docs/performance.md, from bench/results/*.json.

A block <!-- gpu: NAME begin --> ... <!-- gpu: NAME end --> is replaced by what the function of that
name in TABLES gives for every card; everything else in the page is written by hand.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_check import part_export, part_kernels, results, sources

PAGE = "docs/performance.md"
BLOCK = re.compile(r"(<!-- gpu: (\w+) begin -->\n).*?(<!-- gpu: \2 end -->)", re.S)
LONGEST = 160  # characters of a problem
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


def one_line(problem: str) -> str:
    """Its first line, without the middle of a long one: a command's arguments come before what
    became of it. The file of results has all."""
    line = problem.splitlines()[0] if problem else ""
    if len(line) <= LONGEST:
        return line
    begin = LONGEST // 2 - 5
    return f"{line[:begin]} ... {line[begin + 5 - LONGEST:]}"


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
        notes += [f"- `{name}`: {one_line(problem)}" for problem in entry["problems"]]
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


def own_memory_text(ours: Parts) -> str:
    memory = ours.get("memory")  # older results of cuDNN's attention have none
    return (f"{memory['measured_bytes'] / 1e9:.1f} (planned {memory['planned_bytes'] / 1e9:.1f})"
            if memory else "")


def memory_text(data: Parts) -> str:
    torch = data["torch"]["memory"]
    context = torch["used_bytes"] - torch["reserved_bytes"]
    return (f"{own_memory_text(data['ours'])}; "
            f"{(torch['max_allocated_bytes'] + context) / 1e9:.1f}")


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
            rows.append(e2e_row(f"{title}, cuDNN's attention", data["cudnn"], data["torch"],
                                own_memory_text(data["cudnn"])))
        lines.append(f"{title}: {machine(entry)}.")
    return [*lines, "", *e2e_table(rows)] if rows else ["Not measured yet."]


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
    loaded = entry["data"]["bench"].get("cudnn", "")  # older results do not say
    number = entry["versions"].get("torch_cudnn")  # 91900
    torchs = f" {number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""
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
    return [f"{machine(entry)}. TFLOP/s, causal operations once. Ingot's backward is deterministic. "
            f"The engine calls {loaded or 'cuDNN'} (deterministic backward), PyTorch its own "
            f"cuDNN{torchs}, which was not asked for that; FlashAttention-2 adds in any order. "
            "Ratio: to FlashAttention-2.", "",
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


def largest_ratio(ours: dict[str, float], theirs: dict[str, float], prefix: str) -> str:
    """"2.58 (gradient norm of step 3: 3.21e-04 to 1.25e-04)"."""
    ratios = {what: part_export.ratio_of(ours[what], theirs[what])
              for what in ours.keys() & theirs.keys() if what.startswith(prefix)}
    if not ratios:
        return "-"
    what = max(sorted(ratios), key=lambda name: math.inf if math.isnan(ratios[name])
               else ratios[name])
    return f"{ratios[what]:.2f} ({what}: {ours[what]:.2e} to {theirs[what]:.2e})"


def all_gradients(errors: dict[str, float]) -> float:
    return math.hypot(*(error for what, error in errors.items() if what.startswith("grad ")))


def bf16(card: dict[str, Any]) -> list[str]:
    """The engine's bf16 errors over PyTorch's, those that no bar holds, too."""
    entry = measured(card, "export")
    if entry is None or "torch_bf16" not in entry["data"]:
        return ["Not measured yet."]
    ours = {what: line["error"] for what, line in entry["data"]["golden"]["bf16"].items()}
    torch = entry["data"]["torch_bf16"]
    yardsticks = [torch["pure"], torch["autocast"]]
    worst = [(part_export.worst_of(ours), part_export.worst_of(them)) for them in yardsticks]
    rows = [["logits", *(largest_ratio(*pair, "logits") for pair in worst)],
            ["gradients, worst tensor", *(largest_ratio(*pair, "grad ") for pair in worst)],
            ["gradients, all together",
             *(f"{part_export.ratio_of(all_gradients(ours), all_gradients(them)):.2f}"
               for them in yardsticks)]]
    for prefix in part_export.SERIES:
        rows.append([f"{prefix}, worst to worst", *(largest_ratio(*pair, prefix) for pair in worst)])
    for prefix in part_export.SERIES:
        rows.append([f"{prefix}, one alone",
                     *(largest_ratio(ours, them, prefix) for them in yardsticks)])
    return [f"{machine(entry)}.", "",
            *table("errors, Ingot's bf16 to PyTorch's | pure bf16 | autocast", rows)]


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "outcome": outcome, "e2e": e2e, "step": step, "kernels": kernels, "attention": attention,
    "worth": worth, "bf16": bf16}


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
