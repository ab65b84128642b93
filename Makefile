# make help   lists what there is to do.

# Where `make test-matrix` keeps the servers that it fetches.
SERVERS ?= $(TARGET)/servers
# The folder that cargo builds into; follows CARGO_TARGET_DIR and cargo's own settings.
TARGET = $(shell cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

# The server that `make run` and `make test` start: a name in PATH, or a path.
export DLOCK_SERVER ?= redis-server

# The module has no users that build it: its documentation shows what is private, and may link to it.
DOC_LINTS = -D warnings -A rustdoc::private-intra-doc-links

# Tests send signals, and a shell has what it starts in the background ignore some of them.
DEFAULT_SIGNALS = env --default-signal=HUP,INT,QUIT

.DEFAULT_GOAL := help
.PHONY: help run cluster sentinel down test test-matrix model fuzz bench bench-check torture book top-picture install check install-deps

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: install-deps ## Build the module and start a server with it on port 7379 (another one: PORT=7380)
	@deploy/run-server "$(PORT)"

cluster: install-deps ## Start a cluster of six servers, ports 7401 to 7406 (begin elsewhere: PORT=7501)
	cargo build --release --locked -p redis-dlock -p dlock-cli
	@deploy/run-cluster "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/cluster" "$(PORT)"

sentinel: install-deps ## Start three servers and three Sentinels, ports 7411 to 7416, and show a failover (PORT=7511)
	cargo build --release --locked -p redis-dlock -p dlock-cli
	@deploy/run-sentinel "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/sentinel" "$(PORT)"

down: ## End the servers that a killed `make cluster` or `make sentinel` left behind
	@deploy/end-deployment "$(TARGET)/cluster" "$(TARGET)/sentinel"

test: install-deps ## Run all tests against the installed server (another one: DLOCK_SERVER=valkey-server)
	$(DEFAULT_SIGNALS) cargo test --workspace --all-features --locked --no-fail-fast

test-matrix: install-deps ## Run the tests against every supported server, fetched from Debian (kept in SERVERS)
	tests/matrix/run "$(SERVERS)"

model: install-deps ## Search failovers, starts and graces in larger worlds than `make test` does
	cargo test --release --locked -p dlock-model --test failover -- --include-ignored --nocapture

fuzz: install-deps ## Run each fuzz target for a while (default: SECONDS=20); needs nightly Rust and cargo-fuzz
	tests/model/fuzz/run "$(SECONDS)"

bench: install-deps ## Measure locks beside what they replace (ARGS="--quick", ARGS="--only cpu", ARGS="--out docs/bench")
	cargo build --release --locked
	cargo run --release --locked -p dlock-bench -- $(ARGS)

bench-check: install-deps ## Count instructions, fail when they are 5 % more than the baseline (new one: ARGS=--update)
	cargo build --release --locked -p redis-dlock -p dlock-bench-check
	$(TARGET)/release/dlock-bench-check $(ARGS)

torture: install-deps ## Attack what is promised with real faults, for about 20 minutes (options: ARGS="...")
	cargo build --release --locked
	DLOCK_MODULE=$(TARGET)/release/libdlock.so cargo run --locked -p dlock-torture -- $(ARGS)
	$(MAKE) fuzz

book: ## Build the book of docs/ (installs mdBook below cargo's target folder if it is missing)
	tests/docs/build-book "$(TARGET)"

top-picture: install-deps ## Make the picture of `dlock top` in the README anew, from a real one on a busy server
	cargo build --locked -p redis-dlock -p dlock-cli
	cargo run --locked -p dlock-cli --example top-picture -- docs/pictures/top.svg

install: ## Install tool, module, completions and manual (PREFIX=/usr/local, MODULEDIR, DESTDIR)
	@deploy/install-deps build
	cargo build --release --locked -p redis-dlock -p dlock-cli
	PREFIX="$(PREFIX)" MODULEDIR="$(MODULEDIR)" DESTDIR="$(DESTDIR)" deploy/install "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so"

check: install-deps ## Check format, lints and documentation, and licences if cargo-deny is there
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cargo clippy -p redis-dlock-client --locked -- -D warnings
	cargo clippy -p redis-dlock-client --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="$(DOC_LINTS)" cargo doc --workspace --all-features --no-deps --document-private-items --locked
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --workspace --locked check bans licenses sources; \
	else echo "check: cargo-deny is not installed, licences and sources are not checked"; fi

install-deps:
	@deploy/install-deps
