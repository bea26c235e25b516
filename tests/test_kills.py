"""Kills the program, or fails its disk, and runs the same command again.

tests/faults.py does it to one process, at every call that changes a file: here at some of them. In
a cluster a random task is killed at a random moment of the life of a run that nobody kills.
benchmarks/results/faults.json has what came of the points that were tried.
"""

import contextlib
import glob
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import checkout
import pytest
import tensorflow as tf
from checkout import ROOT
from outcome import followed, succeeded

STEPS, SAVE_EVERY = 120, 20
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]
TRAIN = [
  *('--train-steps', STEPS, '--eval-every-steps', 60, '--save-every-steps', SAVE_EVERY),
  *('--log-every', 1e-6, *SMALL),
]
CLUSTER = ['-m', 'cifar10.local_cluster', '--workers', 1, '--ps', 1]
DATA, JOB = ['--data-dir', 'data'], ['--job-dir', 'job']
GENERATE = [f'{ROOT}/generate_cifar10_tfrecords.py', '--data-dir', 'data', '--synthetic', 300]
KINDS = {
  'async': [*CLUSTER, '--', *DATA, *JOB, *TRAIN],
  'sync': [*CLUSTER, '--sync', '--', *DATA, *JOB, *TRAIN],
}


def environment(folder):
  os.makedirs(f'{folder}/temporary', exist_ok=True)
  return {**os.environ, 'TMPDIR': f'{folder}/temporary', 'PYTHONPATH': ROOT}


def finished(words, folder):
  """Runs a command to its end -> its result, what it said."""
  ran = checkout.python(*words, cwd=folder, env=environment(folder), timeout=600)
  assert 'Traceback' not in ran.stderr, ran.stderr
  return succeeded(ran), ran.stderr


def killed(words, folder, seconds, chosen):
  """Kills a command, or one of the tasks that it says it has started -> code, what it said."""
  command, log = [sys.executable, *map(str, words)], f'{folder}/log'
  with open(log, 'w', encoding='utf-8') as said:
    streams = {'stdout': subprocess.DEVNULL, 'stderr': said, 'cwd': folder}
    process = subprocess.Popen(command, env=environment(folder), **streams)
    with followed(process, subprocess.Popen.terminate):
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
      tasks = re.findall(r'\w+ \d+ \| started as process (\d+)', pathlib.Path(log).read_text())
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          os.kill(int(chosen.choice(tasks)) if tasks else process.pid, signal.SIGKILL)
      code = process.wait(600)
  return code, pathlib.Path(log).read_text()


def kill_once(kind, folder, seconds, chosen):
  """Kills after so many seconds, runs again and checks; returns whether it was not over by then."""
  code, before = killed(KINDS[kind], folder, seconds, chosen)
  if code in (0, -9):  # Over, or before its tasks, whose chief still saves.
    return False
  _, again = finished(KINDS[kind], folder)
  # A task was killed: it ends the others.
  assert code == 128 + signal.SIGKILL and 'Traceback' not in before, before
  check_job(f'{folder}/job')
  # Asynchronous steps are those of all tasks: between two saves the worker makes some, too.
  check_lost_steps(of_chief(before), of_chief(again), 0 if kind == 'sync' else 2)
  return True


def of_chief(said):
  return '\n'.join(line for line in said.splitlines() if line.startswith('  chief 0'))


def losses(said):
  """What a training printed of each step."""
  found = re.findall(r' step ([\d,]+) of [\d,]+  loss (\S+)', said)
  return {int(step.replace(',', '')): float(loss) for step, loss in found}


def check_lost_steps(before, again, spare):
  """As many steps are made again as were not saved."""
  if not again:
    return
  resumed = re.search(r'resuming at step ([\d,]+)', again)
  begins = int(resumed[1].replace(',', '')) if resumed else 0
  begins = begins if losses(again) else STEPS  # Killed after the last step.
  assert max(losses(before), default=0) - begins <= SAVE_EVERY + spare


def check_job(job):
  """No step twice in metrics.jsonl; every checkpoint whole; nothing half left."""
  with open(f'{job}/metrics.jsonl', encoding='utf-8') as file:
    events = [json.loads(line) for line in file]
  for name in ('train', 'save', 'evaluate'):
    found = [(e['step'], e.get('subset')) for e in events if e['event'] == name]
    assert len(found) == len(set(found)), (name, found)
    assert [step for step, _ in found] == sorted(step for step, _ in found), (name, found)
  for index in glob.glob(f'{job}/**/model.ckpt-*.index', recursive=True):
    reader = tf.train.load_checkpoint(index.removesuffix('.index'))
    for variable in reader.get_variable_to_shape_map():
      reader.get_tensor(variable)
  left = [p for p in glob.glob(f'{job}/**/*', recursive=True) if re.search(r'\.tmp|temp', p)]
  assert not left, left


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which('cc'), reason='faults.c needs a C compiler')
@pytest.mark.parametrize('command', ['convert', 'train', 'stop', 'export'])
def test_some_of_all_instants(command):
  """`make faults` tries all of them."""
  outcomes = ['--outcomes', 'KILL,TORN,FULL,BROKEN,TIME']
  ran = checkout.python('tests/faults.py', command, *outcomes, '--sample', 6, timeout=600)
  points = succeeded(ran)
  assert (points['points'], points['failed']) == (12, 0), ran.stderr
  assert points['missed'] <= 2, ran.stderr  # At moments near the end.
  assert points['calls'] > 40


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('kind', KINDS)
def test_a_cluster_keeps_all_promises(tmp_path, kind):
  """It succeeds after a kill, loses no saved step, and leaves nothing half written."""
  chosen = random.Random(f'{kind} 7')
  prepared, whole = tmp_path / 'prepared', tmp_path / 'whole'
  prepared.mkdir()
  finished(GENERATE, prepared)
  shutil.copytree(prepared, whole)
  since = time.monotonic()
  finished(KINDS[kind], whole)
  life = time.monotonic() - since
  for number in range(10):
    place = shutil.copytree(prepared, tmp_path / str(number))
    is_killed = kill_once(kind, place, chosen.uniform(0, life), chosen)
    assert os.listdir(place / 'temporary') == []
    if is_killed:
      return
  pytest.fail('the process was over each time')
