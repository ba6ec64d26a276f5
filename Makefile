# `make` alone lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/demo
FIGURES ?= runs/figures
POLICIES := autoregressive,fixed_chain,tuned_chain,fixed_tree,cast,treespark,priced_survival

# Of `make gpu-surface` and `make gpu-validate`; nothing: the first that is not done.
GPU_WORDS := $(if $(SHAPE),shape=$(SHAPE)) $(if $(MODE),mode=$(MODE)) $(WORDS)
GPU := $(BIN)/python -m real_runner.tasks.gpu

.PHONY: help demo test sweep-test fuzz lint bench figures gpu gpu-tests gpu-next gpu-list gpu-surface gpu-validate
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/base: pyproject.toml constraints.txt
	@echo "setting up $(VENV) and installing the packages into it (about a minute, once)"
	@$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/test: $(VENV)/base
	@echo "installing what the tests need into $(VENV), PyTorch among it (a few minutes, once)"
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[live,test,sweep]'
	@touch $@

demo: $(VENV)/base ## compare every policy over five concurrencies on the shipped recordings
	$(BIN)/python -m simulator -m +policy=$(POLICIES) max_concurrency=1,4,16,64,256 hydra.sweep.dir=$(RUN)
	$(BIN)/python -m analysis $(RUN) --out $(RUN)/figures

# Runs that lie there are skipped. A sweep of widths is a folder of its own: in one with others its policies
# would be many variants.
MEASURED := blackwell_qwen3_8b blackwell_qwen3_4b a6000_qwen3_8b h100_sxm_qwen3_8b_table5 h100_sxm_qwen3_4b_table5
MEASURED := $(MEASURED:%=traces/latency/%.csv) traces/data/small_semi_t0.calibration.json traces/data/small_block_t0.safetensors real_runner/measured
SWEEP = $(BIN)/python -m simulator -m seed=0,1,2 hydra.sweep.dir=$(FIGURES)/widths
DRAW = $(BIN)/python -m analysis figures --out $(FIGURES)/drawn
figures: $(VENV)/base ## every kind of figure, from runs of its own and shipped measurements (FIGURES=folder)
	$(BIN)/python -m simulator experiment=figure_loads hydra.sweep.dir=$(FIGURES)/loads
	$(SWEEP) +policy=autoregressive max_concurrency=1,16
	$(SWEEP) +policy=fixed_chain policy.length=1,3,5,7 max_concurrency=1,16
	$(SWEEP) +policy=fixed_tree policy.nodes=3,7,15,31,63,127 max_concurrency=1,16
	$(SWEEP) +policy=cast policy.width=3,7,15,31,63,127 max_concurrency=1
	$(SWEEP) +policy=cast policy.nodes_per_request=1,3,7,15,31 max_concurrency=16
	$(DRAW) --only throughput,goodput,pareto,domains,acceptance,nodes,time $(FIGURES)/loads
	$(DRAW) --only budget $(FIGURES)/widths
	$(DRAW) --only latency,prefix_mass,reliability,live $(MEASURED)

test: $(VENV)/test ## set up and run every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

sweep-test: $(VENV)/test ## 300 runs, killed three times and resumed, two sweeps at once: the same bytes
	SWEEP_RUNS=300 $(BIN)/python -m pytest -q tests/test_sweep_killed.py

fuzz: $(VENV)/test ## 10,000 damaged files against every reader
	$(BIN)/python tests/fuzz/run.py --cases 10000 --seed 0

lint: $(VENV)/test ## ruff, as in continuous integration
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/test ## speed: printed, never asserted
	@for script in tests/benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

gpu: gpu-tests ## on a machine with a GPU: its tests, latency surfaces, validation; goes on where it stopped
	$(GPU) all $(GPU_WORDS)

gpu-tests: $(VENV)/test ## the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

gpu-list: $(VENV)/test ## the steps of `make gpu` and their commands
	$(GPU) list $(GPU_WORDS)

gpu-next: $(VENV)/test ## the first of them that is not done, for less than nine minutes
	$(GPU) next $(GPU_WORDS)

gpu-surface: $(VENV)/test ## one surface for less than nine minutes (SHAPE=qwen3_8b MODE=eager or graphs)
	$(GPU) surface $(GPU_WORDS)

gpu-validate: $(VENV)/test ## predictions against live runs on the GPU (MODE=eager or graphs)
	$(GPU) validate $(GPU_WORDS)
