# make demo   the environment, then a model trained on two CPU cores and its pictures in demo/
# make test   the environment, then all tests
# make lint   style and types
# make bench  the claims of speed, one script each
# make docs   the site of docs/ in docs/_build; a warning is an error
# make lock   requirements.lock: the newest versions that pyproject.toml allows, with hashes (needs uv)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint format bench docs lock clean

demo: $(READY)
	$(BIN)/npdraw demo --out demo

# One torch thread in each worker: more would fight over the same cores. Four workers keep two cores busy while tests
# wait for a browser or for another process. Bytecode is kept, whatever the environment says: many tests start
# processes, and pytest need not rewrite the assertions of all tests each time.
# worksteal gives a worker neighbouring tests, so that a module's fixtures are mostly made once.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n 4 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	set -e; for name in parsing loading scoring sampling editing training growth soak; do \
		echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py; done

# -E: all pages are read again, since what they show of the code may have changed.
docs: $(READY)
	$(BIN)/sphinx-build -qEW --keep-going docs docs/_build
	@echo docs/_build/index.html

lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --upgrade \
		--no-emit-package torch -c constraints.txt --extra dev pyproject.toml -o requirements.lock

# Everything is checked by hash but torch, whose build depends on the machine.
# The stamp is written last, so an interrupted install is taken up again, and a finished one is left alone.
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis docs/_build docs/cards
