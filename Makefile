# `make demo` and `make test` are the two commands of the README; both set up what they need.

VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
# TensorFlow has packages for these; the newest comes first. `make PYTHON=python3.11 ...` chooses.
PYTHONS := python3.13 python3.12 python3.11 python3.10 python3
# Run, not only looked up: version managers put a `python3.13` on PATH that cannot start.
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON := $(shell for name in $(PYTHONS); do \
  $$name -c '$(SUPPORTED)' >/dev/null 2>&1 && echo $$name && break; done)
VERSION := $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
# `make GPU=1 ...` adds the CUDA libraries that this TensorFlow asks for (docs/support.md), and what
# tells how busy a GPU is.
GPU :=
CUDA := $(if $(filter-out 0,$(GPU)),'tensorflow[and-cuda]' -r requirements-gpu.txt)
# Another Python makes the environment anew, and so does the first GPU=1.
STAMP := $(VENV)/installed-$(VERSION)$(if $(CUDA),-gpu)
# `make LOCKED=1 ...` installs what requirements.lock names, and no file with another hash.
LOCKED ?=
WANTED := $(if $(filter-out 0,$(LOCKED)),--require-hashes -r requirements.lock,-r requirements.txt -r requirements-dev.txt)
# tests/conftest.py says how many processes; each imports TensorFlow, so not more than a few.
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist worksteal
QUICK := not slow and not cluster and not hosts and not long
# Whose numbers other kernels could change.
NUMERICAL := tests/exporters tests/networks tests/training/test_inference.py \
  tests/inference/test_pretrained.py::test_the_first_images_have_their_recorded_accuracy \
  tests/training/test_ema.py tests/training/test_hard_examples.py tests/training/test_model_fn.py \
  tests/training/test_optimizers.py tests/training/test_towers.py
# What there is the same on any processor: graphs that nobody runs, files and their names.
NOT_NUMERICAL := names or parameters or refus or shapes or families or placed or servers or beside \
  or its_proxy or no_proxy or epochs_count or reads_each or tower_0 or step_ahead or one_checkpoint \
  or accuracy_is or sigterm or url or clock or program
ONE_CLUSTER := 'tests/test_local_cluster.py::test_every_task_ends[1-sync-1]'
ALL_REDUCE := tests/test_local_cluster.py::test_all_reduce_makes_the_updates_that_parameter_servers_make

.PHONY: install demo docs lock test test-kernels test-full test-slow test-hosts test-clusters test-quick test-short test-long test-all faults goldens lint size release bench-install gpu gpu-tests gpu-data gpu-fast94 gpu-resnet gpu-settings clean

install: $(STAMP)

