# Everything that a person or CI runs here, from a machine that has make and Python 3.11 or newer.
# The first target that needs it makes .venv from constraints.txt; after that nothing here needs a network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-long lint bench clean
.DELETE_ON_ERROR:

VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --disable-pip-version-check
# 3.11 first: the pins were tested there.
PYTHONS := python3.11 python3.12 python3.13 python3 python
# The CPU build of torch: asked of the machine's own index first, then of this one.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# The tests run in so many processes at once; each has servers and folders of its own. ARGS='-n 0' runs them in one.
# They wait for disks and for each other, so there is one more than there are cores; each takes a gigabyte.
PROCESSES ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST = $(RUN)/python -m pytest -n $(PROCESSES) --dist worksteal
# Folders of tests that say within minutes whether the tree is whole.
FAST := tests/house tests/config tests/ops tests/plan tests/store tests/api
BENCH ?= $(filter-out __init__ answering groups harness handmade image_pictures image_rivals invented cache_model longrun rivals lockstep trainees,$(basename $(notdir $(wildcard benchmarks/*.py))))
# Where it is set, as in many containers, each process that is started compiles all modules anew: a third of a second.
unexport PYTHONDONTWRITEBYTECODE
# Environment, not text pasted into a command: a folder's name may hold spaces and quotes.
export VIDEOS

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed ## cache a few clips, train on them cold and warm: make demo [VIDEOS=folder]
	$(RUN)/viewcache demo $${VIDEOS:+--videos "$$VIDEOS"}

test: $(VENV)/.developed ## the tests, in minutes: make test [ARGS='-k store'] [PROCESSES=4]
	$(PYTEST) $(ARGS)

test-fast: $(VENV)/.developed ## the fast lane, without servers: house, config, ops, plan, store, api
	$(PYTEST) -m "not long and not s3" $(FAST) $(ARGS)

test-long: $(VENV)/.developed ## the nightly lane: all tests, the long ones too, with many more random examples
	$(PYTEST) -m "long or not long" --hypothesis-profile=long --timeout=3600 -o faulthandler_timeout=3660 $(ARGS)

lint: $(VENV)/.developed ## ruff (rules and format) and mypy --strict over the whole tree
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench: $(VENV)/.developed ## measure against rivals into bench-out/: make bench [BENCH='read decode'] [ARGS='--repeats 9']
	@mkdir -p bench-out
	for name in $(BENCH); do $(RUN)/python -m "benchmarks.$$name" --json "bench-out/$$name.json" $(ARGS); done

clean: ## remove .venv, tool caches and what demo and bench wrote
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* dist demo-out bench-out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package with what the demo needs. Runs again when the pins or the package's own list changed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@if ! $(RUN)/python -m pip --version >/dev/null 2>&1; then \
	  for python in $(PYTHONS); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found="$$python"; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then echo "viewcache needs Python 3.11 or newer; none of $(PYTHONS) is" >&2; exit 1; fi; \
	  echo "making $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@$(PIP) install -qq --constraint constraints.txt pip
	@torch="torch==$$(sed -n 's/^torch==//p' constraints.txt)"; \
	if [ "$$(uname -s)" = Linux ]; then torch="$$torch+cpu"; fi; \
	echo "installing $$torch"; \
	if ! $(PIP) install -qq --constraint constraints.txt "$$torch" 2>/dev/null; then \
	  $(PIP) install -qq --constraint constraints.txt --extra-index-url "$(TORCH_INDEX)" "$$torch" \
	  || { echo "no index has $$torch: name one that does, make TORCH_INDEX=URL" >&2; exit 1; }; \
	fi
	@echo "installing viewcache and what it needs"
	@$(PIP) install -qq --constraint constraints.txt --build-constraint constraints.txt --editable '.[torch,demo,pg,fast,zarr,http,verify,metrics]'
	@touch $@

# The tools of the tests, checkers and benchmarks, the extras that the tests of remote stores, mounts and examples need,
# and another environment, with other versions, that the tests of op workers run operations in.
$(VENV)/.developed: $(VENV)/.installed tests/op_workers/requirements.txt
	@echo "installing the tools of the tests"
	@$(PIP) install -qq --constraint constraints.txt --build-constraint constraints.txt --editable '.[s3,gcs,azure,mount,ray,lightning,jax]' --group dev
	@$(RUN)/python -m venv --clear --without-pip $(VENV)/op-worker
	@$(PIP) --python $(VENV)/op-worker/bin/python install -qq --requirement tests/op_workers/requirements.txt
	@touch $@
