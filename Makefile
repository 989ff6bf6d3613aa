# Needs Python 3.11 or newer, and Java 17 or 21 (`make java` looks for it). `make help` lists all.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV     ?= $(shell command -v uv)
BASE   ?= debian:bookworm-slim

VENV    := .venv
VENV_35 := .venv-spark35
VENV_SITE := .venv-site
BIN     := $(VENV)/bin
IMAGE   := build/kafka-image
PACKAGES := streamer sinks transforms checkpoints lakemark
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# The name of the image that `make image` builds.
TAG := lakemark:$(VERSION)

# Arguments for pytest, such as: make test ARGS="-k merge"; of `make image`, for docker build
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv venv-spark35 java jars archive-spark35 emulators demo check format test test-oracle test-slow \
        test-spark35 bench model test-deep mutants simulate random-histories test-matrix bench-read bench-merge \
        bench-long-life site image kafka-image lock clean
.DELETE_ON_ERROR:

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
	    /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	    /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Set up
venv: $(VENV)/.installed ## .venv with pyspark 4.0, from the lock
venv-spark35: $(VENV_35)/.installed ## .venv-spark35: pyspark 3.5, also what Apache Hudi runs on

java: ## find Java 17 or 21, or install it (as root on Debian and Ubuntu)
	scripts/java "$(PYTHON)"

jars: venv java ## fetch the jars of the Kafka connector and of the broker, once; archive Spark's classes
	$(BIN)/python -m streamer.toolchain jars
	$(BIN)/python -m streamer.class_archive

archive-spark35: jars venv-spark35 # archive the classes of Spark 3.5
	$(VENV_35)/bin/python -m streamer.class_archive

emulators: venv ## fetch emulators of Azure and GCS for the contract tests, once (npm and go)
	$(BIN)/python -m tests.emulators

$(VENV)/.installed: requirements/spark-4.0.lock
	scripts/venv "$(PYTHON)" $(VENV) $< "$(UV)"

$(VENV_35)/.installed: requirements/spark-3.5.lock
	scripts/venv "$(PYTHON)" $(VENV_35) $< "$(UV)"

$(VENV_SITE)/.installed: requirements/site.lock
	[ -x $(VENV_SITE)/bin/python ] || "$(PYTHON)" -m venv $(VENV_SITE)
	$(VENV_SITE)/bin/python -m pip install -q --require-hashes -r $<
	touch $@

##@ Try
demo: jars ## a broker, a stream of orders and a table of them
	$(BIN)/lakemark demo

##@ Prove
check: venv ## format, lint, types, import layers, dead code, mutants that no longer apply
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/import_circles.py $(PACKAGES)
	$(BIN)/vulture
	$(BIN)/python -m pytest -q -k change_one_place tests/mutants/test_mutants.py

# The part of the large matrices that runs: all with ARGS, else as much as this machine can (tests/speed.py).
HERE = $${LAKEMARK_DEPTH:-$(if $(ARGS),1,$$($(BIN)/python -m tests.speed))}

test: jars ## all tests but the long ones and those that ask Apache Hudi; on a slow machine, samples
	export LAKEMARK_DEPTH=$(HERE); failed=0; \
	for kind in "not (slow or oracle or spark or kafka)" "(spark or kafka) and not (slow or oracle)"; do \
	    $(BIN)/python -m pytest -n 2 --dist worksteal -m "$$kind" $(ARGS) || \
	        [ $$? -eq 5 ] || failed=1; \
	done; exit $$failed # 5: none of these

test-oracle: archive-spark35 ## the tests that ask Apache Hudi
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "oracle and not slow" $(ARGS)

test-slow: jars venv-spark35 ## the long tests: kills, clusters, large messages
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "slow" $(ARGS)

# How many times the examples of `make test` a property tries in `make test-deep`.
DEPTH ?= 20

test-deep: jars ## every matrix whole, and DEPTH times the examples of every property: hours
	LAKEMARK_DEPTH=$(DEPTH) $(BIN)/python -m pytest -n 2 --dist worksteal -o timeout=14400 \
	    -m "not (slow or oracle or spark or kafka)" $(ARGS)

