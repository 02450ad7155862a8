"""Where the time of a training step goes, each part beside the least it can take.

The floor of a part is the larger of its bytes over the copy rate and its operations over the
matmul rate of its type, both measured by bench_kernels in the same run.
"""

from __future__ import annotations

from typing import Any


def seconds_floor(part: dict[str, Any], roof: dict[str, float]) -> float:
    rate = roof["bf16_tflop_per_s" if part.get("dtype") == "bf16" else "f32_tflop_per_s"] * 1e12
    copy = roof["copy_gb_per_s"] * 1e9
    return max(part.get("bytes", 0) / copy, part.get("flops", 0) / rate)


def explain(profile: dict[str, Any], roof: dict[str, float]) -> dict[str, Any]:
    """The profile with a floor_ms beside each part, the largest part first."""
    parts = [{**part, "floor_ms": seconds_floor(part, roof) * 1e3} for part in profile["parts"]]
    parts.sort(key=lambda part: -part["ms"])
    # What the parts do not cover, whatever the profile itself says of it.
    unexplained = profile["step_ms"] - sum(part["ms"] for part in parts)
    return {**profile, "parts": parts, "roof": roof,
            "unexplained_ms": unexplained,
            "unexplained_percent": 100 * unexplained / profile["step_ms"],
            "floor_ms": sum(part["floor_ms"] for part in parts)}
