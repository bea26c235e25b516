"""Every instant of a command: it is killed, or its disk fails, at each call that faults.c knows.

  python tests/faults.py train [--outcomes KILL,TORN,FULL,BROKEN,TIME] [--sample 20] [--seed 0]
  python tests/faults.py train --only KILL:17

First an undisturbed run: faults.c, between the program and the C library, numbers the calls that
change the job dir (for `convert`, the data dir). Then, for every call and every outcome, the
command starts from the same files and meets it at that call; it runs again without, and what it
leaves must be what the undisturbed run left: each variable of each checkpoint, best/, the list of
checkpoints, the evaluations, nothing half written. Each run is a fork of one process, which has
TensorFlow.

  KILL    killed before the call
  TORN    killed after half of a write
  FULL    no space left on the device, from that call on
  BROKEN  an input/output error, of that call alone
  TIME    killed at a random moment of its life: `TIME:5` is the fifth of the seed; needs --sample

Prints a line for each point where something else came out, and a last line of JSON.
"""

import argparse
import ctypes
import functools
import glob
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import checkout
import numpy as np
import tqdm

OUTCOMES = ('KILL', 'TORN', 'FULL', 'BROKEN', 'TIME')  # The first four as in faults.c.
LIBRARY = 'CIFAR10_FAULTS'  # In the environment of the process that has loaded it.
# One thread: a step that is made again has the same values to the last bit.
SMALL = '--num-layers 8 --train-batch-size 8 --eval-batch-size 64'
TRAIN = f'cifar10_main.py --data-dir data --job-dir job {SMALL} --num-intra-threads 1'
COMMANDS = {
  'convert': 'generate_cifar10_tfrecords.py --data-dir data --synthetic 20',
  # Five saves, two of them evaluated on the way, and best checkpoints.
  'train': f'{TRAIN} --train-steps 12 --save-every-steps 4 --eval-every-steps 6',
  # As early as its first evaluation says.
  'stop': f'{TRAIN} --train-steps 40 --eval-every-steps 4 --stop-at-accuracy 0.05',
  'export': 'cifar10_main.py --job-dir job --mode export',
}
ROWS = ('train', 'save')
BEFORE = {'convert': [], 'train': ['convert'], 'stop': ['convert'], 'export': ['convert', 'train']}


def watched(name):
  return 'data' if name == 'convert' else 'job'


def run(name, folder, call=0, outcome='KILL', seconds=0):
  """Runs a command in a fork of this process, with a fault -> its code, its calls, what it said."""
  for stream in ('calls', 'said', 'result'):
    pathlib.Path(folder, stream).write_text('')
  if child := os.fork():
    _, status = os.waitpid(child, 0)
    calls, said = (pathlib.Path(folder, stream).read_text() for stream in ('calls', 'said'))
    return os.waitstatus_to_exitcode(status), calls.splitlines(), said
  code = 70
  try:
    os.chdir(folder)
    tempfile.tempdir = os.path.join(folder, 'temporary')
    for descriptor, stream in ((1, 'result'), (2, 'said')):
      os.dup2(os.open(stream, os.O_WRONLY), descriptor)
    path, record = os.path.join(folder, watched(name)), os.open('calls', os.O_WRONLY)
    ctypes.CDLL(os.environ[LIBRARY]).arm(path.encode(), call, OUTCOMES.index(outcome), record)
    sys.argv = COMMANDS[name].split()
    signal.setitimer(signal.ITIMER_REAL, seconds)  # Whose signal ends the process as SIGKILL does.
    PROGRAMS[sys.argv[0]].run()
  except SystemExit as end:
    code = end.code
  except BaseException:
    traceback.print_exc()
  finally:
    sys.stderr.flush()
    os._exit(code)


def digest(content):
  return hashlib.sha256(content).hexdigest()


