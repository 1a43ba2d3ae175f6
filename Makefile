# `make` lists what there is. Everything a test needs is installed by `make test` itself.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
# Outside the clone, so that a fresh clone on a warm machine does not build the dependencies again.
export CARGO_TARGET_DIR ?= $(CACHE)/exeat-target
# Appended: a cargo that is already on the path stays the one in use.
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

# Environments are named after what is in them: a change of the pins makes a new one, nothing is upgraded in place.
environment = $(CACHE)/exeat-interop-$(shell sha256sum < $(1) | cut -c1-16)
export EXEAT_INTEROP_PYTHON := $(call environment,interop/requirements.txt)/bin/python
export EXEAT_A2A_03_PYTHON := $(call environment,interop/requirements-a2a-03.txt)/bin/python
export EXEAT_LANGGRAPH_PYTHON := $(call environment,interop/requirements-langgraph.txt)/bin/python

.NOTPARALLEL:
bin-dir: ## print where `make build` puts the command
	@echo "$(CARGO_TARGET_DIR)/debug"

SIM_SEEDS ?= 20000
FUZZ_SECONDS ?= 300
FUZZ ?= config workflow expression policy schema doors card results push tokens payload ledger

.PHONY: bin-dir help demo build test simulate fuzz bench lint setup check-tree check-examples deny

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: build ## build, then run the guided demo: two workers and a foreign agent, on this machine only
	@"$(CARGO_TARGET_DIR)/debug/exeat" demo

build: ## build the command `exeat` (debug)
	@scripts/setup-test.sh build
	cargo build --locked -p exeat

test: setup lint check-examples simulate ## install what is missing, then lint and run every test
	@if cargo nextest --version >/dev/null 2>&1; then \
	  echo "cargo nextest run --workspace --locked"; cargo nextest run --workspace --locked; \
	else \
	  echo "cargo test --workspace --lib --bins --tests --locked"; cargo test --workspace --lib --bins --tests --locked; \
	fi
	cargo test --doc --workspace --locked

simulate: ## run $(SIM_SEEDS) whole histories under every fault, then put known faults back and see each noticed
	EXEAT_SIM_SEEDS=$(SIM_SEEDS) cargo test --profile sim --locked -p exeat-core --test it -- --nocapture sim_
	cargo test --profile sim --locked -p exeat-core --features faults --test faults -- --nocapture

fuzz: ## try each parser of outside bytes for $(FUZZ_SECONDS) s (FUZZ="card push": those); needs cargo-fuzz
	@# The fuzzer's instrumentation is unstable in the compiler that is there: this lets it be used, for this alone.
	RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/fuzz" cargo fuzz build --fuzz-dir fuzz --features libfuzzer any
	@for target in $(FUZZ); do \
	  echo "fuzzing $$target"; mkdir -p "$(CARGO_TARGET_DIR)/fuzz/found/$$target"; \
	  EXEAT_FUZZ=$$target "$(CARGO_TARGET_DIR)"/fuzz/*/release/any "$(CARGO_TARGET_DIR)/fuzz/found/$$target" fuzz/corpus/$$target \
	    -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix="$(CARGO_TARGET_DIR)/fuzz/found/$$target-"; \
	done

bench: ## measure speed and size (some minutes, on a machine with nothing else to do); see docs/performance.md
	cargo bench --locked -p exeat --bench cycles

lint: check-tree ## formatting, clippy, file lengths; licences and bans if cargo-deny is there
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; fi

setup: ## install what the tests need: compiler, runner, Python peers
	@scripts/setup-test.sh

check-tree: ## file lengths; no paths of a machine, no registry hosts
	@scripts/check-tree.sh

check-examples: ## try the examples against their real SDKs
	"$(EXEAT_INTEROP_PYTHON)" -m unittest interop/tests/test_agents.py interop/tests/test_workers.py
	"$(EXEAT_LANGGRAPH_PYTHON)" -m unittest interop/tests/test_langgraph.py

deny: ## licences, bans and sources of the dependencies (needs cargo-deny)
	cargo deny --locked --offline check bans licenses sources
