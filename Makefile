# What people and CI run. `make` alone says what there is.

CARGO ?= cargo
CONFIG ?= gateway.yaml
ARGS ?=

.PHONY: help test clients fuzz lint bench run certs

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## all tests; installs curl, openssl, wrk, redis-server and faketime first when they are missing (Debian)
	@.ci/install curl openssl wrk redis-server faketime
	$(CARGO) test --locked

clients: ## curl, gRPC, WebSocket and other clients through the gateway; ARGS="httpx ws" takes some of them
	$(CARGO) build --locked
	tests/clients/run $(or $(CARGO_TARGET_DIR),target)/debug/tollgate $(ARGS)

fuzz: ## what libFuzzer finds in 15 s for each target; ARGS="request" takes some of them
	tests/fuzz/run $(ARGS)

lint: ## formatting, clippy and rustdoc, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path tests/fuzz/Cargo.toml
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

bench: ## tollgate beside nginx and HAProxy; ARGS="--help" lists the options
	@.ci/install wrk h2load nginx haproxy taskset setpriv
	$(CARGO) bench --locked --bench proxy -- $(ARGS)

run: ## the gateway, release build, on gateway.yaml (CONFIG=other.yaml)
	$(CARGO) run --release --locked -- run --config $(CONFIG)

certs: ## a new development CA and leaf in certs/
	certs/make.sh