model: venv ## every schedule of the model of the commit protocol, within its bounds: minutes
	$(BIN)/python -m tests.protocol.model

mutants: venv ## wrong changes of the code, and the tests that must notice; ARGS chooses by file or word
	$(BIN)/python -m tests.mutants $(ARGS)

# How long `make simulate` runs new seeds, on both processors.
MINUTES ?= 10

simulate: venv ## simulate histories of several processes from new seeds, for MINUTES
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) --processes 2 $(ARGS)

# How many commits `make random-histories` runs at least.
COMMITS ?= 1000

random-histories: jars venv-spark35 ## random histories by writers, services and Apache Hudi, for COMMITS
	$(BIN)/python -m tests.interop.random_history --commits $(COMMITS) $(ARGS)

test-matrix: jars ## all interleavings of two processes on one table: days
	LAKEMARK_MATRIX=1 $(BIN)/python -m pytest -n 2 --dist worksteal -o timeout=14400 \
	    tests/recovery/test_two_writers.py $(ARGS)

# How a process starts, ends and is watched is the same on both; it is tested on 4.0.
OF_PROCESSES := tests/stream/test_run_command.py tests/stream/test_observation.py \
                tests/unit/streamer/test_session.py tests/docs/test_tutorial.py

test-spark35: archive-spark35 ## the tests of reading and writing with Spark, on Spark 3.5
	$(VENV_35)/bin/python -m pytest -n 2 --dist worksteal $(OF_PROCESSES:%=--ignore=%) \
	    -m "spark and not slow and not oracle" $(ARGS)

bench: jars venv-spark35 ## ingest from Kafka with lakemark, Apache Hudi, Delta Lake and Iceberg
	$(BIN)/python -m benchmarks.ingest $(ARGS)

bench-read: jars venv-spark35 ## reading tables against Apache Hudi and Spark's plain scan
	$(BIN)/python -m benchmarks.read $(ARGS)

bench-merge: jars venv-spark35 ## compacting a slice against Apache Hudi and Arrow's sort
	$(BIN)/python -m benchmarks.merge $(ARGS)

bench-long-life: venv ## thousands of small commits to one table, and tables of many files
	$(BIN)/python -m benchmarks.long_life $(ARGS)

##@ Maintain
format: venv ## format all code, and repair what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

site: $(VENV_SITE)/.installed ## the documentation as web pages in build/site/html; fails on dead links
	$(VENV_SITE)/bin/python scripts/site_pages.py build/site/pages
	NO_MKDOCS_2_WARNING=1 $(VENV_SITE)/bin/mkdocs build --quiet --strict

image: ## lakemark as a Docker image on BASE
	docker build --network host --build-arg BASE=$(BASE) -f docker/streamer/Dockerfile \
	    -t $(TAG) $(ARGS) .

kafka-image: jars ## the broker as a Docker image on BASE
	rm -rf $(IMAGE)
	mkdir -p $(IMAGE)/jars
	cp docker/kafka/* $(IMAGE)/
	$(BIN)/python -m streamer.toolchain kafka | xargs -I{} cp {} $(IMAGE)/jars/
	docker build --network host --build-arg BASE=$(BASE) -t lakemark-kafka:4.1.0 $(IMAGE)

lock: ## solve the requirements anew (needs uv)
	@test -n "$(UV)" || { echo "make lock needs uv: https://docs.astral.sh/uv/"; exit 1; }
	echo "pyspark==4.0.0" | $(UV) pip compile --no-header --generate-hashes --python-version 3.11 \
	    --extra dev $(ARGS) -c - -o requirements/spark-4.0.lock pyproject.toml
	echo "pyspark==3.5.7" | $(UV) pip compile --no-header --generate-hashes --python-version 3.11 \
	    --extra dev $(ARGS) -c - -o requirements/spark-3.5.lock pyproject.toml
	$(UV) pip compile --no-header --generate-hashes --python-version 3.11 --extra streamer $(ARGS) \
	    -c requirements/spark-4.0.lock -o requirements/image.lock pyproject.toml
	echo "mkdocs-material" | $(UV) pip compile --no-header --generate-hashes --python-version 3.11 \
	    $(ARGS) -o requirements/site.lock -

clean: ## remove what was built, but not the environments
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
