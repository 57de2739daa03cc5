# A fresh machine needs Python 3.11 or newer and a C++20 compiler; everything else is installed into .venv by pip.
# No target has to be run before another: each target makes what it needs.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CXX := $(if $(filter default,$(origin CXX)),$(shell command -v c++ || command -v g++ || command -v clang++),$(CXX))
NATIVE_SOURCES := CMakeLists.txt $(shell find native -type f 2>/dev/null)
CPP_CLIENT_SOURCES := $(shell find clients/cpp native/gamecore/include -type f 2>/dev/null)
GO_CLIENT_SOURCES := $(shell find clients/go -type f 2>/dev/null)
SANITIZERS := none thread address
# How far the simulated protocols are searched: short, or long (an hour).
MODEL := short
# How many tests run side by side: one more than there are cores, because many of them wait. More than 8 only take more memory.
TEST_PROCESSES ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
# Bytecode is kept: without it each of these processes compiles all tests anew, for 10 s.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal
# How many altered files `make fuzz` feeds to each reader.
FUZZ_EXAMPLES ?= 20000
# Minutes with faults of `make soak`. A third of them come on top without faults. 1 is enough to see that it runs.
SOAK_MINUTES ?= 30
CMAKE_FLAGS = -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" -DCMAKE_CXX_COMPILER="$(CXX)" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
# ThreadSanitizer maps fixed addresses, so address layout randomisation is switched off where a process may do that.
FIXED_LAYOUT := $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

.DEFAULT_GOAL := help
.PHONY: help install train test test-native test-python test-clients test-nightly test-gpu fuzz fuzz-frames soak faults check format learn learn-broad bench bench-quick clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/.installed build/native/.installed  ## make .venv and install penstock into it, native code included

train: install  ## train PPO on Pendulum-v1 at the defaults and evaluate it
	$(BIN)/penstock train --env Pendulum-v1

test: test-native test-python  ## the C++ tests under each sanitizer, then the Python tests that are not nightly

test-native: $(SANITIZERS:%=build/native-tests/%/.built)
	@set -e; for sanitizer in $(SANITIZERS); do \
		echo "native tests, sanitizer: $$sanitizer"; \
		run=; if [ $$sanitizer = thread ]; then run="$(FIXED_LAYOUT)"; fi; \
		PENSTOCK_MODEL=$(MODEL) $$run $(BIN)/ctest --test-dir build/native-tests/$$sanitizer --output-on-failure \
			--parallel $(TEST_PROCESSES) --no-tests=error --timeout $(if $(filter long,$(MODEL)),7200,120); \
	done

test-python: install
	$(PYTEST) -m 'not nightly and not gpu' $(PYTEST_FLAGS)

test-clients: build/clients/go/.built install build/clients/cpp/.built  ## build the C++ and Go clients with warnings as errors, and run them against servers and runs
	$(BIN)/python -m pytest clients $(PYTEST_FLAGS)

test-nightly: install  ## the Python tests that are long by nature: test leaves them out, .ci/run runs them
	$(PYTEST) -m nightly $(PYTEST_FLAGS)

test-gpu: install  ## the tests that need a GPU and a torch with CUDA: no other target runs them
	$(PYTEST) -m gpu tests/gpu $(PYTEST_FLAGS)

fuzz: install  ## feed altered files of a run folder to their readers, for some minutes (FUZZ_EXAMPLES each)
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest --timeout 0 tests/saved_runs/test_fuzz.py $(PYTEST_FLAGS)

fuzz-frames: install  ## feed bytes to what reads those of clients, guided by coverage, for a minute (atheris, Linux)
	$(PIP) install -q -c constraints.txt atheris
	$(BIN)/python -m tests.serving.server.fuzz_frames

soak: install build/native-tests/none/.built  ## train for 40 minutes, 30 of them with a fault every 5 s, then ten of tables under kills, twenty of a server and thirty of three hosts (SOAK_MINUTES; the last needs root)
	$(BIN)/python -m benchmarks.soak.on_policy --minutes $(SOAK_MINUTES) \
		--write $(if $(filter 30,$(SOAK_MINUTES)),benchmarks/results,build/benchmarks)/soak_on_policy.json
	PENSTOCK_STRESS_S=$$((20 * $(SOAK_MINUTES))) build/native-tests/none/native/replay/tests/replay_tests stress
	$(BIN)/python -m benchmarks.soak.serving --minutes $$(($(SOAK_MINUTES) * 2 / 3 + ($(SOAK_MINUTES) < 2))) \
		--write $(if $(filter 30,$(SOAK_MINUTES)),benchmarks/results,build/benchmarks)/soak_serving.json
	$(BIN)/python -m benchmarks.soak.cluster --minutes $(SOAK_MINUTES) \
		--write $(if $(filter 30,$(SOAK_MINUTES)),benchmarks/results,build/benchmarks)/soak_cluster.json

faults: build/faults/.installed  ## build native modules with fault points into build/faults: processes die where told to

