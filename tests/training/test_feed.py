"""Training and evaluating on a Python source: as the program does it."""

import functools
import importlib
import json
import os
import re
import signal
import subprocess
import sys

import given_sources
import numpy as np
import pytest
from checkout import ROOT
from outcome import events, followed, refused, succeeded, until

import cifar10
from cifar10 import report
from cifar10.core import user_code
from cifar10.data.python_source import PythonSource

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 64]
GIVEN = {'network': 'tiny_network:Tiny', 'train_batch_size': 16, 'mode': 'train'}


@pytest.mark.slow
def test_a_job_trains_resumes_and_remembers(train, run_here, data_dir, tmp_path):
  flags = ['--mode', 'train', '--examples-per-epoch', 96, '--eval-every-steps', 3, '--source']
  result = train('--train-steps', 6, *flags, 'given_sources:ones')
  assert succeeded(result)['global_step'] == 6
  assert 'on 96 examples' in result.stderr
  config = json.loads((tmp_path / 'job' / 'config.json').read_text())
  assert (config['source'], config['examples_per_epoch']) == ('given_sources:ones', 96)
  [start] = events(tmp_path / 'job', 'start')
  assert start['options']['source'] == 'given_sources:ones'
  assert start['examples_per_epoch'] == 96
  # A job dir belongs to its source, which need not be said again.
  said = refused(train('--train-steps', 8, *flags, 'given_sources:listed'))
  assert 'source is given_sources:ones there and given_sources:listed here' in said
  resumed = train('--mode', 'train', '--train-steps', 8, '--eval-every-steps', 4).stderr
  assert 'resuming at step 6' in resumed
  assert 'on 96 examples' in resumed
  assert 'unlike before in this job: eval_every_steps 3 -> 4, train_steps 6 -> 8\n' in resumed
  evaluate = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', '--mode', 'evaluate']
  assert succeeded(run_here(*evaluate))['examples'] == 70


def test_python_takes_a_function_and_an_iterable_as_it_stands(data_dir, tmp_path):
  for number, source in enumerate((given_sources.Flow, given_sources.listed())):
    job = tmp_path / str(number)
    for steps in (2, 4):
      assert cifar10.train(job, data_dir, source=source, train_steps=steps, **GIVEN)
    named = json.loads((job / 'config.json').read_text())['source']
    assert named == ('given_sources:Flow', 'given:list')[number]
  with pytest.raises(cifar10.InputError, match=r'given:list is an object .*; give it again'):
    cifar10.train(job, data_dir, train_steps=6, **GIVEN)


@pytest.mark.parametrize('is_dict', [False, True])
def test_a_loader_like_pytorchs_is_a_source(data_dir, tmp_path, monkeypatch, is_dict):
  """Batches of 32, float NCHW, which are the numbered images."""
  monkeypatch.syspath_prepend(os.path.join(ROOT, 'examples'))
  images, labels = map(np.stack, zip(*given_sources.listed()))
  floats = np.float32(images.transpose(0, 3, 1, 2) / 255)
  batches = [(floats[start : start + 32], labels[start : start + 32]) for start in (0, 32, 64)]
  loader = [dict(zip(('image', 'label'), pair)) if is_dict else list(pair) for pair in batches]
  source = importlib.import_module('torch_loader').TorchLoader(loader)
  found = PythonSource('--source', user_code.given(source), 10)
  assert found.num_examples_per_epoch() == 96
  for there, made in zip((images, labels), found.all_examples(), strict=True):
    np.testing.assert_array_equal(made, there)
  assert cifar10.train(tmp_path / 'job', data_dir, source=source, train_steps=2, **GIVEN)


