"""What several test files share: small records, the program, TensorBoard, a browser."""

import contextlib
import functools
import gc
import io
import logging
import os
import shutil
import signal
import subprocess
import sys

import checkout
import gpus
import numpy as np
import pytest

import cifar10_main
from cifar10.core import start_tensorflow

gpus.set_environment()
# Tests ask servers of their own: no proxy is to stand between.
for name in ('no_proxy', 'NO_PROXY'):
  os.environ[name] = ','.join(filter(None, [os.environ.get(name), '127.0.0.1', 'localhost']))
start_tensorflow.start()  # Before the modules that import it.
# Commands find the networks of tests/own in processes of their own, too.
OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'own')
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [OWN, os.environ.get('PYTHONPATH')]))

import outcome  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import config as framework_config  # noqa: E402

from cifar10.core import cli, limits  # noqa: E402
from cifar10.core.logs import log  # noqa: E402
from cifar10.data import manifest, records  # noqa: E402
from cifar10.data.build import synthetic  # noqa: E402

COUNTS = {'train': 256, 'validation': 64, 'eval': 70}


def pytest_configure():
  if gpus.ASKED and (reason := gpus.reason_for_none()):
    raise pytest.UsageError(f'TensorFlow sees no GPU on this machine: {reason}')


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
  """How many tests run at once: one more than there are cores, since each waits now and then."""
  return limits.cores() + 1


def pytest_collection_finish():
  """What all modules have made stays: visiting it at each collection took 8 % of the time."""
  gc.freeze()


@pytest.fixture(autouse=True)
def plain_log():
  """What a call in Python or a command sets up for its log is no other test's."""
  log.handlers.clear()
  log.setLevel(logging.INFO)
  log.propagate = True


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  """Record files of synthetic images with their manifest."""
  folder = str(tmp_path_factory.mktemp('data'))
  rng, splits = np.random.default_rng(0), {}
  for split, count in COUNTS.items():
    labels = np.arange(count) % manifest.CIFAR10.num_classes
    path = manifest.record_path(folder, split)
    records.write_records(path, synthetic.synthetic_images(labels, rng), labels)
    splits[split] = manifest.entry(path, count)
  manifest.write_manifest(folder, {'source': 'synthetic', 'subsets': splits})
  return folder


@pytest.fixture
def old_job(tmp_path):
  """A copy, in `tmp_path`, of a trained ResNet-8's job dir, which knows no younger option."""
  return shutil.copytree(f'{checkout.OLD_JOBS}/resnet8', tmp_path / 'job')


@pytest.fixture
def graph():
  """A v1 graph, which is where the Estimator builds all: eager tests would miss faults."""
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.fixture(scope='session')
def run_main():
  """Runs cifar10_main.py in a process of its own -> CompletedProcess."""

  def run(*flags, **settings):  # In the folder in which a test is.
    return checkout.python(f'{checkout.ROOT}/cifar10_main.py', *flags, cwd=None, **settings)

  return run


@pytest.fixture
def run_here(monkeypatch, capfd):
  """Runs a command's main function in this process, without another import of TensorFlow.

  Returns a function of the flags of cifar10_main.py, or of another `command` -> CompletedProcess.
  What only a process shows (what TensorFlow writes on import, threads, its end) needs `run_main`.
  """

  def run(*flags, command=cifar10_main):
    capfd.readouterr()
    code = _exit_code(command, flags, monkeypatch)
    return subprocess.CompletedProcess(flags, code, *capfd.readouterr())

  return run


@pytest.fixture
def train(run_here, data_dir, tmp_path):
  """Trains a tiny network for four steps in `job`, or as further flags say -> CompletedProcess."""
  where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', '--train-steps', 4]
  small = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 64]
  return functools.partial(run_here, *where, *small)


@pytest.fixture(scope='session')
def run_shared():
  """As `run_here`, for fixtures that several tests share; of what Python writes."""

  def run(*flags, command=cifar10_main):
    with (
      pytest.MonkeyPatch.context() as patch,
      contextlib.redirect_stdout(io.StringIO()) as out,
      contextlib.redirect_stderr(io.StringIO()) as said,
    ):
      code = _exit_code(command, flags, patch)
    return subprocess.CompletedProcess(flags, code, out.getvalue(), said.getvalue())

  return run


def _exit_code(command, flags, monkeypatch):
  """Runs it with these flags, and with its log on the standard error of now."""
  monkeypatch.setattr(sys, 'argv', [command.__file__, *map(str, flags)])
  for kind in ('INTRA', 'INTER'):  # What the command sets is no later test's.
    monkeypatch.setenv(f'TF_NUM_{kind}OP_THREADS', '0')
  monkeypatch.setenv('MPLBACKEND', '')  # cifar10.report sets it; to matplotlib '' is none.
  handler = logging.StreamHandler()
  handler.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
  monkeypatch.setattr(logging.getLogger(), 'handlers', [handler])
  with pytest.raises(SystemExit) as end:
    cli.run_command(command.main)
  framework_config.disable_op_determinism()
  return end.value.code


@pytest.fixture
def hears_ctrl_c():
  """A shell starts what runs in its background with Ctrl-C ignored, and `nohup` with SIGHUP."""
  handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
  before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.fixture(scope='session')
def start_main():
  """Starts cifar10_main.py in a process of its own -> a context of Popen."""

  def start(*flags):
    words = [sys.executable, f'{checkout.ROOT}/cifar10_main.py', *map(str, flags)]
    streams = {'stderr': subprocess.PIPE, 'stdout': subprocess.DEVNULL, 'text': True}
    return outcome.followed(subprocess.Popen(words, **streams))

  return start


@pytest.fixture(scope='module')
def browser():
  """The Chromium of this machine, without a screen."""
  names = ('chromium', 'google-chrome', 'chromium-browser')
  found = list(filter(None, map(shutil.which, names)))
  if not found:
    pytest.skip(f'none of {", ".join(names)} is installed')
  playwright = pytest.importorskip('playwright.sync_api')
  with playwright.sync_playwright() as started:
    # In a container there is no user whom the sandbox could protect, and it does not start.
    launched = started.chromium.launch(executable_path=found[0], args=['--no-sandbox'])
    yield launched
    launched.close()
