# Every target sets up what it needs; a second run skips what is done (scripts/setup.py).
PYTHON ?= python3
BIN := .venv/bin
# Two workers a core and one more: many tests wait for a server, a process or a clock.
WORKERS ?= $(shell expr 2 \* $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)
ON_ALL_CORES := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# The tests of `make quick` never wait, and benchmarks need a quiet machine.
ONE_A_CORE := $(BIN)/python -m pytest --numprocesses logical --dist worksteal
# A test that fails is run once more, alone: real servers and processes can be late on a busy machine.
# A defect fails again.
RERUN_FAILED := $(BIN)/python -m pytest --last-failed --last-failed-no-failures none
# Without it, each of the thousand processes of the tests would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
# Hugging Face's packages look for newer models otherwise.
OFFLINE := HF_HUB_OFFLINE=1

.PHONY: help demo rl-demo rl-test neighbours trl-demo test coverage quick check types style docs docs-serve soak bench pictures bench-peers release-check chaos clean dev

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

# One at a time: each installs gigabytes.
neighbours: ## the tests with the real verifiers, TRL and miles, each in a venv of its own
	@$(PYTHON) scripts/setup.py verifiers
	$(OFFLINE) .venv-verifiers/bin/python -m pytest $(addprefix tests/neighbours/,test_verifiers.py test_verifiers_agent.py test_pages.py)
	@$(PYTHON) scripts/setup.py verifiers-v0
	$(OFFLINE) .venv-verifiers-v0/bin/python -m pytest $(addprefix tests/neighbours/,test_verifiers.py test_verifiers_older.py)
	@$(PYTHON) scripts/setup.py trl
	$(OFFLINE) .venv-trl/bin/python -m pytest tests/neighbours/test_trl.py tests/neighbours/test_pages.py
	@$(PYTHON) scripts/setup.py miles
	$(OFFLINE) .venv-miles/bin/python -m pytest tests/neighbours/test_miles.py tests/neighbours/test_pages.py

trl-demo: ## train a tiny model with TRL and one of our evaluators; a minute on one core
	@$(PYTHON) scripts/setup.py trl
	$(OFFLINE) .venv-trl/bin/python examples/trl_sums.py

test: dev ## everything CI runs: check, all tests, the benchmarks in small
	@$(BIN)/python scripts/debian.py
	@$(MAKE) --no-print-directory --jobs 2 types style .venv/tests-rewritten
	$(ON_ALL_CORES) --ignore tests/test_bench.py --ignore tests/test_layers.py || $(RERUN_FAILED)
	$(ONE_A_CORE) tests/test_bench.py

coverage: dev ## all tests with coverage and its lower limit; takes twice as long as make test
	@$(BIN)/python scripts/debian.py
	$(ON_ALL_CORES) --cov --ignore tests/test_bench.py

quick: dev ## under a minute: check, and the fast tests that start no servers, browsers or processes
	@$(MAKE) --no-print-directory check
	$(ONE_A_CORE) --quick -m "not slow" --hypothesis-profile=quick

check: dev ## lint, formatting, spelling, types and layers; no tests
	@$(MAKE) --no-print-directory --jobs 2 types style

types:
	$(BIN)/mypy --strict src

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs src scripts examples bench chaos
	$(BIN)/python scripts/typescript.py
	$(BIN)/python -m pytest tests/test_layers.py

# In a new clone, each worker would otherwise rewrite the assertions of all tests; later, pytest
# rewrites only the files that have changed.
.venv/tests-rewritten:
	-@$(BIN)/python -m pytest --collect-only -qq > /dev/null
	@touch $@

docs: dev ## build the documentation into build/html, with warnings and broken links as errors
	$(BIN)/python -m scripts.site

docs-serve: dev ## serve the documentation on 127.0.0.1:8000, and rebuild it when a page changes
	$(BIN)/python -m scripts.site serve

soak: dev ## hours: simulations and loads at full size, new examples for every property
	WINK_SOAK=1 $(ON_ALL_CORES) -m "soak or hypothesis" --hypothesis-profile=explore

bench: dev ## run the benchmarks
	$(BIN)/python -m bench

bench-peers: dev ## about an hour: compare with other tools, each in a venv of its own; writes docs/benchmarks.md
	$(BIN)/python -m bench.peers

release-check: dev ## build wheel and sdist, and check their metadata and files
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m pytest tests/test_release.py

pictures: dev ## make the pictures of the docs from real runs, in docs/pictures
	$(BIN)/python scripts/pictures.py

chaos: dev ## simulate faults by the thousand, then kill real processes and servers
	$(BIN)/python -m chaos sim 5000
	$(BIN)/python -m chaos processes --samples 10000 --workers 4
	$(BIN)/python -m chaos pressure

clean: ## remove what the other targets made
	rm -rf .venv .venv-* rl-demo trl-demo .coverage htmlcov dist build
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev:
	@$(PYTHON) scripts/setup.py dev
