# Two environments: .venv has what a user of the server has (no torch), .venv-dev has everything but what cannot live
# beside it, which is in .venv-docs.  They are set up by the targets that need them and again whenever pyproject.toml or
# constraints.txt change.

PYTHON ?= python3
RUNTIME ?= cpu
VARIANT ?= cpu
SENTENCE ?= The children are playing in the garden.
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
SOAK_ARGS ?=
CAPACITY_ARGS ?=
MONITORING_ARGS ?=
DOCS_ARGS ?=
DOCUMENTS_ARGS ?=
CLIENTS_ARGS ?=

VENV := .venv
DEV := .venv-dev
DOCS := .venv-docs
READERS := .venv-readers
CLIENTS := .venv-clients
BROWSER := .venv-browser
GPU := .venv-gpu
COUNTED := build/gpu-counted
GPU_GRAPHS := $(addprefix export/,builder.py cuda.py fused.py graphs.py linear.py scorer.py transformer_graph.py)
COUNTED_MODELS := build/gpu-models/en-de/manifest.json $(COUNTED)/models/base/manifest.json $(COUNTED)/models/nllb/manifest.json
ON_COUNTED = LD_LIBRARY_PATH=$(CURDIR)/$(COUNTED)/lib COUNTED_GPU_FILE=$(CURDIR)/$(COUNTED)/counters \
	GPU_BUNDLE=$(CURDIR)/build/gpu-models/en-de COUNTED_SHAPES=$(CURDIR)/$(COUNTED)/models $(GPU)/bin/python
BIN := $(DEV)/bin
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Python 3.11 - 3.13 is needed, this is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
SOURCES := protos model export service tests bench trials deploy docs
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder  # tests of two files at a time, in the order of tests/conftest.py

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# One thread per library, unless told otherwise: tests run beside each other, and results are compared.
export OMP_NUM_THREADS ?= 1
export ORT_DISABLE_TELEMETRY ?= 1
# Tests start hundreds of processes, which would compile everything that they import once more each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run setup setup-dev native check-native test check format lint types imports pytest unit parity reliability fuzz soak try-monitoring try-docs try-documents try-clients try-console test-gpu-counted count-gpu bench bench-gpu capacity protos wheel client-wheel test-wheel image try-image deploy-check try-node try-ray lock clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo 'Another Python than python3 (3.11 - 3.13 work): make PYTHON=python3.12 TARGET'

run: setup  ## Set up .venv, serve until Ctrl-C, and translate SENTENCE as soon as that is possible
	@while sleep 1; kill -0 $$$$ 2>/dev/null; do \
	    $(VENV)/bin/dragoman translate "$(SENTENCE)" 2>/dev/null && break; \
	done & exec $(VENV)/bin/dragoman serve

setup: $(VENV)/.stamp-$(RUNTIME)  ## Set up .venv: the server's dependencies only, and the native engine
	@$(VENV)/bin/$(NATIVE)

setup-dev: $(DEV)/.stamp  ## Set up .venv-dev: everything that developing needs
	@$(BIN)/$(NATIVE)

native: $(DEV)/.stamp  ## Compile the native engine of the CPU, which needs g++ or clang++; fail where there is none
	$(BIN)/$(NATIVE) --required

check-native: setup-dev  ## The native engine under the address and undefined-behaviour sanitizers: kernels, parity, 90,000 calls; with SIMDe, the sets that this CPU lacks
	$(BIN)/python -m trials.native.sanitized
	$(BIN)/python -m pytest -m "" tests/unit/service/engine/native/test_kernels.py

test: setup-dev  ## Set up .venv-dev, check everything and run every test
	@$(MAKE) --no-print-directory --jobs 4 lint types imports pytest

pytest: setup-dev
	$(BIN)/python -m pytest tests $(PARALLEL) $(PYTEST_ARGS)

check: lint types imports unit  ## Formatting, lint, types, import rules, unit, parity and architecture tests

format: setup-dev  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

lint: setup-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: setup-dev
	$(BIN)/mypy

