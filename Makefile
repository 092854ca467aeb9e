# Every target sets up what it needs: a virtual environment in .venv, everything in it
# from PyPI at the versions of requirements/, and a Java runtime if the machine has none.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST_ARGS ?=
LEDGER_ARGS ?=
# Packages come without bytecode, and tests start hundreds of processes: without
# it, each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo orders ledger kafka archive bytecode test check format bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

$(STAMP): pyproject.toml $(wildcard requirements/*.txt) tools/find_python.sh tools/install.py
	@python="$$(sh tools/find_python.sh)" || exit 1; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  echo "creating $(VENV) with $$python"; \
	  "$$python" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "installing dependencies into $(VENV)"
	@$(BIN)/python tools/install.py -r requirements/dev.txt --editable .
	@if [ "$$($(BIN)/python tools/java_check.py)" = no ]; then \
	  echo "no Java 17 or newer found: installing a runtime into $(VENV)"; \
	  $(BIN)/python tools/install.py -r requirements/java.txt; \
	fi
	@touch $@

setup: $(STAMP) ## Create .venv with everything in it

demo: $(STAMP) ## Run the fraud demo: kill it, restart it, compare
	@$(BIN)/python -m examples.fraud.demo

orders: kafka ## Run the Kafka demo: a broker, PostgreSQL, a flow that is killed
	@$(BIN)/python -m examples.kafka_orders.demo

ledger: $(STAMP) ## Run the ledger: snapshots of three regions and a loop by each protocol, and kills
	@$(BIN)/python -m examples.ledger $(LEDGER_ARGS)

kafka: $(STAMP)
	@$(BIN)/python tools/kafka_jars.py $(VENV)/kafka \
	  || echo "no Kafka broker: what needs one is skipped"

archive: $(STAMP)
	@$(BIN)/python tools/java_archive.py $(VENV)/spark.jsa >/dev/null

# Each of the processes that run tests imports all of them: once compiled is enough.
bytecode: $(STAMP)
	@test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only -q >/dev/null || true

test: $(STAMP) ## Run all tests but the slow ones (PYTEST_ARGS=... adds options)
	@$(MAKE) --no-print-directory -j3 kafka archive bytecode
	@SPARK_SUBMIT_OPTS="$$($(BIN)/python tools/java_archive.py $(VENV)/spark.jsa)" \
	  $(BIN)/python -m pytest -m "not slow" \
	  -n 3 --dist loadfile --no-loadscope-reorder --durations=20 $(PYTEST_ARGS)

check: $(STAMP) ## Check format, lint, types, import contracts and sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python tools/size_check.py

format: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## Run the short benchmarks, in about nine minutes
	@$(BIN)/python -m benchmarks.short

clean: ## Remove the environment, caches and local stores
	rm -rf $(VENV) build dist out store spark-warehouse metastore_db derby.log
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
