# mqcore's commands. `make help` lists them; tools/build.py does the work behind most.

# The first python on PATH that is new enough; with none, python3, so that the check can say so.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; \
	done; echo python3)
VENV ?= .venv
BUILD = $(PYTHON) tools/check.py && $(PYTHON) tools/build.py --venv $(VENV)
# with the extensions and the packages that only tests use
BUILD_TESTS = $(BUILD) --testing --group test
# cython-lint calls pycodestyle by name, and subprocesses of tests call `mq`
RUN = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python
TESTS ?=
RUNS ?= 10
PERF ?=
PIPELINE ?=

.DEFAULT_GOAL := help
.PHONY: help build test test-full test-newest newest steady late test-all test-free-threaded \
	test-foreign test-brokers test-multicast demo pipeline tsan asan seeds stress docs lint lock perf perf-quick perf-brokers sdist \
	wheel test-wheel clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

build:  ## make .venv, build the extensions in place, install mqcore editable
	@$(BUILD) --extra cli --extra ws

test:  ## build, then run the tests, eight minutes on two cores (TESTS="tests/unit -k ypipe" for some)
	@$(BUILD_TESTS) --extra spark --group pipeline
	@sh tools/peers.sh
	@$(RUN) tools/suite.py $(TESTS)

test-full:  ## those that take long too: Spark's clusters, wheels, plug-ins from nothing, benchmarks
	@$(BUILD_TESTS) --extra spark --group pipeline
	@FULL=1 sh tools/peers.sh
	@$(RUN) tools/suite.py -m "slow or not slow" $(TESTS)
	@$(if $(TESTS),:,$(MAKE) --no-print-directory test-newest)

test-newest:  ## the tests of clusters with the newest Python of this machine
	@python=$$($(PYTHON) tools/pythons.py --newest); version=$$($$python tools/pythons.py --version); \
	if [ "$$version" = "$$($(PYTHON) tools/pythons.py --version)" ]; then \
		echo "Python $$version is the newest of this machine: the tests above had it"; exit; fi; \
	echo "== Python $$version ($$python)"; \
	$(MAKE) --no-print-directory newest PYTHON=$$python VENV=.venv-$$version

newest:
	@$(BUILD_TESTS)
	@$(RUN) tools/suite.py $(or $(TESTS),tests/system/cluster)

steady:  ## the tests ten times while every core is busy, and what was unsteady (RUNS=3 TESTS=...)
	@$(BUILD_TESTS) --extra spark --group pipeline
	@sh tools/peers.sh
	@$(RUN) tools/steady.py --runs $(RUNS) $(TESTS)

late:  ## the tests once while threads wake late now and then, and what was unsteady (TESTS=...)
	@$(BUILD_TESTS) --extra spark --group pipeline
	@sh tools/peers.sh
	@$(RUN) tools/steady.py --late --runs 1 $(TESTS)

test-all:  ## the same with every Python 3.11+ of this machine, an environment each
	@$(PYTHON) tools/check.py
	@failed=; for python in $$($(PYTHON) tools/pythons.py); do \
		version=$$($$python tools/pythons.py --version); \
		echo "== Python $$version ($$python)"; \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version \
			|| failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed with Python$$failed"; exit 1; }

test-free-threaded:  ## the tests of all that threads share, on a Python without the GIL, which it builds once
	@$(PYTHON) tools/check.py
	@$(PYTHON) tools/free_threaded.py $(TESTS)

demo:  ## build, then run the demonstration on real input
	@$(BUILD) --group demo
	@$(RUN) examples/demo.py

pipeline:  ## build, then a year of flights through producers, collectors, journals and Spark
	@$(BUILD) --extra spark --group pipeline
	@sh tools/peers.sh openjdk-17-jre-headless
	@$(RUN) -m examples.pipeline $(PIPELINE)

tsan:  ## queues and the whole data plane under ThreadSanitizer, clean and with planted races
	@$(BUILD_TESTS)
	@$(RUN) tools/tsan.py
	@$(RUN) tools/turmoil.py thread

asan:  ## the stress of the data plane and the tests under AddressSanitizer
	@$(BUILD_TESTS)
	@$(RUN) tools/turmoil.py address

seeds:  ## the simulated network with 1,000 seeds, each of them twice
	@$(BUILD_TESTS)
	@MQCORE_ROUNDS=1000 $(RUN) -m pytest -q --timeout 3600 -o faulthandler_timeout=3600 tests/unit/testing/test_network.py -k equal_seeds

stress:  ## the stress of the data plane with widened gaps, and no time-out that could rescue it
	@$(BUILD_TESTS)
	@$(RUN) tools/turmoil.py widen --seconds 5

test-foreign:  ## our tests of the aliases over pyzmq and pynng, and those libraries' own over both
	@$(BUILD_TESTS)
	@$(RUN) tools/suite.py -m foreign tests/peers
	@$(RUN) tools/foreign_tests.py

test-multicast:  ## multicast over libpgm, with libzmq as peer and lost packets; installs both, takes root
	@$(BUILD_TESTS)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" sh tools/multicast.sh "$(CURDIR)/$(VENV)/bin/python" $(TESTS)

test-brokers:  ## bridges over real brokers that are killed; downloads them into build/brokers
	@$(BUILD_TESTS) --group brokers
	@MQCORE_BROKERS=$$(sh tools/brokers.sh) && export MQCORE_BROKERS && \
		timeout 600 env $(RUN) -m pytest -m brokers tests/brokers

docs:  ## the documentation site into build/site; a broken link or a warning fails
	@$(BUILD) --group docs
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --clean
	@echo "build/site/index.html"

lint:  ## ruff, cython-lint, mypy
	@$(BUILD_TESTS)
	@$(RUN) tools/lint.py

perf-quick:  ## benchmarks side by side, under five minutes
	@$(BUILD) --testing --group perf
	@$(RUN) perf/run.py --quick $(PERF)

perf:  ## benchmarks side by side, under forty minutes, into perf/results/
	@$(BUILD) --testing --group perf
	@$(RUN) perf/run.py $(PERF)

perf-brokers:  ## mqcore beside other libraries and brokers, two hours at most (PERF=--medium: ten minutes)
	@$(BUILD) --testing --group perf-brokers
	@MQCORE_BROKERS=$$(sh tools/brokers.sh perf) && export MQCORE_BROKERS && \
		$(RUN) perf/brokers.py $(PERF)
	@$(RUN) tools/readme.py

lock:  ## pin anew the packages that the environments install, in tools/lock.txt
	@$(PYTHON) tools/check.py && $(PYTHON) tools/lock.py

sdist:  ## source distribution into dist/
	@$(BUILD) --group wheel
	@$(RUN) -m build --no-isolation --sdist

wheel:  ## manylinux wheels into dist/, for every Python 3.11+ of this machine
	@$(BUILD) --group wheel
	@$(RUN) tools/wheel.py

test-wheel: wheel  ## the wheels in bare environments: no compiler, no libsodium of the system
	@$(RUN) tools/wheel.py --test

clean:  ## remove what was built, keep the environments
	rm -rf build dist mqcore.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find mqcore transports protocols tests tools examples perf \( -name '*.so' -o -name '*.pyc' \) -delete 2>/dev/null || true
	find . -name __pycache__ -not -path './.venv*' -type d -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## and the environments
	rm -rf .venv .venv-*
