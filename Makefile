# A thin front to CMake. Every target first installs what is missing (docker/setup.sh says what).
BUILD := build/release
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test bench sanitize sanitize-build format lint lint-text setup build clean

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
	cmake --build --preset release --target downpour downpour-server downpour-worker counter_worker reference_trainer transfer_bench checkpoint_bench
	python3 tests/bench/run.py --bin $(BUILD)/bin --output build/bench.json

# The loader against PyTorch's, of DOWNPOUR_PYTORCH_PYTHON, which needs torchvision too; a few minutes.
.PHONY: bench-loader
bench-loader: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target loader_bench
	python3 tests/bench/loader.py --bin $(BUILD)/bin --output build/bench-loader.json

# All-reduce against PyTorch's DistributedDataParallel, of DOWNPOUR_PYTORCH_PYTHON; a few minutes.
.PHONY: bench-all-reduce
bench-all-reduce: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker
	python3 tests/bench/all_reduce.py --bin $(BUILD)/bin --output build/bench-all-reduce.json

# What tests/gpu/run needs on a machine with a GPU, into build/gpu.
.PHONY: gpu-pack
GPU_TARGETS := downpour downpour-server downpour-worker kernels_bench cuda_kernels_test counting_network device_times
gpu-pack: setup
	cmake --preset gpu-release >/dev/null
	if ninja -C build/gpu-release -t targets all | grep '^nccl_device_test:' >/dev/null; then
	  cmake --build --preset gpu-release --target nccl_device_test
	fi
	cmake --build --preset gpu-release --target $(GPU_TARGETS)
	tests/gpu/run pack

# A job with standbys whose processes are killed and stopped, and where nft and ss are there cut off, for ten minutes, or
# SOAK_SECONDS. STRATEGY=AllReduce: without parameter servers; then COPIES=2: with an optimizer's state that is divided.
.PHONY: soak
soak: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server counter_worker
	python3 tests/soak/soak.py --downpour $(BUILD)/bin/downpour --server $(BUILD)/bin/downpour-server \
	  --worker $(BUILD)/tests/counter_worker --seconds $(or $(SOAK_SECONDS),600) --seed $(or $(SEED),1) --strategy $(or $(STRATEGY),ParameterServer) \
	  --state-copies $(or $(COPIES),0) $(shell command -v nft >/dev/null && command -v ss >/dev/null && echo --network)

# Every network of deploy/examples/zoo for 100 updates or 200; ten minutes. STRATEGY=AllReduce: without parameter servers.
.PHONY: zoo
zoo: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker
	python3 tests/zoo/run.py --bin $(BUILD)/bin --strategy $(or $(STRATEGY),ParameterServer) --output build/zoo.json

# The programs of deploy/examples/programs as they are, and the table of docs/programs.md. PROGRAMS="fashion-mnist" runs some;
# all of them take hours on two cores.
.PHONY: programs
programs: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-data downpour-server downpour-worker
	python3 tests/integration/programs.py --downpour $(BUILD)/bin/downpour --figures $(PROGRAMS)

# The algorithms compared on Fashion-MNIST: docs/experiments.md and its plots. EXPERIMENTS="codecs machines/slow" runs some;
# tests/experiments/run.py --help. All of them take almost two hours.
.PHONY: experiments
experiments: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker timed_network
	python3 tests/experiments/run.py --bin $(BUILD)/bin --plugins $(BUILD)/tests/experiments --runs build/experiments $(EXPERIMENTS)

# The operator with 250 jobs: a real API server, and nodes that KWOK plays. Needs root; a quarter of an hour.
.PHONY: bench-operator
bench-operator:
	@bash docker/setup.sh e2e
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour-operator operator_bench stand_in_coordinator
	python3 e2e/bench_operator.py --bin $(BUILD)/bin --output build/bench-operator.json

# Every data format as its reference library in Python reads it: tests/data/references.py. These are installed below
# build/references; without TensorFlow, TFRecord is left out.
.PHONY: data-references tracking-references
data-references: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour-data data_dump data_python_test data_images_python_test
	python3 -m venv build/references/data
	build/references/data/bin/pip install -q numpy pillow pyarrow safetensors webdataset
	build/references/data/bin/pip install -q tensorflow-cpu || echo "tensorflow-cpu cannot be installed here"
	export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=
	build/references/data/bin/python3 tests/data/references.py --bin $(BUILD)
	DOWNPOUR_SAFETENSORS_PYTHON=$$PWD/build/references/data/bin/python3 \
	  DOWNPOUR_DATA_PYTHON=$$PWD/build/references/data/bin/python3 ctest --preset release -R 'data_python|data_images_python'

