# `make demo` does everything from nothing to a proven failover; `make test` passes every test.
SHELL := /bin/sh
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: setup setup-tests demo test test-all lint wheels clean lock docs changelog site

setup:
	@chaos/setup.sh

demo: setup
	@$(BIN)/brokerdrill demo

setup-tests:
	@chaos/setup.sh --tests

lint: setup-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/ansible-lint --offline

# Tests that need no hosts run three files at a time, one more than CI has cores: most of them wait for a process of
# their own. Files of few and long tests begin in their turn, not last as they would by themselves, with nothing beside
# them.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

# From parts to the whole: what needs no hosts first, then molecule makes and removes its own, then the demo makes them
# anew and the drills go on with those.
test: lint
	$(BIN)/python -m pytest $(PARALLEL) -m "not long" --ignore=tests/drill --ignore=tests/e2e
	.ci/molecule artemis_quorum
	$(BIN)/python -m pytest -m "not long" tests/e2e tests/drill

# Everything, in steps: what has passed with the checkout as it is now is not done again.
MOLECULE := $(filter-out shared,$(notdir $(wildcard molecule/*)))
test-all: lint
	.ci/step pytest env BROKERDRILL_ORACLE_LEDGERS=10000 $(BIN)/python -m pytest $(PARALLEL) --ignore=tests/drill --ignore=tests/e2e
	for topology in $(MOLECULE); do .ci/step molecule-$$topology .ci/molecule $$topology || exit 1; done
	# One topology on another Debian, one on hosts that have no more than the roles ask for.
	.ci/step molecule-debian13 env BENCH_IMAGE=debian13 .ci/molecule artemis_shared_store
	.ci/step molecule-bare env BENCH_IMAGE=bare .ci/molecule artemis_quorum
	.ci/step drills $(BIN)/python -m pytest tests/e2e tests/drill

# The session router's wheels for each Python that it supports, on any Linux of this machine's kind, and one without compiled parts for all
# others. Each Python must be there.
WHEELS := router/dist
wheels: setup
	$(BIN)/python -m pip install -q uv && $(BIN)/uv pip install -q --python .venv --group wheels
	rm -rf $(WHEELS) router/build
	for python in 3.11 3.12 3.13; do AMQP_SESSION_ROUTER_BUILD=compiled $(BIN)/uv build -q --no-python-downloads --wheel --python $$python --out-dir $(WHEELS)/built router || exit 1; done
	$(BIN)/auditwheel repair --wheel-dir $(WHEELS) $(WHEELS)/built/*.whl
	AMQP_SESSION_ROUTER_BUILD=pure $(BIN)/uv build -q --no-python-downloads --wheel --out-dir $(WHEELS) router
	rm -r $(WHEELS)/built && ls $(WHEELS)

# Takes down every bench host of this checkout; the cache and the engine stay.
clean: setup
	@$(BIN)/brokerdrill bench down --all

# What is made from other files: the roles' READMEs, the tables in docs/.
docs: setup-tests
	$(BIN)/python docs/role_readmes.py
	$(BIN)/python docs/filters.py
	$(BIN)/brokerdrill reference
	$(BIN)/brokerdrill schema >chaos/scenarios/drill.schema.json
	$(BIN)/python -m amqp_session_router.reference router/docs
	$(BIN)/brokerdrill scenarios --markdown >docs/drills.md
	$(BIN)/python docs/statements.py
	$(BIN)/python docs/measured.py
	$(BIN)/python docs/clients.py
	$(BIN)/python docs/own_configuration.py

# The fragments of changelogs/fragments become entries of the version in galaxy.yml, and CHANGELOG.md is made anew.
changelog: setup-tests
	$(BIN)/antsibull-changelog lint
	$(BIN)/antsibull-changelog release --update-existing

# These pages with a search, in site/; what they are built with is in an environment of its own.
site: setup
	$(BIN)/python -m pip install -q uv && $(BIN)/uv venv -q --clear .cache/site && $(BIN)/uv pip install -q --python .cache/site --group site
	.cache/site/bin/python docs/build_site.py

# The lock names no index, so that it serves behind any mirror.
lock: setup
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile pyproject.toml router/pyproject.toml --all-extras --group dev --group router/pyproject.toml:dev --python-version 3.11 --universal --generate-hashes \
	  --no-emit-index-url --no-header -q -o requirements.lock
