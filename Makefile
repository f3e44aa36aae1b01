# Everything runs from .venv, which the first target that needs it creates with the pinned set.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
OUTPUT ?= runs/solubility
PYTEST_ARGS ?=
PYTHONS ?= python3.11 python3.12 python3.13

.DEFAULT_GOAL := help
.PHONY: help train test test-browser test-docs test-packaging test-slow test-faults test-ray test-versions test-lowest test-newest benchmark-smoke fuzz mutation lint format audit build docs clean

help: ## Show this help
	@echo "molattn: attention for molecules. Python 3.11 is all that has to be there already."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  OUTPUT=$(OUTPUT)  PYTEST_ARGS=\"tests/nn -x\""
	@echo "           PYTHONS=\"$(PYTHONS)\""

train: $(READY) ## Train the solubility predictor on the bundled data; replaces runs/solubility
	$(PY) scripts/train.py --output $(OUTPUT) --overwrite

test: $(READY) ## Run the tests, on all cores
	$(PY) -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-browser: $(READY) ## Open the pages in a headless browser, which has to be there already
	$(PY) -m pytest -n auto --dist loadfile -m browser $(PYTEST_ARGS)

test-docs: $(READY) ## Run the code of the documentation, and build the site
	$(PY) -m pytest -m docs $(PYTEST_ARGS)

test-packaging: $(READY) ## Build the distributions, and look into them
	$(PY) -m pytest -m packaging $(PYTEST_ARGS)

test-slow: $(READY) ## Run the tests that take minutes
	$(PY) -m pytest -m slow $(PYTEST_ARGS)

test-faults: $(READY) ## Run the tests that kill processes and fill disks, in minutes
	$(PY) -m pytest -m faults $(PYTEST_ARGS)

test-ray: $(READY) ## Run the tests that start a Ray cluster, in minutes; installs Ray
	$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[ray]"
	$(PY) -m pytest -m ray $(PYTEST_ARGS)

test-versions: build ## Run the tests of the built wheel and sdist on each of PYTHONS that is there
	@for python in $(PYTHONS); do \
	  if ! $$python -c "" 2>/dev/null; then echo "$$python not found: skipped"; continue; fi; \
	  for kind in wheel sdist; do \
	    echo "$$python, $$kind"; scripts/maintenance/test_distribution.sh $$python $$kind $(PYTEST_ARGS) || exit 1; \
	  done; \
	done

benchmark-smoke: $(READY) ## Start every script that the docs name on tiny data, in two minutes
	$(PY) -m pytest -n 2 --dist worksteal -m smoke tests/scripts/test_smoke.py $(PYTEST_ARGS)

test-lowest: build ## Run the tests of the wheel with the oldest versions that pyproject.toml allows
	$(PY) scripts/maintenance/lowest_versions.py > dist/lowest.txt
	CONSTRAINTS=dist/lowest.txt scripts/maintenance/test_distribution.sh $(PYTHON) wheel -W ignore::DeprecationWarning $(PYTEST_ARGS)

test-newest: build ## Run the tests of the wheel with the newest versions
	CONSTRAINTS=/dev/null scripts/maintenance/test_distribution.sh $(PYTHON) wheel $(PYTEST_ARGS)

fuzz: $(READY) ## Run the property-based tests on 3,000 examples each
	$(PY) -m pytest -n auto -m "hypothesis and not slow" --hypothesis-profile fuzz $(PYTEST_ARGS)

mutation: $(READY) ## Make 200 small wrong changes and list those that no test notices, in hours
	$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[mutation]"
	$(PY) scripts/maintenance/mutation.py --count 200

lint: $(READY) ## Check style, names, format, types and the import rule
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) scripts/counts/check_names.py
	$(PY) scripts/counts/count_statements.py --check
	$(PY) -m pyright
	$(VENV)/bin/lint-imports

format: $(READY) ## Rewrite the code in the house format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

audit: $(READY) ## Look for known vulnerabilities of the pinned dependencies
	$(PY) -m pip_audit --strict --no-deps --disable-pip -r constraints.txt

build: $(READY) ## Build the sdist and the wheel into dist/
	rm -rf dist
	$(PY) -m build --no-isolation

docs: $(READY) ## Build the documentation into site/; a warning fails it
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "site/index.html"

clean: ## Remove the environment, caches and build products; runs/ stays
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find molattn scripts datasets tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 not found; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
