# mqcore's commands. `make help` lists them; tools/build.py does the work behind most.

# The first python on PATH that is new enough; with none, python3, so that the check can say so.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; \
	done; echo python3)
VENV ?= .venv
BUILD = $(PYTHON) tools/check.py && $(PYTHON) tools/build.py --venv $(VENV)
# cython-lint calls pycodestyle by name, and subprocesses of tests call `mq`
RUN = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python
TESTS ?=
RUNS ?= 10
PERF ?=
PIPELINE ?=

.DEFAULT_GOAL := help
.PHONY: help build test steady test-all test-foreign demo pipeline tsan asan stress lint perf perf-quick sdist clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build:  ## make .venv, build the extensions in place, install mqcore editable
	@$(BUILD)

test:  ## build, then run every test (TESTS="tests/unit -k ypipe" for some)
	@$(BUILD) --extra test --extra spark --extra pipeline
	@sh tools/peers.sh
	@$(RUN) tools/suite.py $(TESTS)

steady:  ## the tests ten times while every core is busy, and what was unsteady (RUNS=3 TESTS=...)
	@$(BUILD) --extra test --extra spark --extra pipeline
	@sh tools/peers.sh
	@$(RUN) tools/steady.py --runs $(RUNS) $(TESTS)

test-all:  ## the same with every Python 3.11+ of this machine, an environment each
	@$(PYTHON) tools/check.py
	@failed=; for python in $$($(PYTHON) tools/pythons.py); do \
		version=$$($$python tools/pythons.py --version); \
		echo "== Python $$version ($$python)"; \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version \
			|| failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed with Python$$failed"; exit 1; }

demo:  ## build, then run the demonstration on real input
	@$(BUILD) --extra demo
	@$(RUN) examples/demo.py

pipeline:  ## build, then a year of flights through producers, collectors, journals and Spark
	@$(BUILD) --extra spark --extra pipeline
	@sh tools/peers.sh openjdk-17-jre-headless
	@$(RUN) -m mqcore.spark.pipeline $(PIPELINE)

tsan:  ## queues and the whole data plane under ThreadSanitizer, clean and with planted races
	@$(BUILD) --extra test
	@$(RUN) tools/tsan.py
	@$(RUN) tools/turmoil.py thread

asan:  ## the stress of the data plane and the tests under AddressSanitizer
	@$(BUILD) --extra test
	@$(RUN) tools/turmoil.py address

stress:  ## the stress of the data plane with widened gaps, and no time-out that could rescue it
	@$(BUILD) --extra test
	@$(RUN) tools/turmoil.py widen --seconds 5

test-foreign:  ## our tests of the aliases over pyzmq and pynng, and those libraries' own tests over both
	@$(BUILD) --extra test
	@$(RUN) tools/suite.py -m foreign tests/zmq tests/nng
	@$(RUN) tools/foreign_tests.py

lint:  ## ruff, cython-lint, mypy
	@$(BUILD) --extra test
	@$(RUN) tools/lint.py

perf-quick:  ## benchmarks side by side, under five minutes
	@$(BUILD) --extra perf
	@$(RUN) perf/run.py --quick $(PERF)

perf:  ## benchmarks side by side, under forty minutes, into perf/results/
	@$(BUILD) --extra perf
	@$(RUN) perf/run.py $(PERF)

sdist:  ## source distribution and wheel into dist/
	@$(BUILD) --extra test
	@$(RUN) -m build --no-isolation

clean:  ## remove what was built, keep the environments
	rm -rf build dist mqcore.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find mqcore transports protocols tests tools examples perf \( -name '*.so' -o -name '*.pyc' \) -delete 2>/dev/null || true
	find . -name __pycache__ -not -path './.venv*' -type d -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## and the environments
	rm -rf .venv .venv-*
