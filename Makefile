# Every target works from a bare machine with Python 3.11 or later and make; a C compiler is used
# when there is one. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
EXTRAS := spark,delta,demo,lua,dev
ARGS ?=

# The tests start hundreds of processes; without bytecode each would compile every source again.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := $(shell find src -name '*.py' -o -name '*.pxd' 2>/dev/null)

# Tests run two at a time; those that share a server or a Spark session say so by xdist_group.
PYTEST := $(PY) -m pytest
TWO := -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install build check format quick test plain slice clusters chaos-clusters conform crash asan connections chaos-spark chaos-worker demo bench bench-worker bench-gate bench-compare bench-docs bench-scale bench-spark peers docs clean

help:
	@echo "make demo     the whole path on real data, under 3 minutes (ARGS='--flights 10000')"
	@echo "make test     every test but the slice, 11 minutes, 12 at most"
	@echo "make quick    the tests that are not slow, 2 minutes at most"
	@echo "make slice    a sample of every long campaign: kills, crashes, histories"
	@echo "make clusters  workers on real clusters and with Sentinels, failovers and resharding, 5 minutes at most"
	@echo "make chaos-clusters  320 random failovers and moved slots under load, 20 minutes"
	@echo "make conform  1,500,000 random commands against real servers, 200,000 against the model, odd requests"
	@echo "make crash    crashes before every file operation, failing disks, 1,000 kills, half an hour"
	@echo "make asan     what judges the hot modules under AddressSanitizer, 10 minutes at most"
	@echo "make connections  10,000 idle and 10,000 blocked connections, beside Redis 8.2"
	@echo "make check    format, rules, types, rooms, tidiness"
	@echo "make chaos-spark  300 kills of drivers and executors, an hour and more"
	@echo "make chaos-worker  2,000 kills of workers, 200 of servers, 30,000 simulated crashes, over an hour"
	@echo "make bench    beside real Redis and Valkey in the same run, an hour; ARGS='--only memory' for a part"
	@echo "make bench-gate  processor time of the hot commands beside Redis 8.2, half a minute; fails when dearer"
	@echo "make bench-compare REF=HEAD~3  this commit beside another: instructions (valgrind) and time, 10 minutes"
	@echo "make bench-docs  write docs/reference/performance.md from the newest results"
	@echo "make bench-scale  how long one command holds the loop over a million entries, and beside Redis"
	@echo "make bench-spark  rows and latency of the Spark source, against its peers in the same run"
	@echo "make bench-worker  messages a second of the worker, beside its peers and a raw loop, an hour"
	@echo "make peers    bring Redis 7.0, Redis 8.2 and Valkey 9.1 into .peers/"
	@echo "make install  create .venv (downloads about 650 MB with Spark)"
	@echo "make build    compile the hot modules, where there is a compiler; fails when one does not compile"
	@echo "make format   let ruff format and fix what it can"
	@echo "make docs     write the generated reference pages"
	@echo "make clean    remove what was built"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Headwater needs Python 3.11 or later; $(PYTHON) is `$(PYTHON) -V 2>&1`." \
	           "Name another one: make install PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV): about 650 MB are downloaded, most of it Spark and a Java runtime."
	@if command -v uv >/dev/null 2>&1; then \
	    test -x $(PY) || uv venv --quiet --seed --python $(PYTHON) $(VENV); \
	    uv pip install --quiet --python $(PY) -c constraints.txt -e '.[$(EXTRAS)]'; \
	else \
	    test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	        { echo "$(PYTHON) cannot create a virtual environment." \
	               "On Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }; \
	    $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'; \
	fi
	@touch $@

# Verified each time: what was allowed without CI_PEERS_REQUIRED may not be with it.
build: build/stamp
	@$(PY) tools/built.py || { rm -f build/stamp; exit 1; }

build/stamp: $(VENV)/.installed $(SOURCES) setup.py
	@mkdir -p build
	@$(PY) setup.py --quiet build_ext --inplace >build/log 2>&1 || { cat build/log; exit 1; }
	@$(BIN)/headwater info --short
	@touch $@

peers: .peers/stamp

.peers/stamp: tools/peers.py
	@"$$(test -x $(PY) && echo $(PY) || echo $(PYTHON))" tools/peers.py .peers
	@touch $@

check: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -q tests/tidy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

quick: build peers
	$(PYTEST) $(TWO) -q -m "not slow and not slice and not spark and not clusters" $(ARGS)

test: build peers build/bench-installed
	$(PYTEST) $(TWO) -q -m "not slice and not clusters" $(ARGS)
	$(MAKE) --no-print-directory plain

# The same sources without their compiled twins.
plain: build peers
	HEADWATER_PURE=1 $(PYTEST) $(TWO) -q -m "not slow and not slice and not spark" \
	    tests/unit tests/conformance tests/property

slice: build peers
	$(PYTEST) -q -m slice $(ARGS)
	HEADWATER_PURE=1 $(PYTEST) $(TWO) -q -m slice tests/conformance tests/property

# Clusters of three shards with replicas, and Sentinels, of Redis and Valkey: about as many processes as
# one machine of two cores bears, so one test at a time.
clusters: build peers
	$(PYTEST) -q -m clusters tests/clusters $(ARGS)

# ARGS='--rounds 5 --only valkey-9.1' for a short one.
chaos-clusters: build peers
	$(PY) -m tests.clusters.campaign $(ARGS)

# Long campaigns take new seeds and append to campaigns/NAME.jsonl, which is committed; `make docs` then
# writes docs/reference/reliability.md. ARGS='--only streams,model' for some parts, with --streams 10000 a
# short one; HEADWATER_PURE=1 for the plain build.
conform: build peers
	$(PY) -m tests.conformance.campaign $(ARGS)

# ARGS='--only journal --seeds 4' for a short one.
crash: build
	$(PY) -m tests.crash.campaign $(ARGS)

# Builds in build/asan. ARGS='--only histories' for a part, ARGS='-- -k scanner' for pytest.
asan: $(VENV)/.installed
	$(PY) -m tools.asan $(ARGS)

# Details in artifacts/connections.json. ARGS='--connections 1000 --rounds 1' for a short one.
connections: build peers
	$(PY) -m benchmarks.connections --judge $(ARGS)

# Each life is a line of campaigns/chaos-spark.jsonl; the next run goes on with the next seed.
# ARGS='--trials 5 --kinds driver' for a short one.
chaos-spark: build peers
	$(PY) -m tests.spark.campaign $(ARGS)

# ARGS='--scale 0.01' for a short one; ARGS='--only upgrade --from v0.1' with workers of that commit.
chaos-worker: build peers
	$(PY) -m tests.worker.chaos $(ARGS)

demo: build
	@$(BIN)/headwater demo $(ARGS)

# The libraries that embedded stores are compared with; no part of `make install`. Where they are
# required (CI), the tests fail that would need them.
build/bench-installed: $(VENV)/.installed pyproject.toml constraints.txt
	@mkdir -p build
	@wanted=$$($(PY) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*project["optional-dependencies"]["bench"])'); \
	if command -v uv >/dev/null 2>&1; then \
	    uv pip install --quiet --python $(PY) -c constraints.txt $$wanted; \
	else \
	    $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt $$wanted; \
	fi && touch $@ || echo "burner-redis and fakeredis cannot be had here: their rows will say so"

# All of it writes benchmarks/results/DATE-COMMIT.json, a part artifacts/bench.json.
# ARGS='--only throughput --rows XADD --rounds 3 --seconds 1' for a part.
bench: build peers build/bench-installed
	$(PY) -m benchmarks $(ARGS)

bench-gate: build peers
	$(PY) -m benchmarks.gate $(ARGS)

# Fails when a hot command takes more than 1.02 times the user-space instructions of commit REF.
# ARGS='--only instructions' or '--only time' for a part. The worktree of REF and its build stay in
# build/compare for the next time.
bench-compare: build peers
	@test -n "$(REF)" || { echo "Which commit? make bench-compare REF=v0.1 (or HEAD~3, or a hash)"; exit 1; }
	$(PY) -m benchmarks.compare $(REF) $(ARGS)

# Whole it writes benchmarks/results/worker/DATE-COMMIT.json; the peers are installed below build/bench-worker.
# ARGS='--only throughput --rows plain --rounds 3' for a part.
bench-worker: build peers
	$(PY) -m benchmarks.worker $(ARGS)

bench-docs: build
	$(PY) -m benchmarks.page

# ARGS are those of the first part; the second is stalls beside Redis, three minutes.
bench-scale: build peers
	$(PY) -m benchmarks.scale $(ARGS)
	$(PY) -m benchmarks.stalls

# Writes artifacts/bench-spark.json. ARGS='--only throughput --rows 100000' for a part.
bench-spark: build peers
	$(PY) -m benchmarks.spark $(ARGS)

docs: build
	$(PY) tools/reference.py
	$(PY) -m tools.reliability

clean:
	rm -rf build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find src -name '*.so' -delete -o -name '*.c' -delete -o -name '*.html' -delete
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
