# Every target makes what it needs first: nothing but Python 3.11 and make is assumed.
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
UV := uv==0.13.7

# An environment is named ready by a stamp that carries the checksum of its lock, so it is made
# again exactly when the lock changes.
checksum = $(shell cat requirements/build.txt requirements/$(1).txt | cksum | cut -d ' ' -f 1)
LOCKED := .venv/.locked-$(call checksum,dev)
LOCKED_35 := .venv-spark35/.locked-$(call checksum,spark35)
LOCKED_JUDGE := .venv-judge/.locked-$(call checksum,judge)

# PySpark 3.5 runs on neither newer Pythons nor newer Javas than these.
PYTHON_35_NEWEST_MINOR := 12
JAVA_35_NEWEST := 21

CONFORMANCE = scripts/conformance.sh $(MAKE) $(PYTHON_35_NEWEST_MINOR) $(JAVA_35_NEWEST)

INSTALL_PROJECT = bin/python -m pip install --quiet --disable-pip-version-check \
	--no-deps --no-build-isolation --editable .

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: .venv/.ready ## Make .venv with the locked dependencies and pyhudi

.PHONY: demo
demo: .venv/.ready ## Read a table that Apache Hudi wrote, with and without Spark, and write one
	@scripts/with_spark.sh .venv 99 python examples/demo.py

.PHONY: test
test: ## Set up, check and run every test
	@scripts/suite.sh total $(MAKE) --no-print-directory \
		setup java check test-unit test-spark test-spark35 test-side-by-side

.PHONY: check
check: .venv/.ready ## Run ruff and mypy
	@scripts/suite.sh check sh -c \
		'$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy'

.PHONY: test-unit
test-unit: .venv/.ready ## Run the tests that need no Java, and the doctests
	@scripts/suite.sh unit scripts/unit.sh $(BIN)/pytest $(ARGS)

.PHONY: test-simulation
test-simulation: .venv/.ready ## Attack the commit protocol: schedules, crashes, planted bugs, processes
	@scripts/suite.sh simulation scripts/simulation.sh $(BIN)/pytest $(ARGS)

.PHONY: test-spark
test-spark: .venv/.ready ## Run the Spark tests on Spark 4
	@scripts/suite.sh spark scripts/with_spark.sh .venv 99 pytest -q tests/spark $(ARGS)

.PHONY: test-spark35
ifeq ($(shell scripts/find_python.sh $(PYTHON_35_NEWEST_MINOR) 2>/dev/null),)
test-spark35: ## Run the Spark tests that also hold on Spark 3.5
	@echo "suite spark35: skipped, for PySpark 3.5 needs Python 3.11 or 3.12"
else
test-spark35: .venv-spark35/.ready
	@scripts/suite.sh spark35 scripts/with_spark.sh .venv-spark35 $(JAVA_35_NEWEST) \
		pytest -q -m spark35 tests/spark $(ARGS)
endif

.PHONY: test-conformance
test-conformance: .venv/.ready ## Have Apache Hudi and hudi-rs read what pyhudi wrote, and write too
	@scripts/suite.sh conformance $(CONFORMANCE) -m "judge and not long" $(ARGS)

.PHONY: test-side-by-side
test-side-by-side: .venv/.ready ## Run the simulation and conformance at once
	@scripts/side_by_side.sh "$(MAKE)" test-simulation test-conformance

.PHONY: conformance
conformance: .venv/.ready ## The same, with every table and every kind of read
	@scripts/suite.sh conformance $(CONFORMANCE) -m judge $(ARGS)

.PHONY: soak
soak: .venv/.ready ## The long runs: 200,000 schedules, all double crashes, bug searches, processes
	@scripts/suite.sh soak scripts/soak.sh $(BIN)

.PHONY: model
model: .venv/.ready ## Check the model of the commit protocol with TLC; ARGS=--all takes every run
	@scripts/suite.sh model scripts/with_spark.sh .venv 99 python scripts/check_model.py $(ARGS)

.PHONY: walk
walk: .venv/.ready ## Count what a write and a read pass through; ARGS=--calls names each call upwards
	@$(BIN)/python scripts/walk.py $(ARGS)

.PHONY: java
java: ## Find a Java for Spark, or install one
	@home=$$(scripts/find_java.sh) && echo "Java: $$home"

# Four benchmarks meet Hudi itself; without ARGS they are among those that run.
.PHONY: bench
bench: .venv/.ready $(if $(ARGS),$(if $(filter buckets writes many_writers services,$(ARGS)),.venv-judge/.ready),.venv-judge/.ready)
bench: ## Run the benchmarks; ARGS="writes --rows 200000" takes one of them, and smaller
	@scripts/with_spark.sh .venv 99 python benchmarks/run.py $(ARGS)

.PHONY: lock
lock: ## Lock what pyproject.toml and requirements/*.in ask for; ARGS=--upgrade takes the newest
	@test -x .venv-lock/bin/uv || { \
		$$(scripts/find_python.sh) -m venv --clear .venv-lock && \
		.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check $(UV); }
	@scripts/lock.sh .venv-lock/bin/uv $(ARGS)

.PHONY: clean
clean: ## Remove everything the other targets made
	rm -rf .venv .venv-spark35 .venv-judge .venv-lock build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse artifacts
	find src tests scripts -name __pycache__ -prune -exec rm -rf {} +

$(LOCKED):
	@scripts/make_venv.sh .venv requirements/dev.txt "$$(scripts/find_python.sh)"
	@touch $@

$(LOCKED_35):
	@scripts/make_venv.sh .venv-spark35 requirements/spark35.txt \
		"$$(scripts/find_python.sh $(PYTHON_35_NEWEST_MINOR))"
	@touch $@

$(LOCKED_JUDGE):
	@scripts/make_venv.sh .venv-judge requirements/judge.txt \
		"$$(scripts/find_python.sh $(PYTHON_35_NEWEST_MINOR))"
	@touch $@

.venv/.ready: $(LOCKED) pyproject.toml
	@.venv/$(INSTALL_PROJECT)
	@touch $@

.venv-spark35/.ready: $(LOCKED_35) pyproject.toml
	@.venv-spark35/$(INSTALL_PROJECT)
	@touch $@

.venv-judge/.ready: $(LOCKED_JUDGE)
	@touch $@