def test_a_source_in_place_of_the_validation_split(train, run_here, data_dir, tmp_path):
  """Its 96 examples choose best/ and end training; evaluations and reports of the job read it."""
  job = tmp_path / 'job'
  source = ['--validation-source', 'given_sources:shuffled', '--source', 'given_sources:Flow']
  steps = ['--train-steps', 6, '--eval-every-steps', 2, '--stop-at-accuracy', 0]
  assert succeeded(train(*source, *steps))['ended_by'] == 'stop_at_accuracy'
  found = [(each['subset'], each['examples']) for each in events(job, 'evaluate')]
  assert found == [('validation', 96), ('eval', 70)]
  assert os.listdir(job / 'best')
  evaluate = ['--mode', 'evaluate', '--subset', 'validation', '--checkpoint', 'best']
  evaluated = json.loads(run_here('--data-dir', data_dir, '--job-dir', job, *evaluate).stdout)
  assert evaluated['accuracy'] == events(job, 'evaluate')[0]['accuracy']
  exported = succeeded(run_here('--job-dir', job, '--mode', 'export', '--checkpoint', 'best'))
  assert exported['checkpoint'] == evaluated['checkpoint']
  table = run_here(job, '--data-dir', data_dir, '--subset', 'validation', '--table', command=report)
  [said] = succeeded(table)['jobs']
  assert said['evaluation']['examples'] == 96
  for name in ('accuracy', 'cross_entropy'):  # Each image has its own label.
    found = said['evaluation'][name]['value']
    assert found == pytest.approx(evaluated[name], rel=1e-5)


@pytest.mark.parametrize(
  ('flag', 'source', 'more', 'code'),
  [
    ('--source', 'raises_first', [], 2),
    ('--source', 'raises_late', ['--examples-per-epoch', 96], 1),
    ('--validation-source', 'no_pair', [], 2),
    ('--validation-source', 'late_label', [], 1),
  ],
)
def test_what_is_wrong_is_one_line(train, tmp_path, *, flag, source, more, code):
  """What is found before training leaves no job dir."""
  result = train('--train-steps', 20, flag, f'given_sources:{source}', *more)
  assert result.returncode == code, result.stderr
  [*before, said] = result.stderr.splitlines()
  assert said.startswith(f'error: {flag} given_sources:{source}: example ')
  assert 'Traceback' not in result.stderr
  assert bool(before) == (tmp_path / 'job').exists() == (code == 1)
  ends = events(tmp_path / 'job', 'end')
  assert [end['reason'] for end in ends] == ['error'] * (2 - code)
  assert all(end['message'].startswith(f'SourceError: {flag} given_sources:') for end in ends)


@pytest.fixture
def started(start_main, data_dir, tmp_path, monkeypatch):
  """Starts a training on a source in a process of its own, which imports what these tests do."""
  monkeypatch.setenv('PYTHONPATH', os.pathsep.join(sys.path))
  where = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--mode', 'train', '--source']
  return functools.partial(start_main, *where)


@pytest.mark.slow
def test_a_source_that_hangs_lets_sigterm_end_the_training(started, tmp_path):
  """Of 1,024 examples 10 blocks of 96 are made 60 batches; the last checkpoint stays."""
  flags = ['--examples-per-epoch', 96, '--train-steps', 10**6, '--eval-every-steps', 20]
  with started('given_sources:stuck', *flags) as process:
    until((tmp_path / 'model.ckpt-60.index').exists, 300, process)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
  assert process.returncode == 143, log
  assert 'goes on from the last checkpoint' in log.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['parallel_source:images', 'remote_source:images'])
def test_the_examples_train(started, tmp_path, monkeypatch, name):
  """Their 40,000 images; the checks of the first ones leave no process behind."""
  server = [sys.executable, '-u', os.path.join(ROOT, 'examples', 'remote_source.py'), '0']
  serving = subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  with followed(serving):
    port = re.search('[0-9]+', serving.stdout.readline())[0]
    monkeypatch.setenv('SERVER', f'127.0.0.1:{port}')
    flags = ['--train-batch-size', 128, '--train-steps', 320, '--examples-per-epoch', 40_000]
    with started(name, *flags) as process:
      _, log = process.communicate(timeout=300)
    serving.terminate()
    assert 'Traceback' not in serving.communicate()[1]
  assert process.returncode == 0, log
  assert [end['step'] for end in events(tmp_path, 'end')] == [320]  # 312.5 steps are an epoch.
  assert 'on 40,000 examples' in log
