"""make run and tools/build.sh: what is built, what is kept, what a second run leaves alone."""

import json

import pytest

# Configuring and building leave what the scripts look for; programs only record their calls.
FAKE_CMAKE = """
case "$1" in
    --version) echo "cmake version 3.25.1" ;;
    --preset)
        [ ! -e "$MACHINE/configure_fails" ] || exit 1
        mkdir -p "build/$2" && touch "build/$2/build.ninja" ;;
    --build)
        cp "$MACHINE/shelf/train_gpt" "$MACHINE/shelf/export_hf" "$2" ;;
esac
"""
FAKE_TRAIN = """
[ ! -e "$MACHINE/training_fails" ] || exit 3
for word in "$@"; do case "$word" in --log.dir=*) folder="${word#--log.dir=}" ;; esac; done
mkdir -p "$folder"/checkpoints/checkpoint-{500,1000}
cp "$1" "$folder/config.json"
cat >"$folder/metrics.jsonl" <<'END'
{"step": 1, "loss": 8.3}
{"step": 1000, "loss": 3.9}
{"step": 1000, "val_loss": 4.1}
{"step": 1000, "test_loss": 4.2}
END
"""
# The stand-ins for the data tools; the rest of FAKE_PYTHON applies after them.
FAKE_DATA = """
case "$*" in
    *python_corpus.py*) mkdir -p datasets/python-stdlib; exit 0 ;;
    *prepare_data.py*)
        mkdir -p datasets/python-stdlib/shards
        echo '{"ngram_losses": {"unigram": 6.6, "bigram": 4.4, "trigram": 3.9}}' \
            >datasets/python-stdlib/shards/dataset.json
        exit 0 ;;
esac
"""
NVCC = 'echo "Cuda compilation tools, release 13.0, V13.0.88"'


@pytest.fixture
def clone(machine):
    """A Debian machine that has everything, with programs that pretend."""
    machine.debian().complete()
    machine.fake("cmake", FAKE_CMAKE)
    machine.fake("train_gpt", FAKE_TRAIN, machine.shelf)
    machine.fake("export_hf", 'mkdir -p "$2"', machine.shelf)
    python = (machine.bin / "python3").read_text().split("\n", 2)
    machine.put("bin/python3", "\n".join([*python[:2], FAKE_DATA, python[2]]))
    for name in (
        "requirements.txt",
        "requirements-test.txt",
        "python_corpus.py",
        "prepare_data.py",
        "ingot_data/shards.py",
    ):
        machine.put(f"repo/tools/{name}", "# of the test\n")
    return machine


