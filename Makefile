# One command for each thing a developer does. Each sets up what it needs first: .venv from the pinned requirements, once.

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
CHECK_PTXAS := $(VENV)/ptxas-13.0/nvidia/cu13/bin/ptxas
FUZZ := $(VENV)/fuzz
INDUCTOR := build/inductor/packages
SECONDS ?= 600
# tests of a file share what it has built
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
NATIVE := build/.native
CXX_FILES = $(shell find csrc serving_examples tests \( -name '*.cpp' -o -name '*.h' \) -print)

# everything runs from the checkout; nothing is installed
export PYTHONPATH := $(CURDIR)

# the targets of the op library: KERNELPACK_OP_TARGETS, here all where it is not set
export KERNELPACK_OP_TARGETS ?= all
OP_TARGETS = $$($(PY) -c "from kernelpack.cli.targets import op_library_targets; print(*op_library_targets(), sep=',')")
LIBRARY := kernelpack/library
BENCHMARKS := attention rowwise matmul build

.DEFAULT_GOAL := help
.PHONY: help setup build lock test test-full fuzz lint typecheck format verify same wheel demo inductor arm vllm packages bench readme docs clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY) ## .venv with the pinned requirements

$(READY): requirements.txt requirements-dev.txt requirements-demo.txt requirements-ptxas.txt requirements-ship.txt
	@command -v g++ >/dev/null || { echo "g++ was not found; to fix: apt-get install g++" >&2; exit 1; }
	@g++ -print-file-name=libzstd.a | grep -q / || { echo "libzstd.a was not found; to fix: apt-get install libzstd-dev" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -r requirements-ship.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-demo.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/ptxas-13.0 -r requirements-ptxas.txt
	@touch $@

$(NATIVE): $(READY) setup.py $(wildcard csrc/python/* csrc/kernels/*)
	$(PY) setup.py --quiet build_ext --inplace
	@mkdir -p $(@D) && touch $@

build: $(NATIVE) ## kernelpack._C, and the op library, from ops/ into kernelpack/library; only what changed is compiled
	@$(PY) -m kernelpack build ops --namespace kernelpack --target "$(OP_TARGETS)" --out $(LIBRARY) -j $(JOBS)
	@$(PY) -m kernelpack unbox $(LIBRARY)

lock: build ## ops/ops.lock anew: what `make verify` compares with
	@$(PY) -c "from pathlib import Path; from kernelpack.files.generated import write; write(Path('ops/ops.lock'), Path('$(LIBRARY)/ops.lock').read_text())"

test: build ## [SHARE=1/6] the whole test suite, or a part of what takes long; what needs a GPU is skipped where there is none
	$(PYTEST) -m "not slow" $(if $(SHARE),--share $(SHARE))

test-full: verify build ## the same with the tests marked slow, after every kernel was compiled anew
	$(PYTEST)

$(FUZZ): $(READY) requirements-fuzz.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ -r requirements-fuzz.txt \
		&& touch $@ || echo "Atheris was not installed: inputs are made by mutation alone"

fuzz: $(NATIVE) $(FUZZ) ## SECONDS=600 of fuzzing each reader of files, texts and command lines; failing inputs lie in build/fuzz
	$(PY) -m tests.fuzz --seconds $(SECONDS) --jobs $(JOBS)

$(INDUCTOR): $(READY) requirements-inductor.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ -r requirements-inductor.txt && touch $@

inductor: $(NATIVE) $(INDUCTOR) ## PyTorch's own tests of Inductor on CPUs, with kernelpack as Triton and with the C++ backend; an hour or two
	$(PY) -m tests.inductor

lint: typecheck ## format, ruff, types, clang-format, rules about files
	$(PY) -m ruff format --check --quiet . || { echo "to fix: make format" >&2; exit 1; }
	$(PY) -m ruff check --quiet .
	@$(VENV)/bin/clang-format --dry-run --Werror $(CXX_FILES) || { echo "to fix: make format" >&2; exit 1; }
	$(PY) -m pytest tests/house/test_files.py

typecheck: $(READY) ## mypy --strict on kernelpack/
	$(PY) -m mypy --strict kernelpack

format: $(READY) ## ruff and clang-format, in place
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(VENV)/bin/clang-format -i $(CXX_FILES)

verify: $(READY) ## [SHARE=1/6] compiles every op anew, without caches, wgmma with two assemblers, and compares with ops/ops.lock
	@KERNELPACK_CHECK_PTXAS=$(CURDIR)/$(CHECK_PTXAS) $(PY) -m kernelpack verify ops --namespace kernelpack --target "$(OP_TARGETS)" --lock ops/ops.lock $(if $(SHARE),--share $(SHARE)) -j $(JOBS)

same: build ## make same REF=commit [ROOM=passes]: whether tests and ops compile what they compiled there, stage by stage
	@test -n "$(REF)" || { echo "to fix: make same REF=HEAD~1" >&2; exit 1; }
	@$(PY) -m tests.same $(REF) $(if $(ROOM),--room $(ROOM)) -j $(JOBS)

wheel: $(READY) ## dist/*.whl: kernelpack, with the op library for all targets, and kernelpack-as-triton
	$(PY) -m pip wheel --verbose --no-deps --no-build-isolation --wheel-dir dist . ./as_triton

demo: $(NATIVE) ## compiles every op for this CPU and serves a real model: Python, TorchScript and AOTInductor in C++
	@$(PY) -m kernelpack build ops --namespace kernelpack --target cpu:native --out build/demo/library -j $(JOBS)
	@KERNELPACK_LOAD_LIBRARY=0 $(PY) serving_examples/demo.py build/demo/library

arm: $(NATIVE) ## the op library and the launchers on ARM, emulated by qemu (1 GB in build/arm); an hour
	$(PYTEST) tests/arm

vllm: $(NATIVE) ## vLLM on this CPU with its Triton kernels compiled by kernelpack: serves, checks, times (2.7 GB in build/vllm)
	@$(PY) -m tests.engines.vllm.serve
	@$(PY) -m tests.engines.vllm.adopted
	@$(PY) -m tests.engines.vllm.warmups
	@$(PY) -m tests.engines.vllm.checks
	@$(PY) -m tests.engines.page vllm
	@$(PY) -m tests.engines.vllm.speed

packages: $(NATIVE) ## Liger's, fla's and other packages' Triton kernels on this CPU, against torch (1.5 GB in build/packages)
	@$(PY) -m tests.engines.page packages

bench: build ## every benchmark on this machine's CPU
	@set -e; for name in $(BENCHMARKS); do $(PY) -m benchmarks.$$name; done

readme: $(READY) ## tables and plots of README, CONTRIBUTING.md and other pages, from the code and the committed figures
	@KERNELPACK_LOAD_LIBRARY=0 $(PY) -m docs.readme

docs: $(READY) ## docs/functions.md, host-functions.md, tour.md and csrc/kernels/cuda_features.h, from the code
	@KERNELPACK_LOAD_LIBRARY=0 $(PY) -m docs.functions
	@KERNELPACK_LOAD_LIBRARY=0 $(PY) -m docs.host_functions
	@KERNELPACK_LOAD_LIBRARY=0 $(PY) -m docs.tour

clean: ## removes what was built; .venv stays
	rm -rf build dist *.egg-info kernelpack/_C*.so $(LIBRARY) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf
