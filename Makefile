# `make` alone lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/demo
POLICIES := autoregressive,fixed_chain,tuned_chain,fixed_tree,cast,treespark

.PHONY: help demo test lint bench figures
help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/test: $(VENV)/base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[live,test]'
	@touch $@

demo: $(VENV)/base ## compare every policy over five concurrencies on the shipped recordings
	$(BIN)/python -m simulator -m +policy=$(POLICIES) max_concurrency=1,4,16,64,256 hydra.sweep.dir=$(RUN)
	$(BIN)/python -m analysis $(RUN) --out $(RUN)/figures

figures: $(VENV)/base ## redraw the figures of the last demo (RUN=folder for another sweep)
	$(BIN)/python -m analysis $(RUN) --out $(RUN)/figures

test: $(VENV)/test ## set up and run every test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/test ## ruff, as in continuous integration
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/test ## speed: printed, never asserted
	@for script in tests/benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done
