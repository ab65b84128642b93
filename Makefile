# `make help` lists the targets.

# The server that `make run` and `make test` start: a name in PATH, or a path.
export DLOCK_SERVER ?= redis-server

# Cargo's target directory, wherever it is configured to be.
TARGET := $(shell cargo metadata --format-version 1 --no-deps 2>/dev/null | sed 's/.*"target_directory":"\([^"]*\)".*/\1/p;d')
# Programs that targets install with cargo or go go here.
export PATH := $(TARGET)/tools/bin:$(PATH)
# Where `make test-matrix` keeps the servers it downloads.
SERVERS ?= $(TARGET)/servers
# The oldest supported Rust.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
CLIENT_MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' client/Cargo.toml)

# Nobody links against the module: its documentation includes private items and may link to them.
DOC_LINTS = -D warnings -A rustdoc::private-intra-doc-links

.DEFAULT_GOAL := help
.PHONY: help cluster-ports sentinel-ports quorum-ports run cluster sentinel quorum down test test-clients test-matrix model spec mutants fuzz torture miri asan bench bench-peers bench-check \
	check msrv package deny book pictures \
	install dist deb wheel test-deb test-wheel test-dist install-deps release sbom-tool

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Run it.

run: ## Build the module and start a server with it on port 7379 (or PORT=7380)
	@deploy/run-server "$(PORT)"

# The ports first: the build takes minutes.
cluster: cluster-ports install-deps release ## Start a cluster of six servers on ports 7401 to 7406 (or from PORT=7501)
	@deploy/run-cluster "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/cluster" "$(PORT)"

sentinel: sentinel-ports install-deps release ## Start three servers and three Sentinels on ports 7411 to 7416 and show a failover (or from PORT=7511)
	@deploy/run-sentinel "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/sentinel" "$(PORT)"

quorum: quorum-ports install-deps release ## Start five independent servers on ports 7421 to 7425 and show a lock on a majority (or from PORT=7521)
	@deploy/run-quorum "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/quorum" "$(PORT)"

cluster-ports:
	@deploy/check-ports cluster "$(or $(PORT),7401)" 6 bus

sentinel-ports:
	@deploy/check-ports sentinel "$(or $(PORT),7411)" 6

quorum-ports:
	@deploy/check-ports quorum "$(or $(PORT),7421)" 5

down: ## Stop servers left behind by a killed `make cluster`, `make sentinel` or `make quorum`
	@deploy/end-deployment "$(TARGET)/cluster" "$(TARGET)/sentinel" "$(TARGET)/quorum"

install: release ## Install the tool, module, completions and man page (PREFIX=/usr/local, MODULEDIR, DESTDIR)
	@PREFIX="$(PREFIX)" MODULEDIR="$(MODULEDIR)" DESTDIR="$(DESTDIR)" deploy/install "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so"

dist: release sbom-tool ## Make an archive of the module, the tool, their SBOMs and examples, in target/packages
	@deploy/package dist "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/packages"

deb: release sbom-tool ## Make a Debian package of them, in target/packages
	@deploy/package deb "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/packages"

wheel: release sbom-tool ## Make a Python wheel of them that brings a Valkey server, in target/packages (needs Python)
	@deploy/package wheel "$(TARGET)/release/dlock" "$(TARGET)/release/libdlock.so" "$(TARGET)/packages"

# The module and the tool. They need the C library of this system or a newer one. Stripped by the linker, because its
# build id would otherwise depend on the folder, which is in the debug information.
release:
	@deploy/install-deps build
	CARGO_PROFILE_RELEASE_STRIP=symbols cargo build --release --locked -p redis-dlock -p dlock-cli

sbom-tool:
	@command -v cargo-cyclonedx >/dev/null || cargo install cargo-cyclonedx@0.5.9 --locked --root "$(TARGET)/tools"

# Test it.

test: install-deps ## Run all tests against the installed server (or DLOCK_SERVER=valkey-server), but those of the libraries
	@tests/run-all "$(TARGET)"

test-clients: install-deps ## Check, build and test the libraries for Python, Go, Node.js and Java (each whose toolchain is here), and run the conformance kit
	cargo build --locked
	clients/test "$(TARGET)" "$(TARGET)/debug/libdlock.so"
	tests/conformance/run-all

test-matrix: install-deps ## Run the tests against every supported server, downloaded (kept in SERVERS)
	tests/matrix/run "$(SERVERS)"

model: install-deps ## Model-check quorums and inboxes in larger worlds than `make test`, and more steps of the specification
	cargo test --release --locked -p dlock-model --test corpus -- --include-ignored --nocapture
	cargo test --release --locked -p redis-dlock-quorum --test search -- --include-ignored --nocapture --test-threads 1
	@spec/run "$(TARGET)" --deep

spec: ## Check the specification in spec/: samples, every choice of a few steps, and replays against the code (needs Node.js; ARGS="lock" for a part)
	@spec/run "$(TARGET)" $(ARGS)

