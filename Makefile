# Each target is a few lines; the work is in scripts/ and in cargo.
.PHONY: setup demo test lint bench build

setup:
	@scripts/setup.sh

build: setup
	cargo build --release --locked -p prony-harness -p prony-sut

demo: build
	@scripts/demo.sh

test: setup
	cargo build --locked --workspace --bins
	cargo test --locked --workspace

lint: setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

bench: setup
	cargo bench --locked -p prony-loadgen
	cargo bench --locked -p prony-models