def variables(prefix):
  """A digest of every variable of a checkpoint."""
  reader = tf.train.load_checkpoint(prefix)
  names = sorted(reader.get_variable_to_shape_map())
  return {name: digest(np.asarray(reader.get_tensor(name)).tobytes()) for name in names}


def left(name, folder):
  """What a command has left behind, without what the time of day changes."""
  paths = glob.glob(f'{folder}/{watched(name)}/**', recursive=True)
  contents = {path.removeprefix(f'{folder}/'): path for path in paths if os.path.isfile(path)}
  # An export that was killed leaves its folder, which might be another's; one that may not delete
  # TensorFlow's own half has that beside the whole.
  half = [path for path in contents if re.search(r'\.tmp|temp', path)]
  is_ours = re.compile('(?!job/temp-|job/export/[0-9]*/variables/variables_temp)')
  assert not list(filter(is_ours.match, half)), f'half written: {half}'
  if name == 'convert':
    return {path: digest(pathlib.Path(whole).read_bytes()) for path, whole in contents.items()}
  prefixes = [path.removesuffix('.index') for path in contents if path.endswith('.index')]
  found = {path: variables(f'{folder}/{path}') for path in prefixes if f'{path}.index' not in half}
  if name == 'export':  # Named by the time; where the first was whole before the fault, two are.
    exports = [values for path, values in found.items() if path.startswith('job/export/')]
    return {json.dumps(values): 'exported' for values in exports}
  for path in {'job/best/best.json', 'job/checkpoint', 'job/ended.json'} & contents.keys():
    found[path] = re.sub('"time": .*', '', pathlib.Path(folder, path).read_text())
  text = pathlib.Path(folder, 'job/metrics.jsonl').read_text()
  rows = [json.loads(line) for line in text.splitlines()]
  trained, saved = ([row['step'] for row in rows if row['event'] == name] for name in ROWS)
  # The means of a training that a fault ended have a row of their own. Who finds the last step
  # saved neither trains nor saves: its rows may be missing.
  assert sorted(set(trained)) == trained and sorted(set(saved)) == saved, (trained, saved)
  found['save'] = [step for step in saved if step < rows[-1]['step']]
  evaluations = [row for row in rows if row['event'] == 'evaluate']
  for row in evaluations:
    found[row['step'], row['subset']] = row['accuracy'], row['cross_entropy']
  found['evaluations'] = len(evaluations)
  return found


def meet(name, start, expected, life, point):
  """Runs with a fault, then without -> whether the fault was met, what is wrong ('' if nothing)."""
  outcome, number = point
  seconds = 0.0
  if outcome == 'TIME':
    seconds = random.Random(f'{SEED} {number}').uniform(0, life)
  with tempfile.TemporaryDirectory() as folder:
    shutil.copytree(start, folder, dirs_exist_ok=True)
    if seconds:
      code, calls, said = run(name, folder, seconds=seconds)
    else:
      code, calls, said = run(name, folder, number, outcome)
    what = f'{outcome}:{number}'
    try:
      is_met = len(calls) >= number  # Else over before: a thread wrote less often this time.
      if outcome == 'TIME':
        assert code in (0, -signal.SIGALRM), f'code {code}: {said}'
        is_met = code != 0
      elif is_met:
        what += f' ({calls[number - 1].partition(" ")[2]})'
        check_end(outcome, code, said)
      code, _, again = run(name, folder)
      assert code == 0 and 'Traceback' not in again, f'then code {code}: {again}'
      found = left(name, folder)
      differing = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
      assert not differing, [(key, found.get(key), expected.get(key)) for key in differing]
    except AssertionError as error:
      return True, f'{what}: {error}'
  return is_met, ''


def check_end(outcome, code, said):
  """A kill kills. Of a disk one line tells, with code 1, or the command does without the call."""
  if outcome in ('KILL', 'TORN'):
    assert code == -signal.SIGKILL, f'code {code}: {said}'
    return
  # The thread that writes TensorFlow's summaries prints a traceback of its own.
  own = said.partition('Exception in thread EventLoggerThread')[0]
  assert code in (0, 1) and 'Traceback' not in own, f'code {code}: {said}'
  errors = re.findall('^error: .*', said, re.MULTILINE)
  assert len(errors) == code, f'code {code}: {said}'