mutants: ## Change the core in one place at a time, and run its tests and the rules: a change that no test notices is listed (installs cargo-mutants; of some files: FILES="core/src/time/*.rs")
	@command -v cargo-mutants >/dev/null || cargo install cargo-mutants --locked --root "$(TARGET)/tools"
	cargo mutants --package dlock-core --test-package dlock-core --test-package dlock-rules --all-features \
		--cargo-arg=--locked --output "$(TARGET)" --timeout 300 \
		--exclude "core/src/testing/**" --exclude "core/src/tests/**" $(foreach file,$(wildcard $(FILES)),--file $(file)) \
		$(ARGS) -- --lib --test memory

fuzz: install-deps ## Run each fuzz target for SECONDS=20; needs nightly Rust and cargo-fuzz
	tests/model/fuzz/run "$(SECONDS)"

torture: install-deps ## Run clients against real servers under faults for about 30 minutes (options: ARGS="...")
	cargo build --release --locked
	DLOCK_MODULE=$(TARGET)/release/libdlock.so cargo run --locked -p dlock-torture -- $(ARGS)

test-deb: deb ## Install, upgrade and remove the Debian package in a minimal Debian 12 (needs root and debootstrap)
	tests/deb/run "$(TARGET)"

test-wheel: wheel ## Install the wheel in a minimal Debian 12, and time the way to the first lock (needs root and debootstrap)
	tests/wheel/run "$(TARGET)"

test-dist: sbom-tool ## Build the packages in two different folders and compare them byte for byte
	tests/dist/run "$(TARGET)"

miri: ## Run the tests of the core in Miri; needs nightly Rust with the component miri
	@cargo +nightly miri --version >/dev/null 2>&1 || \
	{ echo "miri: not installed: rustup toolchain install nightly --profile minimal --component miri" >&2; exit 1; }
	cargo +nightly miri test --locked -p dlock-core

asan: install-deps ## Run the wire tests on a module with AddressSanitizer; needs nightly Rust
	tests/asan/run "$(TARGET)"

bench: install-deps ## Measure DLOCK beside the plain commands (ARGS="--quick", ARGS="--only pair", ARGS=--publish)
	cargo build --release --locked
	cargo run --release --locked -p dlock-bench -- $(ARGS)

bench-peers: install-deps ## Measure lock libraries of Go, Java, Node.js, Python and Rust, etcd and PostgreSQL (ROUNDS=3 SECONDS=5 CSV=FILE)
	cargo build --release --locked -p redis-dlock -p dlock-bench --lib --bin dlock-bench-peer
	cargo build --release --locked -p dlock-conformance --bin dlock-conformance-driver
	bench/peers/run "$(TARGET)/release" "$(TARGET)/bench-peers" "$(or $(CSV),$(TARGET)/bench/results.csv)" $(ROUNDS) $(SECONDS)

bench-check: install-deps ## Count instructions; fail on a regression of more than 5 % (new baseline: ARGS=--update)
	cargo build --release --locked -p redis-dlock -p dlock-bench --lib --bin dlock-bench-check
	$(TARGET)/release/dlock-bench-check $(ARGS)

# Check it.

check: install-deps ## Check format, lints, documentation, licences, workflows and container files (cargo-deny, actionlint, hadolint, docker-compose)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cargo clippy -p redis-dlock-client --locked -- -D warnings
	RUSTDOCFLAGS="$(DOC_LINTS)" cargo doc --workspace --all-features --no-deps --document-private-items --locked
	RUSTDOCFLAGS="-D warnings" cargo doc -p redis-dlock-client --no-deps --locked
	@.ci/optional-check cargo-deny cargo deny --workspace --locked check bans licenses sources
	@.ci/optional-check actionlint actionlint
	@.ci/optional-check hadolint hadolint deploy/docker/Dockerfile
	@.ci/optional-check docker-compose docker-compose -f deploy/docker/compose.yaml config --quiet

msrv: ## Check the workspace, and the client alone, with the oldest Rust that each supports
	@for version in $(MSRV) $(CLIENT_MSRV); do cargo +$$version --version >/dev/null 2>&1 || \
	{ echo "msrv: Rust $$version is not installed: rustup toolchain install $$version --profile minimal" >&2; exit 1; }; done
	cargo +$(MSRV) check --workspace --all-targets --all-features --locked
	cargo +$(CLIENT_MSRV) check -p redis-dlock-client -p redis-dlock-quorum --all-features --locked

package: ## Build the crates for applications as they would be published
	cargo package -p dlock-core -p redis-dlock-client -p redis-dlock-quorum --locked --allow-dirty

deny: ## Check licences, sources and known vulnerabilities of dependencies (installs cargo-deny and cargo-audit if missing)
	@command -v cargo-deny >/dev/null || cargo install cargo-deny --locked --root "$(TARGET)/tools"
	@command -v cargo-audit >/dev/null || cargo install cargo-audit --locked --root "$(TARGET)/tools"
	cargo deny --workspace --locked check
	cargo audit --deny warnings

pictures: ## Draw the pictures of docs/, and the plots of docs/bench/results.csv
	docs/pictures/draw.py

book: ## Build the book of docs/ (needs Python; installs mdBook if it is missing)
	tests/docs/build-book "$(TARGET)"

install-deps:
	@deploy/install-deps