$(STAMP): requirements.txt requirements-dev.txt requirements-report.txt requirements-onnx.txt requirements-companions.txt requirements.lock
	@test -n '$(PYTHON)' || { echo 'error: no Python 3.10 to 3.13 on PATH, and TensorFlow with its Estimator runs on no other; install one' >&2; exit 2; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo 'error: $(PYTHON) does not start, or is no Python from 3.10 to 3.13; name another' >&2; exit 2; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(WANTED) $(CUDA)
	@echo "chose Python $(VERSION) with TensorFlow $$($(BIN)/pip show tensorflow | sed -n 's/^Version: //p')" >&2
	touch $(VENV)/installed-$(VERSION) $@

demo: $(STAMP)
	rm -rf $(DEMO)
	$(BIN)/python generate_cifar10_tfrecords.py --data-dir $(DEMO)/data --synthetic 1000
	$(BIN)/python cifar10_main.py --data-dir $(DEMO)/data --job-dir $(DEMO)/job --num-layers 8 \
	  --train-steps 200 --eval-every-steps 100 --lr-boundaries-epochs 4,5.6 --lr-values 1,0.1,0.01
	$(BIN)/python cifar10_main.py --job-dir $(DEMO)/job --mode export
	$(BIN)/python cifar10_main.py --job-dir $(DEMO)/job --mode predict --images docs/pictures/cat.jpg
	$(BIN)/python cifar10_main.py --pretrained resnet20 --mode predict --images docs/pictures/cat.jpg

test: $(STAMP)
	$(BIN)/python -m pytest -m '$(QUICK)' $(SIDE_BY_SIDE)

# What `make test` computes with this processor's kernels, with others: oneDNN's for AVX2, and none
# of oneDNN's. The limit stands in for a processor with AVX2 alone. In bfloat16 it does not: the graph
# rewriter looks at the processor and fuses what the limited library has no kernel for. Where there is
# no AVX-512, `make test` has used AVX2's kernels already.
test-kernels: $(STAMP)
	if grep -qs avx512 /proc/cpuinfo; then \
	  ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/python -m pytest $(NUMERICAL) -m '$(QUICK) and not bfloat16' -k 'not ($(NOT_NUMERICAL))' $(SIDE_BY_SIDE); \
	else echo 'no AVX-512 here: the tests above used the kernels for AVX2'; fi
	TF_ENABLE_ONEDNN_OPTS=0 $(BIN)/python -m pytest $(NUMERICAL) -m '$(QUICK)' -k 'not ($(NOT_NUMERICAL))' $(SIDE_BY_SIDE)

# What CI runs.
test-full: test test-kernels
	$(MAKE) -j2 --output-sync=target test-slow test-hosts
	$(MAKE) test-clusters

# Four at once, on two cores too: they often wait for processes of their own.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -m 'slow and not cluster and not hosts and not long' \
	  --numprocesses 4 --dist worksteal

# Most of their time a Slurm waits, so that they run beside the others.
test-hosts: $(STAMP)
	$(BIN)/python -m pytest -m 'hosts and not slow and not long'

# Two at once: of several processes each, which mostly wait for one another.
test-clusters: $(STAMP)
	$(BIN)/python -m pytest -m 'cluster and not long' --numprocesses 2 --dist worksteal

# What CI has no time for: other ways to what its tests try, and what takes minutes. It takes hours.
test-long: $(STAMP)
	$(BIN)/python -m pytest -m 'long or (hosts and slow)'

# Every command of one process, and the chief of a synchronous cluster, killed, and its disk failed, at
# each of its calls that change a file; then every command and any task of a cluster killed at a random
# moment so many times: `make faults KILLS=200`. It takes hours; a line at the end of each says what
# failed.
KILLS := 50
faults: $(STAMP)
	for command in convert train stop export sync; do \
	  $(BIN)/python tests/faults.py $$command || exit 1; done
	for command in convert train stop export sync async all-reduce; do \
	  $(BIN)/python tests/faults.py $$command --outcomes TIME --sample $(KILLS) || exit 1; done

# Whether this checkout computes, bit for bit, what commit 0872a1f computes: `make goldens FLAGS=--quick`.
goldens: $(STAMP)
	$(BIN)/python tests/goldens.py $(FLAGS)

# The quick tests and one cluster.
test-quick: test
	$(BIN)/python -m pytest $(ONE_CLUSTER)

# What a TensorFlow release can break: graphs, towers, training, resuming, export, a cluster.
test-short: $(STAMP)
	$(BIN)/python -m pytest tests/core/test_devices.py tests/exporters tests/inference tests/training \
	  -m 'not slow and not long' $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest $(ONE_CLUSTER) $(ALL_REDUCE) tests/test_estimator_again.py \
	  tests/test_commands.py $(SIDE_BY_SIDE)

# Both lines of TensorFlow: in full with 2.15.1, in short with the newest on the newest Python.
test-all:
	$(PYTHON) tests/support.py 3.11:full newest:short

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/structure.py

# How much there is: lines, files, flags, circles of imports, each beside its limit.
size: $(STAMP)
	$(BIN)/python tests/structure.py

# What of the docs is made from the program and from benchmarks/results/.
docs: $(STAMP)
	PYTHONPATH=. $(BIN)/python tests/options/flag_page.py > docs/flags.md
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/pictures.py
	$(BIN)/python tests/structure.py --write

# What a release uploads, in dist/: sdist and wheel, checked; tests/test_commands.py installs them.
release: $(STAMP)
	rm -rf build dist
	$(BIN)/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")'
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	$(BIN)/python -m twine check --strict dist/*

# Needs uv (https://docs.astral.sh/uv/), which looks up the hashes of every Python's packages.
lock:
	{ sed '/^[^#]/,$$d' requirements.lock; uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --no-header requirements.txt requirements-dev.txt; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

# What the benchmarks compare with, in an environment of its own; measured on Python 3.11.
bench-install:
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet -r benchmarks/requirements.txt

# For a machine with one GPU or more (docs/support.md). Each part is useful alone, and should take at
# most eight minutes. Where no package index is, they take Pythons that have the packages:
# `make gpu-tests GPU_PYTHON=python3`; `make gpu-fast94 GPU_PYTHON=python3 TORCH_PYTHON=python3`.
GPU_PYTHON := $(BIN)/python
TORCH_PYTHON := .venv-bench/bin/python
# Of CIFAR-10, where it cannot be downloaded.
ARCHIVE :=
PEERS := --data-dir data --num-gpus 1 --torch-python $(TORCH_PYTHON)
SETTINGS := TF_SYNC_ON_FINISH=0,TF_ENABLE_WINOGRAD_NONFUSED=0,TF_CUDNN_USE_AUTOTUNE=0,$\
  TF_GPU_THREAD_MODE=gpu_private,TF_XLA_FLAGS=--tf_xla_auto_jit=2,$\
  force_gpu_compatible,channels_last,variables on the CPU
gpu:
	@$(or $(PYTHON),python3) tests/gpus.py
	$(MAKE) GPU=1 install bench-install
	$(MAKE) gpu-tests
	$(MAKE) gpu-fast94
	$(MAKE) gpu-resnet
	$(MAKE) gpu-settings

gpu-tests:
	TEST_GPUS=1 $(GPU_PYTHON) -m pytest -m gpu

gpu-data:
	@TEST_GPUS=1 $(GPU_PYTHON) tests/gpus.py
	$(GPU_PYTHON) generate_cifar10_tfrecords.py --data-dir data $(if $(ARCHIVE),--archive $(ARCHIVE))

gpu-fast94: gpu-data
	$(GPU_PYTHON) benchmarks/time_to_accuracy.py $(PEERS) --seeds 0 --twin-steps 0 > data/gpu.json
	$(GPU_PYTHON) -m json.tool --indent 1 data/gpu.json benchmarks/results/time_to_accuracy_gpu.json
	$(GPU_PYTHON) benchmarks/report.py

gpu-resnet: gpu-data
	$(GPU_PYTHON) benchmarks/training.py $(PEERS) --turns 5 --seconds 2 \
	  --beside 'bare,keras,torch,torch compiled' > data/gpu.json
	$(GPU_PYTHON) -m json.tool --indent 1 data/gpu.json benchmarks/results/training_gpu.json
	$(GPU_PYTHON) benchmarks/report.py

# Settings that are not the program's on one GPU: prints their record, for rows of results/tried.csv.
gpu-settings: gpu-data
	$(GPU_PYTHON) benchmarks/training.py --data-dir data --num-gpus 1 --dtypes bfloat16 --turns 5 \
	  --seconds 2 --beside '$(SETTINGS)' > data/gpu.json
	$(GPU_PYTHON) -m json.tool --indent 1 data/gpu.json

clean:
	rm -rf $(VENV) $(VENV)-* $(DEMO)