imports: setup-dev
	$(BIN)/lint-imports

unit: setup-dev
	$(BIN)/python -m pytest tests/unit tests/parity tests/architecture tests/text -m "not slow and not thorough" $(PARALLEL) $(PYTEST_ARGS)

parity: setup-dev  ## The parity tests with 1,000 sentences of each model, where `make test` has a dozen; all examples of other tests
	DRAGOMAN_TEST_SENTENCES=1000 $(BIN)/python -m pytest tests/parity -m "not gpu" $(PARALLEL) $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests --ignore tests/parity -m "thorough and not gpu" $(PARALLEL) $(PYTEST_ARGS)

reliability: setup-dev  ## Every promise against the real server, about 16 minutes: a table of fault, promise and what was seen
	DRAGOMAN_TEST_EXECUTED=1 $(BIN)/python -m pytest tests -m promise -p tests.reliability.table $(PYTEST_ARGS)

fuzz: setup-dev  ## Bad bytes, floods and slow peers against the real server; FUZZ_ARGS='--messages 1000000' for long
	$(BIN)/python -m trials.fuzz $(FUZZ_ARGS)

soak: setup-dev  ## 20 minutes of load on the real engine: figures and one JSON line; SOAK_ARGS='--help'
	$(BIN)/python -m trials.soak $(SOAK_ARGS)

try-monitoring: setup-dev  ## Every expression of the dashboard against a real Prometheus and the server under load, 80 s
	$(BIN)/python -m trials.monitoring $(MONITORING_ARGS)

try-docs: $(DEV)/.stamp-ray $(DEV)/.stamp-deploy $(DOCS)/.stamp  ## Every command of README and docs/ that can be run here, with the real server, 7 minutes; DOCS_ARGS='docs/secure.md'
	PATH="$$PATH:$(CURDIR)/$(DOCS)/bin" $(BIN)/python -m trials.docs_run $(DOCS_ARGS)

try-documents: $(READERS)/.stamp  ## Office, OpenDocument and EPUB files of other programs, there and back, and 2,000 damaged ones; with LibreOffice and poppler 8 minutes
	$(READERS)/bin/python -m trials.documents $(DOCUMENTS_ARGS)
	$(READERS)/bin/python -m trials.fuzz.documents --packages 2000 build/documents/made/*.*

try-clients: setup-dev $(CLIENTS)/.stamp  ## Clients of LibreTranslate, DeepL, Google and Triton against real servers, 2 minutes; CLIENTS_ARGS='--examples 10000' for long
	$(BIN)/python -m trials.clients --python $(CLIENTS)/bin/python $(CLIENTS_ARGS)

try-console: $(BROWSER)/.stamp  ## The console in Chromium (apt install chromium): tests and, in build/console, its pictures; 2 minutes
	$(BROWSER)/bin/python -m pytest -q trials/console $(PYTEST_ARGS)

test-gpu-counted: $(COUNTED)/lib/.stamp $(COUNTED_MODELS)  ## The engine for GPUs on one that only counts, without a GPU: launches, copies, plans a step; needs g++, 255 MB of packages
	rm -f $(COUNTED)/counters
	$(ON_COUNTED) -m pytest tests/gpu_counted tests/gpu -k "not translations and not tokens" $(PYTEST_ARGS)

count-gpu: $(COUNTED)/lib/.stamp $(COUNTED_MODELS)  ## What a decoder step costs a GPU, counted and modelled: a table, 5 minutes
	rm -f $(COUNTED)/counters
	$(ON_COUNTED) -m bench.gpu_counted $(dir $(COUNTED_MODELS))

bench: setup-dev  ## Race against CTranslate2: a table and one JSON line; BENCH_ARGS='--help' has the choices
	$(BIN)/python bench/bench_race.py --cache build/bench/models $(BENCH_ARGS)

bench-gpu: setup-dev  ## All figures of a GPU, where there is one: tests, tokens a second, kernels, the race
	$(BIN)/python bench/bench_gpu.py $(BENCH_ARGS)

capacity: setup-dev  ## What the included English-German model carries on this machine, into docs/capacity.md: 16 minutes
	$(BIN)/python bench/bench_capacity.py --write docs/capacity.md $(CAPACITY_ARGS)

protos: setup-dev  ## Generate the code of the contracts in protos/ again
	$(BIN)/python -m protos.generate

wheel: setup-dev  ## Build dist/dragoman-*.whl, with the native engine where there is a compiler
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build --wheel --outdir dist .

image: $(if $(filter gpu,$(VARIANT)),$(patsubst model/pretrained/%,build/gpu-models/%,$(wildcard model/pretrained/*/manifest.json)))  ## Build the container image dragoman:cpu (VARIANT=gpu for the other); IMAGE_ARGS go to docker or buildah
	deploy/build_image.sh $(VARIANT)

