# Everything that a person does with a clone. `make` alone explains itself.

# The first Python here that is new enough; `make PYTHON=... up` takes another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
UV ?= uv
IN_VENV := .venv/bin/python
COMPILE := $(UV) pip compile pyproject.toml --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --no-annotate --quiet

.DEFAULT_GOAL := help
.PHONY: help up test check bench lock format python dev

help: ## say what there is
	@echo "Slipstream: dedicated LLM deployments on your own GPUs, with a draft model running ahead."
	@echo
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16
	@echo
	@echo "First: make up. SLIPSTREAM_PORT and SLIPSTREAM_DATA_DIR say where, if not 8400 and ~/.slipstream."

up: python ## install what is missing, then run everything on this machine, until Ctrl-C
	@exec $(PYTHON) tools/install.py up

test: dev ## install what the tests need, then run every test that this machine can run
	@$(IN_VENV) -m pytest $(TESTS)

check: dev ## style, types, import contracts, migrations, OpenAPI, lengths, lock files
	@$(IN_VENV) -m tests.checks

bench: dev ## the benchmarks, each printing its figures beside their goals
	@$(IN_VENV) -m tests.bench

format: dev ## put the code into the common form
	@$(IN_VENV) -m ruff check --fix --quiet .
	@$(IN_VENV) -m ruff format .

lock: ## choose the newest versions that pyproject.toml allows, with their hashes (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is missing: pip install uv, or make lock UV=/path/to/uv"; exit 4; }
	$(COMPILE) --extra build -o requirements.txt $(LOCK)
	$(COMPILE) --extra build --extra dev -o requirements-dev.txt $(LOCK)

dev: python
	@$(PYTHON) tools/install.py dev

python:
	@test -n "$(PYTHON)" || { \
		echo "Python 3.11 or newer is needed, and none is here."; \
		echo "  sudo apt install python3 python3-venv"; exit 4; }
