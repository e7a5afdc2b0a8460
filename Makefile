# make demo      the tool on a real model that fails by itself     make build     libraries, programs, Python package in .venv
# make test      lint, C++ tests, Python tests                     make test-all  these, then installs and sanitizers
# make bench     what watching costs                               make setup, lint, format, tidy, clean
# Each does its own set-up on Debian 12; the second time that costs seconds.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.PHONY: setup build demo test test-all test-install test-sanitize bench lint format tidy clean

PYTHON := $(CURDIR)/.venv/bin/python3
BUILD := build
JOBS ?= $(shell nproc)
# Tests and programs compute small things: more threads than tests only get in each other's way.
export OMP_NUM_THREADS ?= 1

SANITIZED := build/sanitized
SANITIZER_OPTIONS := ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0 UBSAN_OPTIONS=print_stacktrace=1

# configure FOLDER OPTION...; an existing build folder configures itself again when it must.
define functions
say() { printf '[%s] %s\n' "$$1" "$$2"; }
configure() {
  local folder=$$1
  shift
  mkdir -p "$$folder"
  test -f "$$folder/build.ninja" && return
  cmake -S . -B "$$folder" -G Ninja -DPython_EXECUTABLE=$(PYTHON) -DFIRSTFAULT_BUILD_TESTS=ON "$$@" \
    > "$$folder/configure.log" 2>&1 || { cat "$$folder/configure.log"; exit 1; }
}
configure_all() {
  configure $(BUILD) -DFIRSTFAULT_BUILD_PYTHON=ON -DFIRSTFAULT_BUILD_EXAMPLES=ON -DFIRSTFAULT_BUILD_BENCHMARKS=ON
}
compile() { NINJA_STATUS='      %f/%t ' cmake --build "$$@" -j $(JOBS); }
endef

setup:
	@tools/setup.sh 4

build:
	@$(functions)
	tools/setup.sh 6
	say 5/6 "building into $(BUILD)/"
	configure_all
	compile $(BUILD)
	say 6/6 "installing the Python package into .venv"
	tools/install_python.sh $(BUILD)

demo:
	@$(functions)
	tools/setup.sh 6
	say 5/6 "building the demo (a few minutes the first time, mostly LibTorch's headers)"
	configure_all
	compile $(BUILD) --target example_demo
	say 6/6 "running it: $(BUILD)/bin/example_demo"
	$(BUILD)/bin/example_demo .venv/lib/python3*/site-packages/sklearn/datasets/data/breast_cancer.csv

test:
	@$(functions)
	tools/setup.sh 9
	say 5/9 "lint"
	tools/lint.sh
	say 6/9 "building into $(BUILD)/ (several minutes the first time, mostly LibTorch's headers)"
	configure_all
	compile $(BUILD)
	say 7/9 "installing the Python package into .venv"
	tools/install_python.sh $(BUILD)
	say 8/9 "C++ tests"
	ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --progress
	say 9/9 "Python tests"
	$(PYTHON) -m pytest

test-all: test
	@$(MAKE) --no-print-directory test-sanitize test-install

# From outside of the tree: the installed CMake package and the wheel, with README's own examples.
test-install: build
	@tests/install/run_cmake_test.sh
	tests/install/run_wheel_test.sh

test-sanitize:
	@$(functions)
	tools/setup.sh 6
	say 5/6 "building the C++ tests with address and undefined-behaviour sanitizers"
	configure $(SANITIZED) -DFIRSTFAULT_SANITIZE=address,undefined
	compile $(SANITIZED)
	say 6/6 "running them"
	$(SANITIZER_OPTIONS) ctest --test-dir $(SANITIZED) -j $(JOBS) --output-on-failure --progress

bench: build
	@$(PYTHON) -m benchmarks

lint:
	@tools/setup.sh 4
	tools/lint.sh

format:
	@tools/setup.sh 4
	tools/lint.sh --fix

# clang-tidy over the part without LibTorch; needs the Debian package clang-tidy.
tidy: build
	@find firstfault/{base,events,record,reason,present} python/src/core_*.cpp -name '*.cpp' |
	  xargs -P $(JOBS) -n 1 clang-tidy -quiet -p $(BUILD)

clean:
	@rm -rf $(BUILD)