try-image:  ## Start that image read-only and without rights, translate, stop it under load
	$(PYTHON) deploy/try_image.py $(if $(filter gpu,$(VARIANT)),--gpu) dragoman:$(VARIANT)

deploy-check: $(DEV)/.stamp-deploy  ## Judge all of deploy/ with hadolint, helm, promtool, haproxy, envoy, systemd; says what it skips
	$(BIN)/python -m pytest -m "" -rs tests/deploy trials/deploy tests/architecture/test_dashboard.py $(PYTEST_ARGS)

try-node: setup-dev  ## Install the packages of examples/node and run it against the real server; needs node and npm
	cd examples/node && npm ci --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m pytest -rs tests/integration/test_node_example.py $(PYTEST_ARGS)

try-ray: $(DEV)/.stamp-ray  ## Add Ray to .venv-dev and run what needs it: a bulk run that loses a worker
	$(BIN)/python -m pytest -rs tests/integration/test_bulk_on_ray.py $(PYTEST_ARGS)

lock:  ## Pin the image's dependencies again, with hashes
	deploy/lock

client-wheel: setup-dev  ## Build dist/dragoman_client-*.whl, the client without the server
	$(BIN)/python -m build --wheel --outdir dist deploy/client

test-wheel: wheel  ## Run the tests against the built wheel, away from the source tree
	PYTHON="$(PYTHON)" .ci/test-wheel

# RUNTIME=gpu installs the build of ONNX Runtime for GPUs, for `engine.device`.  The two own the same files, so the one
# that was there goes first.
$(VENV)/.stamp-$(RUNTIME): pyproject.toml
	@echo "setting up $(VENV)"
	@$(CHECK_PYTHON)
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install -qq --upgrade pip
	@test -z "$(filter-out $@,$(wildcard $(VENV)/.stamp*))" || \
		$(VENV)/bin/python -m pip uninstall -qq -y onnxruntime onnxruntime-gpu
	@rm -f $(VENV)/.stamp*
	@$(VENV)/bin/python -m pip install -qq -e '.[$(RUNTIME),documents]'
	@touch $@

# The native engine of the CPU, where there is a compiler; compiled again when its sources have changed.
NATIVE = python -m service.engine.cpu.native.build

