# `make setup` installs into .venv what the other targets need; each of them begins with it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help setup demo test test-e2e test-object-store azurite check format docs bench lock clean

help:
	@echo 'make demo      train a small network on two local nodes'
	@echo 'make setup     install torchyard and its tools into $(VENV)'
	@echo 'make test      the quick tests: no network, no torch'
	@echo 'make test-e2e  real jobs with torch in a built environment'
	@echo 'make test-object-store  data on S3 and Azure Blob servers that the tests start'
	@echo 'make check     format, lint, types and floors'
	@echo 'make format    put the code into its format'
	@echo 'make docs      the pages that are made from tables of the code'
	@echo 'make bench     figures, each beside its peer'
	@echo 'make lock      resolve requirements.lock anew'
	@echo 'make clean     remove what the targets above made here'

setup: $(INSTALLED)

# The stamp is written last: a broken installation is tried again.
$(INSTALLED): pyproject.toml requirements.lock
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'error: `$(PYTHON)` is not on this machine' >&2; \
	  echo 'hint: install Python 3.10 or later, or say which: `make setup PYTHON=python3.12`' >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: torchyard needs Python 3.10 or later, and \`$(PYTHON)\` is $$($(PYTHON) -V)" >&2; \
	  echo 'hint: say which Python to use: `make setup PYTHON=python3.12`' >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo 'error: `$(PYTHON)` has no module `venv` or `ensurepip`' >&2; \
	  echo 'hint: on Debian and Ubuntu they are a package: `apt-get install python3-venv`' >&2; \
	  exit 2; }
	@echo 'installing torchyard into $(VENV) (a minute or two, once)'
	@test -x $(BIN)/pip || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@$(BIN)/pip install -qq --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

demo: setup
	@YARD=$(BIN)/yard PYTHON=$(BIN)/python examples/digits/demo.sh

test: setup
	$(BIN)/pytest -m 'not end_to_end and not slow and not object_store'

test-e2e: setup
	$(BIN)/pytest -m 'end_to_end or slow'

# S3 is moto's, from PyPI; Azure Blob is Azurite's, from npm.
test-object-store: setup azurite
	@$(BIN)/pip install -qq --disable-pip-version-check -e '.[object-store]'
	TORCHYARD_TEST_SERVICES=required $(BIN)/pytest -m object_store

azurite: .azurite/node_modules/.bin/azurite-blob

.azurite/node_modules/.bin/azurite-blob:
	@command -v npm >/dev/null || { \
	  echo 'error: `npm` is not on this machine' >&2; \
	  echo 'hint: Azurite, which plays Azure Blob in tests, comes from npm' >&2; \
	  exit 2; }
	@npm install --silent --no-fund --no-audit --prefix .azurite azurite

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m torchyard.jobs.keys > docs/reference/job-file.md

bench: setup
	$(BIN)/python benchmarks/snapshot.py
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/data.py

# For every Python and system at once; without the addresses of this machine's package indexes.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