def points_of(calls, outcomes, sample):
  """All points, or so many that the seed draws; of moments so many in any case."""
  timed = [('TIME', number) for number in range(sample or 0) if 'TIME' in outcomes]
  counted = [
    (outcome, number)
    for outcome in set(outcomes) - {'TIME'}
    for number, call in enumerate(calls, 1)
    if outcome != 'TORN' or call.split()[1] == 'write'
  ]
  if sample and counted:
    counted = random.Random(SEED).sample(sorted(counted), sample)
  return timed + counted


def load():
  """Starts this script again with the library of faults.c loaded, unless it is."""
  if LIBRARY in os.environ:
    return
  library = os.path.join(tempfile.mkdtemp(), 'faults.so')
  source = os.path.join(checkout.ROOT, 'tests', 'faults.c')
  command = ['cc', '-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', library, source, '-ldl']
  subprocess.run(command, check=True)
  os.environ.update({LIBRARY: library, 'LD_PRELOAD': library})
  os.execv(sys.executable, [sys.executable, *sys.argv])


def main():
  with tempfile.TemporaryDirectory() as folder:
    start, whole = f'{folder}/start', f'{folder}/whole'
    os.makedirs(f'{start}/temporary')
    for before in BEFORE[FLAGS.command]:
      code, _, said = run(before, start)
      assert code == 0, said
    shutil.copytree(start, whole)
    since = time.monotonic()
    code, calls, said = run(FLAGS.command, whole)
    life = time.monotonic() - since
    assert code == 0, said
    points = points_of(calls, FLAGS.outcomes.split(','), FLAGS.sample)
    if FLAGS.only:
      outcome, _, number = FLAGS.only.partition(':')
      points = [(outcome, int(number))]
    each = functools.partial(meet, FLAGS.command, start, left(FLAGS.command, whole), life)
    failed = missed = 0
    with multiprocessing.get_context('fork').Pool(FLAGS.jobs) as pool:
      results = pool.imap_unordered(each, points)
      for is_met, wrong in tqdm.tqdm(results, total=len(points), unit=' points'):
        missed += not is_met
        if wrong:
          failed += 1
          tqdm.tqdm.write(wrong if FLAGS.only else f'{wrong[:400]!r}', file=sys.stderr)
  counts = {'calls': len(calls), 'points': len(points), 'missed': missed, 'failed': failed}
  print(json.dumps({'command': FLAGS.command, 'outcomes': FLAGS.outcomes, 'seed': SEED, **counts}))
  sys.exit(bool(failed))


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('command', choices=COMMANDS)
  parser.add_argument('--outcomes', default='KILL,TORN,FULL,BROKEN')
  parser.add_argument('--sample', type=int, help='so many points that the seed draws; default: all')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--only', help='one point, as its line begins: KILL:17')
  parser.add_argument('--jobs', type=int, default=2, help='runs side by side')
  FLAGS = parser.parse_args()
  SEED = FLAGS.seed
  if FLAGS.outcomes == 'TIME' and not FLAGS.sample:
    parser.error('--outcomes TIME needs --sample')
  load()
  sys.path[0] = checkout.ROOT
  os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
  import tensorflow as tf

  import cifar10_main
  import generate_cifar10_tfrecords
  from cifar10 import api  # noqa: F401  (all that the commands import is there before a fork)

  PROGRAMS = {
    'cifar10_main.py': cifar10_main,
    'generate_cifar10_tfrecords.py': generate_cifar10_tfrecords,
  }
  try:
    main()
  finally:
    shutil.rmtree(os.path.dirname(os.environ[LIBRARY]))
