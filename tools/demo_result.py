#!/usr/bin/env python3
"""Says what a run reached: losses from metrics.jsonl beside the n-gram bars of its data.

    python tools/demo_result.py METRICS_JSONL DATASET_JSON

Exits with 1 when the validation loss is not below the unigram loss: such a model has learned
nothing that counting tokens does not know.
"""

import json
import sys
from pathlib import Path

NGRAMS = ("unigram", "bigram", "trigram")


def read_losses(metrics):
    """First and last training loss, last validation loss, last test loss (None where absent)."""
    found = dict.fromkeys(("first_loss", "loss", "val_loss", "test_loss"))
    with open(metrics, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                sys.exit(f"{metrics}:{number}: not a JSON object ({error})")
            for key in ("loss", "val_loss", "test_loss"):
                if key in record:
                    found[key] = record[key]
            if found["first_loss"] is None:
                found["first_loss"] = record.get("loss")
    return found


def main(metrics, dataset):
    losses = read_losses(metrics)
    bars = json.loads(Path(dataset).read_text(encoding="utf-8"))["ngram_losses"]
    if losses["val_loss"] is None:
        sys.exit(f"{metrics} has no val_loss; set data.val and eval.every in run.json")
    print(f"  training loss     {losses['first_loss']:.3f} -> {losses['loss']:.3f}")
    print(f"  validation loss   {losses['val_loss']:.3f} nats per token")
    if losses["test_loss"] is not None:
        print(f"  test loss         {losses['test_loss']:.3f}")
    for name in NGRAMS:
        word = "below" if losses["val_loss"] < bars[name] else "not below"
        print(f"  {name:<8} loss     {bars[name]:.3f}: the model is {word} it")
    if losses["val_loss"] >= bars["unigram"]:
        sys.exit(
            f"validation loss {losses['val_loss']:.3f} is not below the unigram loss "
            f"{bars['unigram']:.3f}; train longer or check optimizer.lr in run.json"
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
