# Every target sets up what it needs; a second run skips what is done (scripts/setup.py).
PYTHON ?= python3
BIN := .venv/bin
# Two workers a core: many tests wait for a server, a process or a clock.
WORKERS := $(shell expr 2 \* $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN))
ON_ALL_CORES := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# Without it, each of the thousand processes of the tests would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo rl-demo rl-test neighbours test quick check docs docs-serve soak bench chaos clean dev

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

neighbours: ## the tests with the real verifiers, in a venv of its own
	@$(PYTHON) scripts/setup.py verifiers
	HF_HUB_OFFLINE=1 .venv-verifiers/bin/python -m pytest tests/neighbours/test_verifiers.py

test: dev ## everything CI runs: check, the tests under coverage, the benchmarks in small
	@$(BIN)/python scripts/debian.py
	@$(MAKE) --no-print-directory check
	$(ON_ALL_CORES) --cov --ignore tests/test_bench.py
	$(BIN)/python -m pytest tests/test_bench.py

quick: dev ## under a minute: check, and the tests that start no servers, browsers or processes
	@$(MAKE) --no-print-directory check
	$(ON_ALL_CORES) --quick --hypothesis-profile=quick

check: dev ## lint, formatting, spelling, types and layers; no tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs src scripts examples bench chaos
	$(BIN)/mypy --strict src
	$(BIN)/python scripts/typescript.py
	$(BIN)/python -m pytest tests/test_layers.py

docs: dev ## build the documentation into build/html, with warnings and broken links as errors
	$(BIN)/python -m scripts.site

docs-serve: dev ## serve the documentation on 127.0.0.1:8000, and rebuild it when a page changes
	$(BIN)/python -m scripts.site serve

soak: dev ## hours: simulations and loads at full size, new examples for every property
	WINK_SOAK=1 $(ON_ALL_CORES) -m "soak or hypothesis" --hypothesis-profile=explore

bench: dev ## run the benchmarks
	$(BIN)/python -m bench

chaos: dev ## simulate faults by the thousand, then kill real processes and servers
	$(BIN)/python -m chaos sim 5000
	$(BIN)/python -m chaos processes --samples 10000 --workers 4
	$(BIN)/python -m chaos pressure

clean: ## remove what the other targets made
	rm -rf .venv .venv-boot .venv-rl .venv-verifiers rl-demo .coverage htmlcov dist build
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev:
	@$(PYTHON) scripts/setup.py dev
