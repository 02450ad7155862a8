# The commands of this project. Each installs what it needs, does only what is still to do, and is
# quick when nothing is. The work is in tools/; `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
DEVICE ?= auto
ARGS ?=
export DEVICE ARGS

SOURCES = git ls-files '*.h' '*.cpp' '*.cu' '*.cuh'
CLANG_FORMAT ?= clang-format-14

.PHONY: help run test build bench faults format format-check clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo 'Settings: DEVICE=auto|cpu|cuda, JOBS=N, ARGS="..." (run: for train_gpt; bench: for bench_kernels)'

run: ## set up the machine, train a GPT on real text, sample, export to safetensors
	@tools/run_demo.sh

test: ## build and run every test this machine can run (with a GPU also the CUDA cases)
	@tools/setup.sh packages build
	@tools/setup.sh venv test
	@device=$$(tools/setup.sh device $(DEVICE)) && tools/build.sh "$$device" && \
	    ctest --test-dir "build/$$device" --output-on-failure --no-tests=error

build: ## release build of everything the machine allows (CUDA where nvcc is found)
	@tools/setup.sh packages build
	@tools/build.sh best --link

bench: ## build and run the kernel microbenchmarks
	@tools/setup.sh packages build
	@tools/build.sh auto --link bench_kernels
	@./bench_kernels $(ARGS)

faults: ## put one-line faults into a copy of the tree; every one must fail a test
	@tools/setup.sh packages build
	@tests/faults/run_faults.py $(ARGS)

format: ## format the sources with clang-format 14
	@$(SOURCES) | xargs -r $(CLANG_FORMAT) -i

format-check: ## fail when a source is not formatted or a script is not clean
	@$(SOURCES) | xargs -r $(CLANG_FORMAT) --dry-run --Werror
	@git ls-files '*.sh' .ci/run | xargs -r shellcheck -x

clean: ## remove the builds (datasets, runs and .venv stay)
	@rm -rf build
	@for p in train_gpt golden_check export_hf bench_kernels; do [ ! -L "$$p" ] || rm "$$p"; done
