# Every target sets up what it needs; a second run skips what is done (scripts/setup.py).
PYTHON ?= python3
BIN := .venv/bin
ON_ALL_CORES := $(BIN)/python -m pytest --numprocesses auto --dist worksteal
# What these cover is covered elsewhere too, and measuring that would double their time.
LONG := tests/test_simulation.py tests/test_chaos_processes.py tests/test_deploy.py \
	tests/evals/test_statistics_simulation.py

.PHONY: help demo rl-demo rl-test test check bench chaos clean dev

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: ## run the quickstart, with the core install only
	@$(PYTHON) scripts/setup.py demo
	$(BIN)/python examples/quickstart.py

rl-demo: ## train a policy to use a calculator, on three seeds; PyTorch is in a venv of its own
	@$(PYTHON) scripts/setup.py rl
	.venv-rl/bin/python examples/rl_calculator.py

rl-test: ## the tests that need PyTorch
	@$(PYTHON) scripts/setup.py rl
	.venv-rl/bin/python -m pytest tests/rl

test: dev ## everything CI runs: check, the tests under coverage, the benchmarks in small
	@$(BIN)/python scripts/debian.py
	@$(MAKE) --no-print-directory check
	$(ON_ALL_CORES) --cov $(LONG:%=--ignore %) --ignore tests/test_bench.py
	$(ON_ALL_CORES) $(LONG)
	$(BIN)/python -m pytest tests/test_bench.py

check: dev ## lint, formatting, types and layers; no tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/python -m pytest tests/test_layers.py

bench: dev ## run the benchmarks
	$(BIN)/python -m bench

chaos: dev ## simulate faults by the thousand, then kill real processes and servers
	$(BIN)/python -m chaos sim 5000
	$(BIN)/python -m chaos processes --samples 10000 --workers 4
	$(BIN)/python -m chaos pressure

clean: ## remove what the other targets made
	rm -rf .venv .venv-boot .venv-rl rl-demo .coverage htmlcov dist
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev:
	@$(PYTHON) scripts/setup.py dev