# pip 25.1 brought dependency groups; a fresh environment comes with an older one.  Python compiles what it imports: a
# tenth of PyTorch's and the others' 14,000 files, all of which would take pip a minute.  The native engine is compiled
# meanwhile, as pip waits for the network most of the time.
$(DEV)/.stamp: pyproject.toml constraints.txt
	@echo "setting up $(DEV): training and export come with it, this takes minutes"
	@$(CHECK_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(DEV)
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(PYTHON) -m service.engine.cpu.native.build >/dev/null 2>&1 & \
		$(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt --group dev -e '.[cpu,otel,bulk,documents,train,export]'; \
		status=$$?; wait; exit $$status
	@touch $@

# An included model as a GPU runs it; in fp32 too, so that the image can be tried without one.
build/gpu-models/%/manifest.json: model/pretrained/%/manifest.json $(GPU_GRAPHS) | $(DEV)/.stamp
	rm -rf $(@D)
	$(BIN)/python -m export model/pretrained/$* build/gpu-models/$* --precision fp32 --precision fp16

# Linters of deployment files; nothing else needs them.
$(DEV)/.stamp-deploy: $(DEV)/.stamp
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --group deploy
	@touch $@

# The extra `ray`, which `make test` does without: two minutes of tests, which it runs as well where this was done once.
$(DEV)/.stamp-ray: $(DEV)/.stamp
	@$(BIN)/python -m pip install -qq --constraint constraints.txt -e '.[ray]'
	@touch $@

# Programs that the documents name.
$(DOCS)/.stamp: pyproject.toml constraints.txt
	@echo "setting up $(DOCS)"
	@$(CHECK_PYTHON)
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(DOCS)/bin/python -m pip install -qq --constraint constraints.txt --group docs
	@touch $@

# What reads and writes documents.
$(READERS)/.stamp: pyproject.toml constraints.txt
	@echo "setting up $(READERS)"
	@$(CHECK_PYTHON)
	@test -x $(READERS)/bin/python || $(PYTHON) -m venv $(READERS)
	@$(READERS)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(READERS)/bin/python -m pip install -qq --constraint constraints.txt -e '.[cpu,documents]' --group readers
	@touch $@

# Argos Translate depends on torch, which its client of LibreTranslate has no use for.
$(CLIENTS)/.stamp: pyproject.toml
	@echo "setting up $(CLIENTS)"
	@$(CHECK_PYTHON)
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(CLIENTS)/bin/python -m pip install -qq --group clients
	@$(CLIENTS)/bin/python -m pip install -qq --no-deps 'argostranslate>=1.11'
	@touch $@

# The server, and what drives a browser.
$(BROWSER)/.stamp: pyproject.toml constraints.txt
	@echo "setting up $(BROWSER)"
	@$(CHECK_PYTHON)
	@test -x $(BROWSER)/bin/python || $(PYTHON) -m venv $(BROWSER)
	@$(BROWSER)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(BROWSER)/bin/python -m pip install -qq --constraint constraints.txt -e '.[cpu,documents]' --group browser
	@touch $@

# ONNX Runtime for GPUs without CUDA: its place is taken by bench/gpu_counted, which needs the headers alone.
$(GPU)/.stamp: pyproject.toml constraints.txt
	@echo "setting up $(GPU)"
	@$(CHECK_PYTHON)
	@test -x $(GPU)/bin/python || $(PYTHON) -m venv $(GPU)
	@$(GPU)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(GPU)/bin/python -m pip install -qq --constraint constraints.txt -e . --group gpu-counted
	@$(GPU)/bin/python -m pip install -qq --no-deps --upgrade --target $(COUNTED)/cuda 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*'
	@touch $@

# The GPU engine's own kernel, for every card since Turing; nvcc of CUDA 13.0, whose driver the engine needs anyhow.
service/engine/cuda/copy.ptx: service/engine/cuda/copy.cu
	nvcc -ptx -arch=compute_75 -o $@ $<

$(COUNTED)/lib/.stamp: $(GPU)/.stamp service/engine/cuda/copy.cu $(wildcard bench/gpu_counted/build.py bench/gpu_counted/native/*)
	$(GPU)/bin/python -m bench.gpu_counted.build $(@D) --cuda $(COUNTED)/cuda/nvidia/cu13/include \
		--provider $$($(GPU)/bin/python -c 'import onnxruntime, pathlib; print(pathlib.Path(onnxruntime.__file__).parent)')/capi/libonnxruntime_providers_cuda.so
	@touch $@

# Shapes of models whose weights are zeros that take no room.
$(COUNTED)/models/%/manifest.json: bench/gpu_counted/shapes.py $(GPU_GRAPHS) | $(DEV)/.stamp
	@mkdir -p $(COUNTED)/models && rm -rf $(@D)
	$(BIN)/python -m bench.gpu_counted.shapes $* $(@D)

clean:  ## Remove builds and caches; the environments stay
	rm -rf build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
