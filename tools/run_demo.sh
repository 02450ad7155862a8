#!/usr/bin/env bash
# What `make run` does: from a fresh machine to a trained, sampled and exported GPT.
#
# Every stage looks first whether its work is done, so a second run is quick; a training that was
# stopped starts again in a new folder. Settings: DEVICE=auto|cpu|cuda; ARGS="--section.key=value ..." go to
# train_gpt.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=tools/setup/common.sh
source "$here/setup/common.sh"
# shellcheck source=tools/setup/corpus.sh
source "$here/setup/corpus.sh"
# shellcheck source=tools/setup/device.sh
source "$here/setup/device.sh"
# shellcheck source=tools/setup/written_files.sh
source "$here/setup/written_files.sh"

NUM_STAGES=7
arguments=()
stage_number=0
stage_name=""

stage() {
    stage_number=$((stage_number + 1))
    stage_name="$1"
    printf '\n[%d/%d, %d s] %s\n' "$stage_number" "$NUM_STAGES" "$SECONDS" "$stage_name"
}

report_stop() {
    local code="$?"
    if [ "$code" -ne 0 ]; then
        warn "make run stopped in stage $stage_number/$NUM_STAGES ($stage_name), exit status $code"
    fi
}
trap report_stop EXIT

# setting FILE SECTION KEY DEFAULT: a value of a configuration.
setting() {
    "$PYTHON" -c 'import json, sys
print(json.load(open(sys.argv[1])).get(sys.argv[2], {}).get(sys.argv[3], sys.argv[4]))' "$@"
}

# choose_run_folder STATE: prints the folder of a finished run of exactly this state, or of a new
# one: log.dir, else log.dir-2, log.dir-3, ... A folder that holds another run is left alone.
choose_run_folder() {
    local state="$1" base folder number=1 argument
    base="$(setting run.json log dir runs/default)"
    for argument in "${arguments[@]}"; do
        if [[ "$argument" == --log.dir=* ]]; then
            echo "${argument#--log.dir=}"
            return 0
        fi
    done
    folder="$base"
    while [ -e "$folder/config.json" ] && ! is_finished "$folder" "$state"; do
        number=$((number + 1))
        folder="$base-$number"
    done
    echo "$folder"
}

is_finished() { [ -r "$1/finished" ] && [ "$(<"$1/finished")" = "$2" ]; }

# What decides the outcome of a training run, as far as the user sets it.
run_state() { hash_of "$(<run.json)" "${arguments[*]-}" "$(cat "$CORPUS/prepared-by")"; }

# train FOLDER STATE: does nothing when the folder's run is finished.
train() {
    local folder="$1" state="$2" place=("--log.dir=$1")
    if is_finished "$folder" "$state"; then
        say "  trained already: $folder (other settings make a new run: edit run.json or give ARGS)"
        return 0
    fi
    say "  run folder: $folder"
    if [[ " ${arguments[*]-}" == *" --log.dir="* ]]; then place=(); fi
    ./train_gpt run.json "${arguments[@]}" "${place[@]}"
    echo "$state" >"$folder/finished"
}

last_checkpoint() {
    [ -d "$1" ] || return 0
    find "$1" -mindepth 1 -maxdepth 1 -type d -name 'checkpoint-*' | sort -V | tail -n 1
}

export_model() {
    local checkpoint="$1" out="$2" stamp="$2.exported-from" state
    state="$(hash_of "$checkpoint" "$(find "$checkpoint" -type f -printf '%f %s %T@\n' | sort)")"
    if [ -r "$stamp" ] && [ "$(<"$stamp")" = "$state" ] && [ -d "$out" ]; then
        say "  there already: $out"
        return 0
    fi
    rm -rf "$out"
    ./export_hf "$checkpoint" "$out"
    echo "$state" >"$stamp"
}

# The n-gram bars belong to the demo's own validation set; a run cut short by ARGS may miss them.
report_losses() {
    if [[ "$(setting "$1/config.json" data val "")" == "$CORPUS"/* ]]; then
        "$PYTHON" tools/demo_result.py "$1/metrics.jsonl" "$CORPUS/shards/dataset.json" ||
            [ -n "${ARGS:-}" ]
    fi
}

summary() {
    local checkpoint="$1" out="$2" logs="$3"
    printf '\nDone in %d s.\n' "$SECONDS"
    report_losses "$logs"
    cat <<TEXT

Where everything is:
  corpus, tokenizer, token shards   $CORPUS
  configuration of the run          run.json (sample hosts file for a cluster: hosts)
  step records, log, TensorBoard    $logs
  last checkpoint                   $checkpoint
  model for transformers            $out

What to try next:
  ./train_gpt --plan                        what the run needs in memory, without starting it
  ./train_gpt --help                        every setting with its range
  make run ARGS="--train.steps=2000"        train longer, in a run folder of its own
  ./train_gpt --log.dir=runs/mine           the same without the set-up, from an edited run.json
  tools/prepare_data.py --help              your own text; then set data.train and data.val in run.json
  make test                                 prove this machine's build
TEXT
}

main() {
    local device state logs checkpoints checkpoint
    cd "$REPO"
    read -r -a arguments <<<"${ARGS:-}"

    stage "system packages"
    tools/setup.sh packages build
    stage "device"
    device="$(choose_device "${DEVICE:-auto}")"
    say "  training on: $device"
    stage "python environment"
    tools/setup.sh venv run
    stage "build ($device)"
    tools/build.sh "$device" --link train_gpt export_hf
    stage "corpus: the Python standard library's sources"
    prepare_corpus
    stage "training"
    write_unless_edited "configs/python_stdlib_$device.json" run.json
    write_unless_edited configs/hosts.sample hosts
    if [ "${DEVICE:-auto}" != auto ]; then arguments+=("--train.device=$device"); fi
    state="$(run_state)"
    logs="$(choose_run_folder "$state")"
    train "$logs" "$state"
    stage "export to safetensors"
    checkpoints="$(setting "$logs/config.json" checkpoint dir "$logs/checkpoints")"
    checkpoint="$(last_checkpoint "$checkpoints")"
    [ -n "$checkpoint" ] || die "training ended, but $checkpoints has no checkpoint-* folder" \
        "look at the last lines above, and at checkpoint.dir in run.json"
    export_model "$checkpoint" "$logs/exported"
    summary "$checkpoint" "$logs/exported" "$logs"
}

main
