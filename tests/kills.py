"""Kills the program with SIGKILL at random moments of its life, and runs the same command again.

  python tests/kills.py --times 50 [--kinds convert train ...] [--seed 0]

prints what came of it as JSON; benchmarks/results/kills.json is made of such lines. The moments
spread over the whole life of a run that nobody kills, start-up and end included, and are the same
for the same seed. tests/test_kills.py does a few in CI.
"""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checkout import ROOT

sys.path[:0] = [ROOT, os.path.join(ROOT, 'benchmarks')]
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

STEPS, SAVE_EVERY = 120, 20
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]
# One thread: a step that is made again makes the same loss to the last digit.
EXACTLY = ['--num-intra-threads', 1, '--num-inter-threads', 1]
TRAIN = [
  *('--train-steps', STEPS, '--eval-every-steps', 60, '--save-every-steps', SAVE_EVERY),
  *('--log-every', 1e-6, *SMALL),
]
# --restart starts the task again that is killed.
CLUSTER = ['-m', 'cifar10.local_cluster', '--workers', 1, '--ps', 1, '--restart']
DATA, JOB = ['--data-dir', 'data'], ['--job-dir', 'job']
GENERATE = [f'{ROOT}/generate_cifar10_tfrecords.py', '--data-dir', 'data', '--synthetic', 300]
MAIN = f'{ROOT}/cifar10_main.py'
KINDS = {
  'convert': GENERATE,
  'train': [MAIN, *DATA, *JOB, *TRAIN, *EXACTLY],
  'async': [*CLUSTER, '--', *DATA, *JOB, *TRAIN],
  'sync': [*CLUSTER, '--sync', '--', *DATA, *JOB, *TRAIN],
}


def run(words, folder, strike=None):
  """Runs a command; `strike(process, said)` may end something -> code, result, what it said."""
  os.makedirs(f'{folder}/temporary', exist_ok=True)
  where = {**os.environ, 'TMPDIR': f'{folder}/temporary', 'PYTHONPATH': ROOT}
  with tempfile.TemporaryFile('w+') as said:
    streams = {'stdout': subprocess.PIPE, 'stderr': said, 'text': True, 'cwd': folder}
    command = [sys.executable, *map(str, words)]
    with subprocess.Popen(command, env=where, **streams) as process:
      try:
        if strike:
          strike(process, said)
        output, _ = process.communicate(timeout=600)
      finally:
        process.terminate()
    said.seek(0)
    result = json.loads(output.splitlines()[-1]) if process.returncode == 0 else {}
    return process.returncode, result, said.read()


def succeeded(ran):
  code, result, said = ran
  assert code == 0 and 'Traceback' not in said, said
  return result, said


def after(seconds, chosen):
  """Kills the process itself, or one of the tasks that it says it has started."""

  def strike(process, said):
    with contextlib.suppress(subprocess.TimeoutExpired):
      process.wait(seconds)
    said.seek(0)
    tasks = re.findall(r'\w+ \d+ \| started as process (\d+)', said.read())
    said.seek(0, os.SEEK_END)
    if process.poll() is not None:
      return
    with contextlib.suppress(ProcessLookupError):
      os.kill(int(chosen.choice(tasks)) if tasks else process.pid, signal.SIGKILL)

  return strike


def kill_once(kind, folder, seconds, chosen, expected):
  """Kills after so many seconds, runs again, checks -> steps lost; None: it was over by then."""
  words = KINDS[kind]
  code, _, before = run(words, folder, after(seconds, chosen))
  if kind in ('async', 'sync'):
    said = before
    if code == -9 or 'ended with signal 9; starting it again' not in said:
      return None  # Before its tasks, or after them.
    assert code == 0 and 'Traceback' not in said, said
    said = '\n'.join(line for line in said.splitlines() if line.startswith('  chief 0'))
    before, _, again = said.partition('starting it again')
    check_job(f'{folder}/job')
    # Asynchronous steps are those of all tasks: between two saves the worker makes some, too.
    return lost_steps(before, again, spare=0 if kind == 'sync' else 2) if again else 0
  if code == 0:
    return None
  result, again = succeeded(run(words, folder))
  if kind == 'convert':
    assert digests(f'{folder}/data') == expected
    return 0
  assert {**result, 'checkpoint': ''} == {**expected[0], 'checkpoint': ''}
  check_job(f'{folder}/job')
  curve = losses(expected[1])
  for step, loss in [*losses(before).items(), *losses(again).items()]:
    assert loss == curve[step], f'step {step}: {loss}, not {curve[step]}'
  return lost_steps(before, again)


def losses(said):
  """What a training printed of each step."""
  found = re.findall(r' step ([\d,]+) of [\d,]+  loss (\S+)', said)
  return {int(step.replace(',', '')): float(loss) for step, loss in found}


def lost_steps(before, again, spare=0):
  """As many steps are made again as were not saved."""
  made, remade = losses(before), losses(again)
  resumed = re.search(r'resuming at step ([\d,]+)', again)
  begins = int(resumed[1].replace(',', '')) if resumed else 0
  begins = begins if remade else STEPS  # Killed after the last step.
  lost = max(max(made, default=0) - begins, 0)
  assert lost <= SAVE_EVERY + spare, f'{lost} steps lost'
  return lost


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
  import tensorflow as tf  # noqa: PLC0415 - it takes seconds, which --help does not need

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


def kill(kind, times, seed, folder):
  """Kills one kind so many times -> what came of it."""
  chosen = random.Random(f'{kind} {seed}')
  os.makedirs(f'{folder}/prepared')
  if kind != 'convert':
    succeeded(run(GENERATE, f'{folder}/prepared'))
  whole = shutil.copytree(f'{folder}/prepared', f'{folder}/whole')
  since = time.monotonic()
  expected = succeeded(run(KINDS[kind], whole))
  life = time.monotonic() - since
  expected = digests(f'{whole}/data') if kind == 'convert' else expected
  lost, failures, left = [], [], []
  for _ in range(10 * times):
    seconds, place = chosen.uniform(0, life), f'{folder}/run'
    shutil.copytree(f'{folder}/prepared', place)
    try:
      found = kill_once(kind, place, seconds, chosen, expected)
    except AssertionError as failed:
      found = f'after {seconds:.2f} s: {failed}'
      failures.append(found)
    left += os.listdir(f'{place}/temporary')
    shutil.rmtree(place)
    lost += [] if found is None else [found]
    print(f'{kind} {len(lost)}: after {seconds:.2f} s: {found}', file=sys.stderr, flush=True)
    if len(lost) == times:
      break
  return {
    'kills': len(lost),
    'reruns_that_kept_all_promises': len(lost) - len(failures),
    'most_steps_lost': max((each for each in lost if isinstance(each, int)), default=None),
    'temporary_files_left': len(left),
    'failures': failures,
  }


def main():
  """Kills, and prints the record."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--times', type=int, default=50, help='each (default: 50)')
  parser.add_argument('--kinds', nargs='+', choices=KINDS, default=list(KINDS))
  parser.add_argument('--seed', type=int, default=0, help='of the moments')
  flags = parser.parse_args()
  import environment  # noqa: PLC0415 - it imports TensorFlow

  command = f'python tests/kills.py --times {flags.times} --kinds {" ".join(flags.kinds)}'
  record = {'name': 'kills', 'command': command, 'seed': flags.seed, **environment.describe()}
  for kind in flags.kinds:
    with tempfile.TemporaryDirectory() as folder:
      record[kind] = kill(kind, flags.times, flags.seed, folder)
  print(json.dumps({**record, 'steps_between_saves': SAVE_EVERY}))


if __name__ == '__main__':
  main()
