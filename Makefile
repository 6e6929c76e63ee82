# What this repository can do for you; `make help` prints it. Everything runs in .venv, which is made where it is absent.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv/bin
# Tests start clusters of their own: nothing of a running platform is touched, nor of the cluster that a shell's KUBECONFIG names.
unexport KUBECONFIG
PYTEST := $(VENV)/python -m pytest
TIER := .ci/tier
# In this order: what is cheap fails first. Files run two at a time: each of the two has servers, and where needed a cluster, of its own.
# A whole platform with Airflow, which trains, has the machine for itself.
PARTED := -n 2 --dist loadfile
FAST := $(PARTED) tests/unit tests/contract tests/dags
CLUSTER := $(PARTED) --no-loadscope-reorder tests/cluster tests/stack
PLATFORM := tests/e2e tests/chaos

.PHONY: help setup run up down test test-fast test-cluster test-long check format lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: ## the environment (.venv) and the embedded Kubernetes
	@$(PYTHON) local/bootstrap.py --dev --kube

run: ## the whole chain on this machine: start, train the sample pipeline, export, stop
	@$(PYTHON) local/bootstrap.py --kube && exec $(VENV)/python -m local.demo

up: ## start the platform and keep it running (same as ./trainyard up)
	@./trainyard up

down: ## stop it (same as ./trainyard down)
	@./trainyard down

test: setup ## everything CI runs: lint, types, layers and all tests but the long ones
	@$(MAKE) --no-print-directory check
	@$(TIER) --durations=20 -m "not long" $(FAST)
	@$(TIER) --durations=20 -m "not long" $(CLUSTER)
	@$(TIER) --durations=20 -m "not long" $(PLATFORM)

test-fast: ## no cluster, nothing slow
	@$(PYTHON) local/bootstrap.py --dev
	@$(PYTEST) -m "not slow and not cluster and not e2e and not chaos and not long" $(FAST)

test-cluster: setup ## the same on a genuine Kubernetes of three nodes on this machine (root, Docker; minutes to build once)
	@.ci/test-cluster

test-long: setup ## also what takes many minutes or wants root
	@$(PYTEST) -m "long"

check: ## lint, types, layers
	@$(PYTHON) local/bootstrap.py --dev
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@PYTHONPATH=.:plugins:images/trainer/src $(VENV)/lint-imports

format: ## rewrite the sources as `make check` wants them
	@$(VENV)/ruff check --fix . ; $(VENV)/ruff format .

lock: ## resolve requirements*.in again into the pinned requirements*.txt
	@uv=$$($(PYTHON) -c 'from local.toolchain import ensure_uv; print(ensure_uv(lambda message: None))') && \
	  $$uv pip compile --quiet --no-header --no-annotate --python-version 3.11 -o requirements.txt requirements.in && \
	  $$uv pip compile --quiet --no-header --no-annotate --python-version 3.11 -o requirements-dev.txt requirements-dev.in && \
	  for list in trainer/requirements trainer/requirements-gpu airflow/requirements; do \
	    $$uv pip compile --quiet --no-header --no-annotate --python-version 3.11 -o images/$$list.txt images/$$list.in || exit 1; \
	  done

clean: ## stop the platform and delete its state and the environment
	@if [ -x $(VENV)/python ] && [ -d var ]; then $(VENV)/python -m local.stack down; fi
	@rm -rf var .venv .venv.making .venv.lock .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