def make_run(machine, **env):
    done = machine.run("tools/run_demo.sh", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_fresh_clone_is_trained_and_exported(clone):
    said = make_run(clone)
    assert clone.calls("cmake")[-2:] == [
        "cmake --preset cpu",
        f"cmake --build {clone.repo}/build/cpu --parallel "
        f"{clone.calls('cmake')[-1].split()[4]} --target train_gpt export_hf",
    ]
    assert clone.calls("train_gpt") == ["train_gpt run.json --log.dir=runs/python-stdlib"]
    assert clone.calls("export_hf") == [
        "export_hf runs/python-stdlib/checkpoints/checkpoint-1000 runs/python-stdlib/exported"
    ]
    for place in ("datasets/python-stdlib", "run.json", "checkpoint-1000", "exported"):
        assert place in said
    assert "What to try next" in said
    assert (clone.repo / "train_gpt").resolve() == clone.repo / "build/cpu/train_gpt"


def test_the_end_compares_the_losses_with_the_n_gram_bars(clone):
    said = make_run(clone)
    assert "training loss     8.300 -> 3.900" in said
    assert "validation loss   4.100" in said
    assert "test loss         4.200" in said
    assert "bigram   loss     4.400: the model is below it" in said
    assert "trigram  loss     3.900: the model is not below it" in said


def test_a_model_that_is_no_better_than_counting_tokens_is_an_error(clone):
    clone.fake("train_gpt", FAKE_TRAIN.replace('"val_loss": 4.1', '"val_loss": 6.7'), clone.shelf)
    done = clone.run("tools/run_demo.sh")
    assert done.returncode == 1
    assert "validation loss 6.700 is not below the unigram loss 6.600" in done.stderr


def test_a_run_cut_short_by_its_arguments_is_told_and_no_error(clone):
    clone.fake("train_gpt", FAKE_TRAIN.replace('"val_loss": 4.1', '"val_loss": 6.7'), clone.shelf)
    done = clone.run("tools/run_demo.sh", ARGS="--train.steps=3")
    assert done.returncode == 0
    assert "is not below the unigram loss" in done.stderr


def test_a_run_on_other_data_is_not_compared_with_the_demo_s_bars(clone):
    clone.put("repo/run.json", '{"data": {"val": "mine/val*.bin"}}')
    assert "unigram" not in make_run(clone)


def test_without_a_gpu_no_cuda_is_built_even_where_nvcc_is(clone):
    clone.fake("nvcc", NVCC)
    make_run(clone)
    assert [call for call in clone.calls("cmake") if "build/cuda" in call or "preset cuda" in call] == []


def test_a_second_run_touches_neither_network_nor_corpus_nor_training_nor_export(clone):
    make_run(clone)
    clone.forget()
    make_run(clone)
    assert clone.calls("apt-get", "sudo", "train_gpt", "export_hf") == []
    assert [c for c in clone.calls("python") if "pip" in c or "--out" in c] == []
    assert [c for c in clone.calls("cmake") if "--preset" in c] == []


def test_a_new_checkpoint_is_exported_again(clone):
    make_run(clone)
    clone.forget()
    (clone.repo / "runs/python-stdlib/checkpoints/checkpoint-2000").mkdir()
    make_run(clone)
    assert "checkpoint-2000" in clone.calls("export_hf")[0]


def test_other_settings_make_a_run_of_their_own_and_leave_the_first_alone(clone):
    make_run(clone)
    clone.forget()
    said = make_run(clone, ARGS="--train.steps=9")
    assert clone.calls("train_gpt") == [
        "train_gpt run.json --train.steps=9 --log.dir=runs/python-stdlib-2"
    ]
    assert "runs/python-stdlib-2/exported" in said
    clone.forget()
    assert "trained already: runs/python-stdlib " in make_run(clone)
    assert "trained already: runs/python-stdlib-2 " in make_run(clone, ARGS="--train.steps=9")
    assert clone.calls("train_gpt") == []


def test_a_run_that_was_interrupted_is_left_alone_and_a_new_one_made(clone):
    clone.put("repo/runs/python-stdlib/config.json", "{}")
    make_run(clone)
    assert clone.calls("train_gpt") == ["train_gpt run.json --log.dir=runs/python-stdlib-2"]


def test_a_named_run_folder_is_the_user_s_choice(clone):
    clone.put("repo/runs/mine/config.json", "{}")
    make_run(clone, ARGS="--log.dir=runs/mine")
    assert clone.calls("train_gpt") == ["train_gpt run.json --log.dir=runs/mine"]
    assert (clone.repo / "runs/mine/exported").is_dir()


@pytest.mark.parametrize("script", ["python_corpus.py", "prepare_data.py", "ingot_data/shards.py"])
def test_the_corpus_is_made_again_when_a_script_of_it_changes(clone, script):
    make_run(clone)
    clone.put(f"repo/tools/{script}", "# changed\n")
    clone.forget()
    make_run(clone)
    assert len([c for c in clone.calls("python") if "prepare_data.py" in c]) == 1


def test_an_edited_run_json_and_hosts_are_kept_and_said(clone):
    make_run(clone)
    settings = json.loads((clone.repo / "run.json").read_text())
    settings["train"]["steps"] = 7
    mine = json.dumps(settings)
    clone.put("repo/run.json", mine)
    clone.put("repo/hosts", "mynode slots=2\n")
    said = make_run(clone)
    assert (clone.repo / "run.json").read_text() == mine
    assert (clone.repo / "hosts").read_text() == "mynode slots=2\n"
    assert "kept run.json as it is: it was edited" in said
    assert "kept hosts as it is" in said


def test_a_run_json_that_was_there_before_is_kept(clone):
    mine = '{"log": {"dir": "runs/mine"}}'
    clone.put("repo/run.json", mine)
    assert "kept run.json" in make_run(clone)
    assert (clone.repo / "run.json").read_text() == mine


def test_an_unedited_run_json_follows_a_changed_default(clone):
    make_run(clone)
    template = clone.repo / "configs/python_stdlib_cpu.json"
    template.write_text(template.read_text().replace('"steps": ', '"steps": 9'))
    assert "wrote run.json again" in make_run(clone)
    assert (clone.repo / "run.json").read_text() == template.read_text()


def test_the_sample_hosts_file_lists_four_nodes_of_eight(clone):
    make_run(clone)
    assert (clone.repo / "hosts").read_text() == "".join(
        f"gpu0{n} slots=8\n" for n in (1, 2, 3, 4)
    )


def test_arguments_and_a_chosen_device_reach_the_trainer(clone):
    clone.pci_device()
    make_run(clone, ARGS="--train.steps=5 --train.seed=3", DEVICE="cpu")
    assert clone.calls("train_gpt") == [
        "train_gpt run.json --train.steps=5 --train.seed=3 --train.device=cpu "
        "--log.dir=runs/python-stdlib"
    ]


def test_a_gpu_that_cannot_be_used_stops_before_anything_is_built(clone):
    clone.pci_device()
    done = clone.run("tools/run_demo.sh")
    assert done.returncode == 1
    assert "nvcc is not in PATH" in done.stderr
    assert "make run stopped in stage 2/7 (device)" in done.stderr
    assert clone.calls("train_gpt") == []
    assert [call for call in clone.calls("cmake") if "--version" not in call] == []


def test_a_failing_training_stops_with_its_status_and_exports_nothing(clone):
    clone.put("training_fails", "")
    done = clone.run("tools/run_demo.sh")
    assert done.returncode == 3
    assert "stopped in stage 6/7 (training), exit status 3" in done.stderr
    assert clone.calls("export_hf") == []


def test_training_without_a_checkpoint_is_an_error_that_names_the_folder(clone):
    clone.fake("train_gpt", FAKE_TRAIN.replace("/checkpoints/checkpoint-{500,1000}", ""), clone.shelf)
    done = clone.run("tools/run_demo.sh")
    assert done.returncode == 1
    assert "runs/python-stdlib/checkpoints has no checkpoint-* folder" in done.stderr


def test_a_failed_configuration_is_tried_again(clone):
    clone.put("configure_fails", "")
    assert clone.run("tools/build.sh", "cpu").returncode != 0
    (clone.folder / "configure_fails").unlink()
    assert clone.run("tools/build.sh", "cpu").returncode == 0


def test_the_best_build_compiles_cuda_where_nvcc_is_even_without_a_gpu(clone):
    assert clone.run("tools/build.sh", "best").returncode == 0
    assert "cmake --preset cpu" in clone.calls("cmake")
    nvcc = clone.fake("nvcc", NVCC, clone.folder / "toolkit/bin")
    env = {"CUDA_HOME": str(clone.folder / "toolkit")}
    assert clone.run("tools/build.sh", "best", "--link", **env).returncode == 0
    assert f"cmake --preset cuda -DINGOT_NVCC={nvcc}" in clone.calls("cmake")
    assert (clone.repo / "train_gpt").resolve() == clone.repo / "build/cuda/train_gpt"


def test_the_build_is_configured_again_when_nvcc_moves(clone):
    clone.fake("nvcc", NVCC, clone.folder / "old/bin")
    clone.fake("nvcc", NVCC, clone.folder / "new/bin")
    for home in ("old", "old", "new"):
        done = clone.run("tools/build.sh", "cuda", CUDA_HOME=str(clone.folder / home))
        assert done.returncode == 0, done.stderr
    assert len([call for call in clone.calls("cmake") if "--preset" in call]) == 2
