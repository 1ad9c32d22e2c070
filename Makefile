# Every target works on a bare machine with Python 3.11 or later and make; a C compiler is used if
# there is one. `make` without a target lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
EXTRAS := spark,pipelines,delta,demo,lua,dev
ARGS ?=

# The tests start hundreds of processes; without bytecode each would compile every source again.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := $(shell find src -name '*.py' -o -name '*.pxd' 2>/dev/null)

# Tests run in three processes, or five where they wait for servers, workers and JVMs half of their time. Tests that
# share a server or a Spark session have an xdist_group.
PYTEST := $(PY) -m pytest
THREE := -n 3 --dist loadgroup
FIVE := -n 5 --dist loadgroup

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install build check types tidy format quick test plain slice clusters chaos-clusters conform suites crash asan connections chaos-spark chaos-worker exact-values demo bench bench-worker bench-gate bench-compare bench-docs bench-scale bench-spark bench-storage life peers docs clean

help:
	@echo "make demo     run server, workers and Spark on real data, under 3 minutes (ARGS='--flights 10000')"
	@echo "make test     run all tests except the slice and those of make check, 12 minutes at most"
	@echo "make quick    run the tests that are not slow, 2 minutes at most"
	@echo "make slice    run a sample of every long campaign: kills, crashes, histories; SLICE_SCALE=4 runs four times as much"
	@echo "make clusters  test workers on real clusters and with Sentinels, failovers and resharding, 5 minutes at most"
	@echo "make chaos-clusters  run 320 random failovers and moved slots under load, 20 minutes"
	@echo "make conform  compare 1,500,000 random commands with real servers, 200,000 with the model, and odd requests"
	@echo "make suites   run tests of Redis and redis-py on Headwater and Redis 8.2.3 and compare, 10 minutes; downloads them"
	@echo "make crash    crash before every file operation, failing disks, flipped bits, 10,000 kills, an hour"
	@echo "make asan     test the hot modules with AddressSanitizer and traps for integer overflow, 10 minutes at most"
	@echo "make connections  compare 10,000 idle and 10,000 blocked connections with Redis 8.2"
	@echo "make check    check format, lint rules, types, import layers, tidiness"
	@echo "make chaos-spark  kill drivers, executors and stores 600 times, over two hours"
	@echo "make exact-values  read 1,000,000 random values in Spark's types and compare with exact parsing, 5 minutes"
	@echo "make chaos-worker  kill workers 2,000 times, servers 200 times, simulate 30,000 crashes, deploy 400 times, over 90 minutes"
	@echo "make bench    compare with Redis and Valkey in the same run, an hour; ARGS='--only memory' for a part"
	@echo "make bench-gate  compare the hot commands' processor time with Redis 8.2, half a minute; fails if too slow"
	@echo "make bench-compare REF=HEAD~3  compare with another commit: instructions (valgrind) and time, 10 minutes"
	@echo "make bench-docs  write docs/reference/performance.md from the newest results"
	@echo "make bench-scale  measure how long one command on a million entries blocks other clients"
	@echo "make bench-spark  compare rows and latency of the Spark source with its peers in the same run"
	@echo "make bench-storage  compare starts, replay, checkpoints and disk space with peers, half an hour"
	@echo "make bench-worker  compare messages per second of the worker with its peers and a raw loop, an hour"
	@echo "make peers    install Redis 7.0, Redis 8.2 and Valkey 9.1 into .peers/"
	@echo "make install  create .venv (downloads about 650 MB with Spark)"
	@echo "make build    compile the hot modules if there is a compiler; fails if one does not compile"
	@echo "make format   format with ruff, and apply its fixes"
	@echo "make docs     write the generated reference pages"
	@echo "make clean    remove all build products"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Headwater needs Python 3.11 or later; $(PYTHON) is `$(PYTHON) -V 2>&1`." \
	           "Choose another one: make install PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV): about 650 MB are downloaded, most of it Spark and a Java runtime."
	@# Plain Python here: make build compiles, and shows how far it is.
	@if command -v uv >/dev/null 2>&1; then \
	    test -x $(PY) || uv venv --quiet --seed --python $(PYTHON) $(VENV); \
	    HEADWATER_PURE=1 uv pip install --quiet --python $(PY) -c constraints.txt -e '.[$(EXTRAS)]'; \
	else \
	    test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	        { echo "$(PYTHON) cannot create a virtual environment." \
	               "On Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }; \
	    HEADWATER_PURE=1 $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'; \
	fi
	@touch $@

# Verified each time: CI_PEERS_REQUIRED permits less than a build without it.
build: build/stamp
	@$(PY) tools/built.py || { rm -f build/stamp; exit 1; }

build/stamp: $(VENV)/.installed $(SOURCES) setup.py
	@mkdir -p build
	@$(PY) setup.py --quiet build_ext --inplace 2>build/log || { cat build/log; exit 1; }
	@$(BIN)/headwater info --short
	@touch $@

peers: .peers/stamp

.peers/stamp: tools/peers.py
	@"$$(test -x $(PY) && echo $(PY) || echo $(PYTHON))" tools/peers.py .peers
	@touch $@

check: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory -j2 --output-sync=target types tidy

types:
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Collecting all tests once writes their bytecode, which all processes of `make test` would otherwise write at once.
tidy:
	$(PYTEST) -q tests/tidy
	@$(PYTEST) -q --collect-only >build/collected

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# `make check` runs tests/tidy.
quick: build peers
	$(PYTEST) $(THREE) -q -m "not slow and not slice and not spark and not clusters" --ignore tests/tidy $(ARGS)

test: build peers build/bench-installed build/spark-classes.jsa
	$(PYTEST) $(FIVE) -q -m "not slice and not clusters" --ignore tests/tidy $(ARGS)
	$(MAKE) --no-print-directory plain

# The same sources as plain Python, without the compiled extensions.
plain: build peers
	HEADWATER_PURE=1 $(PYTEST) $(THREE) -q -m "not slow and not slice and not spark" \
	    tests/unit tests/conformance tests/property

# The gates compare speed with Redis, so nothing runs next to them. That plain Python replies to numbers as the compiled
# package does is a test of `make test`.
GATES := tests/e2e/test_gates.py

slice: build peers build/spark-classes.jsa
	$(PYTEST) -q -m slice $(GATES)
	$(PYTEST) $(FIVE) -q -m slice --ignore $(GATES) $(ARGS)
	HEADWATER_PURE=1 $(PYTEST) $(THREE) -q -m slice --ignore tests/conformance/test_numbers.py tests/conformance tests/property

# Clusters of three shards with replicas, and Sentinels, of Redis and Valkey. One test at a time: these are
# about as many processes as a machine with two cores can run.
clusters: build peers
	$(PYTEST) -q -m clusters tests/clusters $(ARGS)

# Short form: ARGS='--rounds 5 --only valkey-9.1'.
chaos-clusters: build peers
	$(PY) -m tests.clusters.campaign $(ARGS)

# Long campaigns use new seeds and append to campaigns/NAME.jsonl, which is committed; `make docs` then
# writes docs/reference/reliability.md. Some parts: ARGS='--only streams,model'; short form: with
# --streams 10000; plain Python: HEADWATER_PURE=1.
conform: build peers
	$(PY) -m tests.conformance.campaign $(ARGS)

# Downloads into build/suites, so it is not part of .ci/run; writes docs/reference/suites.md. A part:
# ARGS='--only multi,redis-py/test_pipeline'; compare the last outcomes again: ARGS=--last.
suites: build peers
	$(PY) -m tests.suites $(ARGS)

# Short form: ARGS='--only journal --seeds 4'.
crash: build
	$(PY) -m tests.crash.campaign $(ARGS)

# Builds in build/asan. A part: ARGS='--only histories'; arguments of pytest: ARGS='-- -k scanner'.
asan: $(VENV)/.installed
	$(PY) -m tools.asan $(ARGS)

# Details are in artifacts/connections.json. Short form: ARGS='--connections 1000 --rounds 1'.
connections: build peers
	$(PY) -m benchmarks.connections --judge $(ARGS)

# Each trial is a line of campaigns/chaos-spark.jsonl; the next run continues with the next seed.
# Short form: ARGS='--trials 5 --kinds driver'.
chaos-spark: build peers build/spark-classes.jsa
	$(PY) -m tests.spark.campaign $(ARGS)

# Short form: ARGS='--values 20000 --seed 1'.
exact-values: build
	$(PY) -m tests.spark.exact_campaign $(ARGS)

# Short form: ARGS='--scale 0.01'; with workers of another commit: ARGS='--only upgrade --from v0.1'.
chaos-worker: build peers
	$(PY) -m tests.worker.chaos $(ARGS)

demo: build
	@$(BIN)/headwater demo $(ARGS)

# With it the tests' JVMs start in half the time.
build/spark-classes.jsa: $(VENV)/.installed tests/jvm.py
	@$(PY) -m tests.jvm

# The libraries that embedded stores are compared with; `make install` does not install them. In CI, where
# they are required, the tests that need them fail without them.
build/bench-installed: $(VENV)/.installed pyproject.toml constraints.txt
	@mkdir -p build
	@wanted=$$($(PY) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*project["optional-dependencies"]["bench"])'); \
	if command -v uv >/dev/null 2>&1; then \
	    uv pip install --quiet --python $(PY) -c constraints.txt $$wanted; \
	else \
	    $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt $$wanted; \
	fi && touch $@ || echo "burner-redis and fakeredis could not be installed: their rows will say so"

# A complete run writes benchmarks/results/DATE-COMMIT.json, a part of one artifacts/bench.json.
# A part: ARGS='--only throughput --rows XADD --rounds 3 --seconds 1'.
bench: build peers build/bench-installed
	$(PY) -m benchmarks $(ARGS)

bench-gate: build peers
	$(PY) -m benchmarks.gate $(ARGS)

# Fails if a hot command takes more than 1.02 times the user-space instructions of commit REF.
# A part: ARGS='--only instructions' or '--only time'. The worktree of REF and its build stay in
# build/compare for the next time.
bench-compare: build peers
	@test -n "$(REF)" || { echo "Which commit? make bench-compare REF=v0.1 (or HEAD~3, or a hash)"; exit 1; }
	$(PY) -m benchmarks.compare $(REF) $(ARGS)

# A complete run writes benchmarks/results/worker/DATE-COMMIT.json; the peers are installed below
# build/bench-worker. A part: ARGS='--only throughput --rows plain --rounds 3'.
bench-worker: build peers
	$(PY) -m benchmarks.worker $(ARGS)

bench-docs: build
	$(PY) -m benchmarks.page

# ARGS are those of the first part; the second part compares stalls with Redis, three minutes.
bench-scale: build peers
	$(PY) -m benchmarks.scale $(ARGS)
	$(PY) -m benchmarks.stalls

# Writes artifacts/bench-spark.json. A part: ARGS='--only throughput --rows 100000'.
bench-spark: build peers
	$(PY) -m benchmarks.spark $(ARGS)

# A complete run writes benchmarks/results/storage/DATE-COMMIT.json; exits with 1 if a required value is missed.
# A part: ARGS='--rounds 3 --only replay'; small: ARGS='--entries 20000 --rounds 1'; 100M entries, an hour and
# 40 GB of disk: ARGS='--only huge --rounds 1'; an hour of trimming: ARGS='--only trimmed --minutes 60'.
bench-storage: build peers
	$(PY) -m benchmarks.storage $(ARGS)

# A hundred million entries, 20 minutes and 15 GB of disk: memory and disk over time, and a plot for the docs. Small:
# ARGS='--entries 3000000 --output life.json'.
life: build
	$(PY) -m benchmarks.storage.life $(ARGS)

docs: build
	$(PY) -m tools.reference
	$(PY) -m tools.api_reference
	$(PY) -m tools.reliability
	$(PY) -m tools.boards

clean:
	rm -rf build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find src -name '*.so' -delete -o -name '*.c' -delete -o -name '*.html' -delete
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
