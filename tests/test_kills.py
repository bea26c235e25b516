"""Kills the program with SIGKILL at random moments of its life, and runs the same command again.

The moments spread over the whole life of a run that nobody kills, start-up and end included, and
are the same for the same seed. benchmarks/results/kills.json has what came of fifty of each kind.
"""

import contextlib
import glob
import hashlib
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
# One thread: a step that is made again makes the same loss to the last digit.
EXACTLY = ['--num-intra-threads', 1, '--num-inter-threads', 1]
TRAIN = [
  *('--train-steps', STEPS, '--eval-every-steps', 60, '--save-every-steps', SAVE_EVERY),
  *('--log-every', 1e-6, *SMALL),
]
CLUSTER = ['-m', 'cifar10.local_cluster', '--workers', 1, '--ps', 1]
DATA, JOB = ['--data-dir', 'data'], ['--job-dir', 'job']
GENERATE = [f'{ROOT}/generate_cifar10_tfrecords.py', '--data-dir', 'data', '--synthetic', 300]
KINDS = {
  'convert': GENERATE,
  'train': [f'{ROOT}/cifar10_main.py', *DATA, *JOB, *TRAIN, *EXACTLY],
  'async': [*CLUSTER, '--', *DATA, *JOB, *TRAIN],
  'sync': [*CLUSTER, '--sync', '--', *DATA, *JOB, *TRAIN],
}
CLUSTERS = ('async', 'sync')
SLOW, LONG = [pytest.mark.slow], [pytest.mark.cluster, pytest.mark.long]


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


def kill_once(kind, folder, seconds, chosen, expected):
  """Kills after so many seconds, runs again and checks; returns whether it was not over by then."""
  code, before = killed(KINDS[kind], folder, seconds, chosen)
  is_cluster = kind in CLUSTERS
  if code == 0 or (is_cluster and code == -9):  # Before its tasks, whose chief still saves.
    return False
  result, again = finished(KINDS[kind], folder)
  if kind == 'convert':
    assert digests(f'{folder}/data') == expected
    return True
  if is_cluster:  # Of which a task was killed: it ends the others.
    assert code == 128 + signal.SIGKILL and 'Traceback' not in before, before
    check_job(f'{folder}/job')
    # Asynchronous steps are those of all tasks: between two saves the worker makes some, too.
    spare = 0 if kind == 'sync' else 2
    check_lost_steps(of_chief(before), of_chief(again), spare)
    return True
  assert {**result, 'checkpoint': ''} == {**expected[0], 'checkpoint': ''}
  check_job(f'{folder}/job')
  curve = losses(expected[1])
  for step, loss in [*losses(before).items(), *losses(again).items()]:
    assert loss == curve[step], f'step {step}: {loss}, not {curve[step]}'
  check_lost_steps(before, again)
  return True


def of_chief(said):
  return '\n'.join(line for line in said.splitlines() if line.startswith('  chief 0'))


def losses(said):
  """What a training printed of each step."""
  found = re.findall(r' step ([\d,]+) of [\d,]+  loss (\S+)', said)
  return {int(step.replace(',', '')): float(loss) for step, loss in found}


def check_lost_steps(before, again, spare=0):
  """As many steps are made again as were not saved."""
  if not again:
    return
  resumed = re.search(r'resuming at step ([\d,]+)', again)
  begins = int(resumed[1].replace(',', '')) if resumed else 0
  begins = begins if losses(again) else STEPS  # Killed after the last step.
  assert max(losses(before), default=0) - begins <= SAVE_EVERY + spare


def digests(folder):
  """Of all files but the lock, by name; a half file would be among them."""
  found = {}
  paths = glob.glob(f'{folder}/**', recursive=True)
  for path in filter(os.path.isfile, set(paths) - {f'{folder}/cifar10.lock'}):
    with open(path, 'rb') as file:
      found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
  return found


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


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
  'kind', [pytest.param(kind, marks=LONG if kind in CLUSTERS else SLOW) for kind in KINDS]
)
def test_a_rerun_after_a_kill_keeps_all_promises(tmp_path, kind):
  """It succeeds, loses no saved step, and leaves nothing half written."""
  chosen = random.Random(f'{kind} 7')
  prepared, whole = tmp_path / 'prepared', tmp_path / 'whole'
  prepared.mkdir()
  if kind != 'convert':
    finished(GENERATE, prepared)
  shutil.copytree(prepared, whole)
  since = time.monotonic()
  expected = finished(KINDS[kind], whole)
  life = time.monotonic() - since
  expected = digests(f'{whole}/data') if kind == 'convert' else expected
  for number in range(10):
    place = shutil.copytree(prepared, tmp_path / str(number))
    is_killed = kill_once(kind, place, chosen.uniform(0, life), chosen, expected)
    assert os.listdir(place / 'temporary') == []
    if is_killed:
      return
  pytest.fail('the process was over each time')
