# A thin front to CMake. Every target first installs what is missing (docker/setup.sh says what).
BUILD := build/release
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test bench sanitize format lint setup build clean

demo: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker
	KILL="$(KILL)" bash deploy/demo.sh $(BUILD)/bin build/demo

build: setup
	cmake --preset release >/dev/null
	cmake --build --preset release

test: build
	ctest --preset release

bench: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker reference_trainer transfer_bench
	python3 tests/bench/run.py --bin $(BUILD)/bin --output build/bench.json

# AddressSanitizer and UndefinedBehaviorSanitizer over the suite; ThreadSanitizer over what links no gRPC.
sanitize: setup
	cmake --preset asan >/dev/null
	cmake --build --preset asan
	ctest --preset asan
	cmake --preset tsan >/dev/null
	cmake --build --preset tsan --target tsan_tests
	ctest --preset tsan

format: setup
	git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

lint: setup
	cmake --preset release >/dev/null
	bash tests/tools/lint.sh $(BUILD)

setup:
	@bash docker/setup.sh

clean:
	rm -rf build