check: install build/native-tests/none/.built  ## style, types, import contracts, C++ warnings as errors
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini
	$(BIN)/lint-imports --no-logo

format: install  ## format the code in the style that check wants
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

learn: install  ## repeat the learning results: every row of benchmarks/learning/thresholds.toml, three seeds each
	$(BIN)/python -m benchmarks.learning.run --all

learn-broad: install  ## every algorithm at its defaults on tasks it was not tuned for, beside stable-baselines3; goes on with the open runs
	$(PIP) install -q -c constraints.txt -e '.[box2d,learn,mujoco]' --no-build-isolation
	$(BIN)/python -m benchmarks.learning.broad

bench: install  ## repeat every benchmark into benchmarks/results, then draw them; for a quiet machine
	@$(BIN)/python -m benchmarks.suite; status=$$?; $(BIN)/python -m benchmarks.plots && exit $$status

bench-quick: install  ## the benchmarks in short form, into build/benchmarks: less than 5 minutes on two cores
	$(BIN)/python -m benchmarks.suite --quick

clean:  ## remove what the targets made, .venv included
	rm -rf $(VENV) build
	find src -name '*.so' -delete

$(BIN)/python:
	@echo "making $(VENV)"
	@test -n "$(CXX)" || { echo "make install: no C++ compiler found; install one (Debian: apt install g++; macOS: xcode-select --install) or set CXX" >&2; exit 2; }
	@python=; for name in $(PYTHON) python3 python3.11 python3.12 python3.13 python; do \
		if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$name; break; fi; \
	done; \
	test -n "$$python" || { echo "make install: no Python 3.11 or newer found; install one or name it: make install PYTHON=/path/to/python3.11" >&2; exit 2; }; \
	"$$python" -m venv $(VENV) || { echo "make install: $$python cannot make a virtual environment (Debian: apt install python3-venv)" >&2; rm -rf $(VENV); exit 2; }

# The build tools are installed first and the build is not isolated, so that the build uses the pinned tools.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing penstock into $(VENV); the first time this takes two to five minutes, most of it for torch"
	@$(PIP) install -q -c constraints.txt scikit-build-core nanobind cmake ninja
	@$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# An editable install reads src/ directly. The compiled modules are placed there, each in its package. Bytecode is compiled
# as well, as in any other install: where Python may not write it, each process of a run would compile it anew in 70 ms.
build/native/.installed: $(NATIVE_SOURCES) $(VENV)/.installed
	@$(BIN)/cmake -S . -B build/native $(CMAKE_FLAGS) -DCMAKE_BUILD_TYPE=Release -DSKBUILD=ON --log-level=WARNING \
		-DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)" >/dev/null
	@echo "building the native modules; the first time this takes two to four minutes on two cores"
	@$(BIN)/cmake --build build/native -- --quiet
	@$(BIN)/cmake --install build/native --prefix src >/dev/null
	@$(BIN)/python -m compileall -q src
	@touch $@

# PYTHONPATH=build/faults brings them in.
build/faults/.installed: build/native/.installed
	@echo "building the native modules with fault points"
	@$(BIN)/cmake --build build/native --target _native_memory_faults -- --quiet
	@mkdir -p $(@D)
	@cp build/native/native/memory/faults/_native*.so native/memory/tests/faults/sitecustomize.py $(@D)
	@touch $@

build/clients/cpp/.built: $(CPP_CLIENT_SOURCES) $(VENV)/.installed
	@$(BIN)/cmake -S clients/cpp -B $(@D) $(CMAKE_FLAGS) -DCMAKE_BUILD_TYPE=RelWithDebInfo --log-level=WARNING \
		-DPENSTOCK_CLIENT_PROGRAMS=ON >/dev/null
	@echo "building the C++ client"
	@$(BIN)/cmake --build $(@D) -- --quiet
	@touch $@

build/clients/go/.built: $(GO_CLIENT_SOURCES)
	@command -v go >/dev/null || { echo "make test-clients: no Go found; install it (Debian: apt install golang-go; macOS: brew install go)" >&2; exit 2; }
	@echo "building and testing the Go client"
	@cd clients/go && test -z "$$(gofmt -l .)" || { echo "gofmt would change: $$(gofmt -l .)" >&2; exit 1; }
	@cd clients/go && go vet ./... && go test -race . && go build -buildvcs=false -o "$(CURDIR)/$(@D)/" ./examples/cart && \
		go build -buildvcs=false -race -o "$(CURDIR)/$(@D)/" ./tests/talk
	@touch $@

build/native-tests/%/.built: $(NATIVE_SOURCES) $(VENV)/.installed
	@$(BIN)/cmake -S . -B $(@D) $(CMAKE_FLAGS) -DCMAKE_BUILD_TYPE=RelWithDebInfo --log-level=WARNING \
		-DPENSTOCK_NATIVE_TESTS=ON -DPENSTOCK_SANITIZER=$* >/dev/null
	@echo "building the native tests, sanitizer: $*"
	@$(BIN)/cmake --build $(@D) -- --quiet
	@touch $@
