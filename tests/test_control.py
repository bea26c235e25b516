"""Steering a training that runs: real processes, from outside."""

import json
import os
import signal
import subprocess
import sys

import checkout
import pytest
from outcome import events, followed, refused, succeeded, until

import cifar10.control
from cifar10.job import control_requests, job_config

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 8, '--eval-batch-size', 64]


def control(job_dir, order):
  return checkout.python('-m', 'cifar10.control', job_dir, order)


def obeyed(job_dir, order):
  result = control(job_dir, order)
  answer = succeeded(result)
  assert result.stderr.splitlines() == [answer['answer']]
  return answer['answer']


def learning_rates(job_dir):
  return [event['learning_rate'] for event in events(job_dir, 'train')]


@pytest.mark.slow
def test_a_training_is_steered(start_main, run_here, data_dir, tmp_path):
  """Everything that can be ordered, in one life of a job; and what a resume keeps."""
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL]
  flags += ['--eval-every-steps', 10**6, '--log-every', 1, '--train-steps', 10**6]
  with start_main(*flags) as process:
    until(lambda: learning_rates(job), 200)
    assert learning_rates(job)[0] == pytest.approx(0.1)
    assert 'learning_rate=0.025 after step' in obeyed(job, 'learning_rate=0.025')
    until(lambda: learning_rates(job)[-1] == pytest.approx(0.025), 200)
    assert json.loads((job / 'config.json').read_text())['control'] == {'learning_rate': 0.025}

    (job / 'hyper.txt').write_text('learning_rate: 0.03\nnonsense\n')
    until(lambda: learning_rates(job)[-1] == pytest.approx(0.03), 200)

    saved = obeyed(job, 'save').removeprefix('saved ')
    assert os.path.exists(saved + '.index')
    answer = obeyed(job, 'evaluate')
    [evaluation] = events(job, 'evaluate')
    assert answer.startswith(f'accuracy {evaluation["accuracy"]:.4f} on validation with ')

    for refused in ('go-on', 'muon_learning_rate=0.1'):
      said = control(job, refused)
      assert said.returncode == 2
      assert said.stderr.startswith(f'{refused.partition("=")[0]}: this job trains')
    assert 'training ends after step' in obeyed(job, 'stop')
    assert process.wait(200) == 0
  assert [event['command'] for event in events(job, 'control')] == [
    'learning_rate=0.025',
    'learning_rate=0.03',
    'save',
    'evaluate',
    'stop',
  ]
  assert events(job, 'end')[-1]['reason'] == 'control'

  over = run_here(*flags)
  step = succeeded(over)['global_step']
  assert f'the job ended at step {step:,}: stopped by control at step' in over.stderr
  assert obeyed(job, 'go-on') == 'the job goes on when it is started'
  on = run_here(*flags[:-1], step + 2)
  assert json.loads(on.stdout)['global_step'] == step + 2
  assert 'learning_rate is 0.03, as control set it' in on.stderr
  assert learning_rates(job)[-1] == pytest.approx(0.03)


def test_nobody_trains(run_here, tmp_path):
  result = run_here(tmp_path, 'go-on', command=cifar10.control)
  assert (result.returncode, result.stdout) == (1, '')
  assert result.stderr.startswith(f'error: the job in {tmp_path} has not ended early; ')
  refused(run_here(tmp_path, 'learning_rate=fast', command=cifar10.control), at_once=True)
  assert os.listdir(tmp_path) == []


def test_a_rate_that_spoils_the_job_is_taken_back(train, tmp_path):
  """While nobody trains: a training with that rate would only end again."""
  job = tmp_path / 'job'
  flags = ['--mode', 'train', '--save-every-steps', 1, '--train-steps']
  assert train(*flags, 1).returncode == 0
  control_requests.remember_rates(str(job), {'learning_rate': 1e30})
  last = refused(train(*flags, 6))
  assert 'the loss became NaN with learning_rate=1e+30, as control set it' in last
  assert f'`python -m cifar10.control {job} learning_rate=schedule` goes back' in last
  answer = obeyed(job, 'learning_rate=schedule')
  assert answer == 'learning_rate follows the schedule when the job is started'
  assert 'control' not in json.loads((job / 'config.json').read_text())
  assert control(job, 'learning_rate=schedule').returncode == 1  # There is nothing to take back.


def test_an_order_that_nobody_waits_for_is_withdrawn(tmp_path):
  with job_config.training_lock(str(tmp_path)):
    command = [sys.executable, '-m', 'cifar10.control', str(tmp_path), 'save']
    started = subprocess.Popen(command, cwd=checkout.ROOT, stderr=subprocess.PIPE, text=True)
    with followed(started) as process:
      until(lambda: list((tmp_path / 'control').glob('request-*.json')), 200)
      process.send_signal(signal.SIGTERM)
      assert process.wait(60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path / 'control') == []
