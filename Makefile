# make demo      the tool on a real model that fails by itself     make build     libraries, programs, Python package in .venv
# make test      lint, C++ tests, Python tests                     make test-all  these, then all the test-… below
# make bench     what watching costs                               make accuracy  how often causes are right
# make setup, lint, format, tidy, clean
# Each does its own set-up on Debian 12; the second time that costs seconds.

# What `make test-all` runs after `make test`; .ci/run takes them in turn.
LONG_TESTS := test-sanitize test-tsan test-fuzz test-install test-twins test-generated test-models test-slow test-crash

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.PHONY: setup build demo test test-all $(LONG_TESTS) accuracy bench lint format tidy clean

PYTHON := $(CURDIR)/.venv/bin/python3
BUILD := build
JOBS ?= $(shell nproc)
# Tests and programs compute small things: more threads than tests only get in each other's way.
export OMP_NUM_THREADS ?= 1

SANITIZED := build/sanitized
SANITIZER_OPTIONS := UBSAN_OPTIONS=print_stacktrace=1
THREADED := build/tsan
# No suppressions: one by library would hide our callbacks too, which LibTorch calls. Instead OpenMP gets one thread,
# as the sanitizer does not see the barriers of libgomp's others.
THREAD_OPTIONS := OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1"
FUZZED := build/fuzz
FUZZ_SECONDS ?= 600

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
	compile $(BUILD) --target example_demo example_guarded firstfault_program
	say 6/6 "running it: $(BUILD)/bin/example_demo"
	rm -f $(BUILD)/demo.ffrun*
	$(BUILD)/bin/example_demo .venv/lib/python3*/site-packages/sklearn/datasets/data/breast_cancer.csv $(BUILD)/demo.ffrun
	say 6/6 "the same from the run file alone: $(BUILD)/bin/firstfault explain $(BUILD)/demo.ffrun"
	$(BUILD)/bin/firstfault explain $(BUILD)/demo.ffrun || test $$? = 1
	say 6/6 "the same training under a guard, which goes on and proves the cause: $(BUILD)/bin/example_guarded"
	$(BUILD)/bin/example_guarded .venv/lib/python3*/site-packages/sklearn/datasets/data/breast_cancer.csv

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
	$(PYTHON) -m pytest -n $(JOBS) --dist worksteal

test-all: test
	@# nproc would say 1 to the inner make, as OMP_NUM_THREADS is exported
	for part in $(LONG_TESTS); do $(MAKE) --no-print-directory JOBS=$(JOBS) $$part; done

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
	$(SANITIZER_OPTIONS) FIRSTFAULT_BUILD=$(SANITIZED) $(PYTHON) -m pytest tests/cli/test_damage.py

test-tsan:
	@$(functions)
	tools/setup.sh 6
	say 5/6 "building the C++ tests with the thread sanitizer"
	configure $(THREADED) -DFIRSTFAULT_SANITIZE=thread
	compile $(THREADED)
	say 6/6 "running them"
	$(THREAD_OPTIONS) ctest --test-dir $(THREADED) -j $(JOBS) --output-on-failure --progress

test-fuzz:
	@$(functions)
	tools/setup.sh 7
	say 5/7 "clang, for libFuzzer"
	tests/fuzz/install_clang.sh
	say 6/7 "building tests/fuzz into $(FUZZED)/"
	configure $(FUZZED) -DCMAKE_CXX_COMPILER=clang++ -DFIRSTFAULT_BUILD_FUZZ=ON
	compile $(FUZZED) --target scan_fuzz
	say 7/7 "fuzzing for $(FUZZ_SECONDS) seconds"
	tests/fuzz/run.sh $(FUZZED) $(FUZZ_SECONDS)

# The same faults in C++, at two optimisation levels, and in Python.
test-twins: build
	@$(functions)
	compile $(BUILD) --target twins_O0 twins_O2
	$(PYTHON) -m pytest tests/twins

# The cases from more seeds.
test-slow: build
	@$(PYTHON) -m pytest -m slow

# Faults of known origin in generated programs.
test-generated: build
	@for seed in 0 1 2; do $(PYTHON) -m tests.generated --seed $$seed --count 300; done

# Processes that die while they record, and damaged run files.
test-crash: build
	@$(BUILD)/bin/crash_test 200 1000

# Healthy models, plain and traced.
test-models: build
	@$(PYTHON) -m pip --disable-pip-version-check install --quiet torch==2.13.0 -r tools/requirements-models.txt
	$(PYTHON) -m tests.models.check

# How often causes and places are right: 180 trainings, two of three with a fault put in. About ten minutes.
accuracy: build
	@$(PYTHON) -m tests.accuracy --seed 0 1 2

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
	@find cli firstfault/{base,events,record,reason,present} python/src/core_*.cpp -name '*.cpp' |
	  xargs -P $(JOBS) -n 1 clang-tidy -quiet -p $(BUILD)

clean:
	@rm -rf $(BUILD)
