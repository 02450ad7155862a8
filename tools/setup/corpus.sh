# shellcheck shell=bash
# The demo's corpus: Python's standard library as documents, a tokenizer made from them, token shards.

CORPUS=datasets/python-stdlib
PYTHON=.venv/bin/python

# prepare_corpus: in the repository root. The shards are made again when the scripts that make them
# or the python they read change.
prepare_corpus() {
    local stamp="$CORPUS/prepared-by" state
    state="$(hash_of "$(cat tools/python_corpus.py tools/prepare_data.py tools/ingot_data/*.py)" \
        "$("$PYTHON" -V)")"
    if [ -r "$stamp" ] && [ "$(<"$stamp")" = "$state" ]; then
        say "  there already: $CORPUS/shards"
        return 0
    fi
    rm -rf "$CORPUS"
    "$PYTHON" tools/python_corpus.py --out "$CORPUS"
    "$PYTHON" tools/prepare_data.py --input "$CORPUS/documents.jsonl" \
        --tokenizer "$CORPUS/tokenizer.json" --val-fraction 0.05 --test-fraction 0.02 \
        --out "$CORPUS/shards"
    echo "$state" >"$stamp"
}
