# Every target does its own set-up: the first run makes .venv, later runs find the stamp.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# One more than two cores: tests with Spark wait much of the time. A fourth process gained nothing.
WORKERS ?= 3

.PHONY: help demo test campaigns soak coverage oldest newest compat docs bench figures guard lint kernels dist wheel setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    join flights and tweet counts through Spark, and a stream that drifts, fails and resumes"
	@echo "make test    lint, types and the test suite"
	@echo "make campaigns  the tests that search for faults, of which make test runs a few cases; half an hour"
	@echo "make soak    the long forms of tests that draw: all planted defects, faults, damage, examples; hours"
	@echo "make coverage  the share of the code that tests without Spark run; fails if it falls"
	@echo "make oldest  a few tests on the first Python and with the lower bounds of all dependencies"
	@echo "make newest  the same on the last Python and with the newest of everything"
	@echo "make compat  the same tests with Spark, on each older minor version of it"
	@echo "make docs    the documentation as a site in build/docs"
	@echo "make bench   measure the benchmarks and write bench/report; about ten minutes"
	@echo "make figures measure each figure once in its smallest size, to see that it works"
	@echo "make guard   measure a few ratios and compare them with that report"
	@echo "make lint    ruff and mypy only"
	@echo "make dist    the sdist and the wheel for PyPI in dist/, built and checked"
	@echo "make wheel   a wheel with compiled kernels in dist/"

setup: $(STAMP)

# The stamp is newer than pyproject.toml exactly when the required packages are installed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "eddy needs Python 3.11 or newer and '$(PYTHON)' is not it: install one, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV) || { echo "python's venv module is missing: on Debian and Ubuntu install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark,java,bench]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/eddy demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Compile the kernels once, so that the test processes do not each compile them.
kernels: $(STAMP)
	$(BIN)/python -c 'import eddy; eddy.warmup()'

# A JVM of a test takes Spark's classes from here. Without Java there is none, and tests say so.
$(VENV)/spark-classes.jsa: $(STAMP)
	-$(BIN)/python -m tests.spark.class_archive

# loadgroup keeps tests that are marked as a group in one process: tests with Spark share a JVM, those of streams another,
# and those of faults, which start and kill drivers of their own, may run beside them.
# Without bytecode on the disk, each process of the tests would compile all tests and packages anew; an empty variable
# is as good as none.
test campaigns soak: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 kernels lint $(VENV)/spark-classes.jsa
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --form short

# The cases of tests that search for faults, planted defects among them, of which `make test` runs a few: half an hour.
# With SHARE=K/N every N-th of them, from the K-th on.
SHARE ?= 0/1
campaigns: kernels $(VENV)/spark-classes.jsa
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --share $(SHARE) --form long

# A test may take hours here, so none is taken to hang.
FAULTS ?= 500
soak: export EDDY_FAULTS := $(FAULTS)
soak: export EDDY_DAMAGE := all
soak: export HYPOTHESIS_PROFILE := long
soak: kernels $(VENV)/spark-classes.jsa
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -o faulthandler_timeout=0 \
	  tests/test_mutations.py tests/eddy tests/spark/streaming/test_faults.py tests/spark/streaming/test_lost_files.py

# What is measured, and the least share, stand in pyproject.toml. Tracing makes tests slower, so `make test` does not
# trace, and few examples and no slow tests run here. Tests that interrupt replace the tracer by their own.
coverage: export HYPOTHESIS_PROFILE := few
coverage: kernels
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" -k "not interrupt" --cov tests/stairs tests/jisc tests/eddy

# Each in an environment of its own that is installed afresh.
oldest newest compat: $(STAMP)
	$(BIN)/python -m release.versions $@

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $(DOCS_STAMP)

# Warnings are errors. Every page is read again, so that a page which has not changed cannot hide one.
docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning docs build/docs
	@echo "build/docs/index.html"

bench: $(STAMP)
	$(BIN)/python -m eddy bench

# Fails if a figure cannot be measured; its numbers mean nothing. About a quarter of an hour, most of it starts of Spark.
figures: $(STAMP)
	$(BIN)/python -m eddy bench --smallest

# Prints changes and does not fail: on a busy machine the ratios of a few rounds prove nothing.
guard: $(STAMP)
	$(BIN)/python -m eddy bench guard --again --json build/guard.json
	$(BIN)/python -m eddy bench --compare bench/report/figures.json build/guard.json

# A wheel for this Python in dist/, with its kernels compiled.
wheel: $(STAMP)
	$(BIN)/python -m release.wheel

# What PyPI gets. Checks it as a user gets it; downloads nothing.
dist: $(STAMP)
	$(BIN)/python -m release.dist

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