# TensorBoard reads our event files, and a whole MLflow server takes our runs.
tracking-references: setup
	cmake --preset release >/dev/null
	cmake --build --preset release --target tracking_tensorboard_test tracking_mlflow_server_test
	python3 -m venv build/references/tracking
	build/references/tracking/bin/pip install -q tensorboard mlflow
	DOWNPOUR_TENSORBOARD_PYTHON=$$PWD/build/references/tracking/bin/python3 \
	  DOWNPOUR_MLFLOW_PYTHON=$$PWD/build/references/tracking/bin/python3 \
	  ctest --preset release -R 'tracking_tensorboard|tracking_mlflow_server'

# AddressSanitizer and UndefinedBehaviorSanitizer over the suite; ThreadSanitizer over what links no gRPC, which is what
# sanitize-core has of the former too. sanitize-rest: the tests that do not start processes, without that core.
.PHONY: sanitize-core sanitize-core-build sanitize-rest
sanitize: sanitize-build
	ctest --preset asan
	ctest --preset tsan

sanitize-core: sanitize-core-build
	ctest --preset asan -L core
	ctest --preset tsan

sanitize-rest: sanitize-build
	ctest --preset asan -LE 'core|integration'

sanitize-core-build: setup
	cmake --preset asan >/dev/null
	cmake --build --preset asan --target core_tests
	cmake --preset tsan >/dev/null
	cmake --build --preset tsan --target core_tests

sanitize-build: sanitize-core-build
	cmake --build --preset asan

format: setup
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 -i

lint: lint-text
	cmake --preset release >/dev/null
	bash tests/tools/clang_tidy.sh $(BUILD)

lint-text: setup
	bash tests/tools/lint_text.sh

setup:
	@bash docker/setup.sh

clean:
	rm -rf build

# A Kubernetes cluster on this machine, without Docker; needs root. It stays up until `make cluster-down`.
.PHONY: cluster cluster-down images image-cuda e2e
cluster:
	@bash docker/setup.sh e2e
	e2e/cluster/build.sh helm
	python3 e2e/cluster.py up
	echo 'use it:     eval "$$(e2e/cluster.py env)"; kubectl get nodes'
	echo 'images:     make images; e2e/images.py --load'
	echo 'more verbs: e2e/cluster.py --help'
	echo 'end it:     make cluster-down'

.PHONY: cluster-build
cluster-build:
	@bash docker/setup.sh e2e
	python3 e2e/cluster.py build
	e2e/cluster/build.sh versitygw

cluster-down:
	@python3 e2e/cluster.py down

# Its pid files are in build/.
clean: cluster-down

# The images of docker/, from programs built here, as archives in build/images; and the command that goes with them.
images:
	@bash docker/setup.sh e2e
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour downpour-server downpour-worker
	if ninja -C $(BUILD) -t targets all | grep '^downpour-operator:' >/dev/null; then
	  cmake --build --preset release --target downpour-operator
	fi
	python3 e2e/images.py

# The worker's image for GPUs, which needs none to be made; 2 GB to download, once, and 11 GB of disk.
image-cuda:
	@bash docker/setup.sh e2e
	cmake --preset release >/dev/null
	cmake --build --preset release --target downpour-worker downpour_cuda
	python3 e2e/images.py trainer-cuda

# The scenarios of e2e/run.py on a cluster that is made for them and removed after; SCENARIO="scale train" runs some,
# SCENARIO=core those that CI runs; DRIVER=kind where there is Docker. A lost node is noticed sooner than by default.
DRIVER := bare
NODES := $(if $(filter core,$(SCENARIO))$(filter kind,$(DRIVER)),1,2)
e2e: images
	trap 'python3 e2e/cluster.py --driver $(DRIVER) down' EXIT
	python3 e2e/cluster.py --driver $(DRIVER) up --nodes $(NODES) --extra kube-controller-manager=--node-monitor-grace-period=20s
	python3 e2e/images.py --driver $(DRIVER) --load
	python3 e2e/run.py --driver $(DRIVER) $(SCENARIO)
