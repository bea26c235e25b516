"""Every instant of a command: it is killed, or its disk fails, at each call that faults.c knows.

  python tests/faults.py train [--outcomes KILL,TORN,FULL,BROKEN,TIME] [--sample 20] [--seed 0]
  python tests/faults.py train --only KILL:17

First an undisturbed run: faults.c, between the program and the C library, numbers the calls that
change the job dir (for `convert`, the data dir), whose order `check_order` judges. Then, for every
call and every outcome, the command starts from the same files and meets it at that call; it runs
again without, and what it leaves must be what the undisturbed run left: each variable of each
checkpoint, best/, the list of checkpoints, the evaluations, nothing half written.

  KILL    killed before the call
  TORN    killed after half of a write
  FULL    no space left on the device, from that call on
  BROKEN  an input/output error, of that call alone
  TIME    killed at a random moment of its life: `TIME:5` is the fifth of the seed; needs --sample

Of a cluster the calls are the chief's, and TIME kills one of the tasks. That task is started again
alone, as Kubernetes does, while the others wait for it; those of an all-reduce end by themselves,
and all are started again. Asynchronous workers never make the same variables twice: there the
checkpoints must be whole and the steps not too few. Each process is a fork of this one, which has
TensorFlow. Prints a line for each point where something else came out, or that a run did not meet,
and a last line of JSON.
"""

import argparse
import collections
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
from typing import NamedTuple

import checkout
import numpy as np
import tqdm

OUTCOMES = ('KILL', 'TORN', 'FULL', 'BROKEN', 'TIME')  # The first four as in faults.c.
LIBRARY = 'CIFAR10_FAULTS'  # In the environment of the process that has loaded it.
# One thread: a step that is made again has the same values to the last bit. Any network will do.
SMALL = '--network tiny_network:Tiny --train-batch-size 8 --eval-batch-size 64'
TRAIN = f'cifar10_main.py --data-dir data --job-dir job {SMALL} --num-intra-threads 1'
CLUSTER = f'{TRAIN} --train-steps 40 --save-every-steps 10 --start-timeout 100'
COMMANDS = {
  'convert': 'generate_cifar10_tfrecords.py --data-dir data --synthetic 20',
  # Five saves, two of them evaluated on the way, and best checkpoints.
  'train': f'{TRAIN} --train-steps 12 --save-every-steps 4 --eval-every-steps 6',
  # As early as its first evaluation says.
  'stop': f'{TRAIN} --train-steps 40 --eval-every-steps 4 --stop-at-accuracy 0.05',
  'export': 'cifar10_main.py --job-dir job --mode export',
  'sync': f'{CLUSTER} --sync --deterministic',
  'async': CLUSTER,
  'all-reduce': f'{CLUSTER} --distribute multi_worker_mirrored',
}
CLUSTERS = {'sync': (1, 1), 'async': (1, 1), 'all-reduce': (1, 0)}  # Workers, parameter servers.
BEFORE = {'convert': (), 'export': ('convert', 'train')}  # All others: `convert`.
CHIEF = 'chief 0'  # Also of a command of one process.
LOST = 138  # The exit code of who needs a task that is gone.
# What lists files, and these files' names: all of them are on the disk before a list names them.
LIST = 'checkpoint'
LISTS = {LIST: r'model\.ckpt-', 'best/best.json': r'best/model\.ckpt-'}
LONGEST_SECONDS = 200  # Of any process, which then ends as at a random moment.
END_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


class Fault(NamedTuple):
  """What a task of a command meets."""

  task: str = CHIEF
  outcome: str = 'KILL'
  call: int = 0
  seconds: float = LONGEST_SECONDS


class Tasks:
  """A command's processes in a folder, each a fork of this one; leaving the context kills them."""

  def __init__(self, name, folder):
    self._words, self._folder, self._is_async = COMMANDS[name].split(), folder, name == 'async'
    self._watched = f'{folder}/{watched(name)}'.encode()
    self._cluster = local_cluster.LocalCluster([], *CLUSTERS.get(name, (0, 0)))
    self.names = self._cluster.names
    self.running = {}

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.kill()
    self._cluster.__exit__(*exception)

  def start(self, *tasks, fault=None):
    for task in tasks:
      for stream in ('calls', 'said', 'result'):
        pathlib.Path(self._folder, f'{task} {stream}').write_text('')
      self.running[task] = os.fork()
      if not self.running[task]:
        self._become(task, fault if fault and fault.task == task else Fault())

  def _become(self, task, fault):
    """Runs the program in this process to its end."""
    code = 70
    try:
      ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
      signal.setitimer(signal.ITIMER_REAL, fault.seconds)  # Whose signal ends it as SIGKILL does.
      os.chdir(self._folder)
      tempfile.tempdir = os.path.join(self._folder, 'temporary')
      for descriptor, stream in ((1, 'result'), (2, 'said')):
        os.dup2(os.open(f'{task} {stream}', os.O_WRONLY), descriptor)
      outcome, record = OUTCOMES.index(fault.outcome), os.open(f'{task} calls', os.O_WRONLY)
      ctypes.CDLL(os.environ[LIBRARY]).arm(self._watched, fault.call, outcome, record)
      if len(self.names) > 1:
        os.environ.update(TF_CONFIG=self._cluster.tf_config(task), TF_GRPC_REUSE_PORT='1')
      sys.argv = self._words
      PROGRAMS[sys.argv[0]].run()
    except SystemExit as end:
      code = end.code
    except BaseException:
      traceback.print_exc()
    finally:
      sys.stderr.flush()
      os._exit(code)

  def wait(self, task):
    """Waits for the end of a task -> its exit code; a signal's is negative."""
    _, status = os.waitpid(self.running[task], 0)
    del self.running[task]
    return os.waitstatus_to_exitcode(status)

  def kill(self):
    for task in [*self.running]:
      os.kill(self.running[task], signal.SIGKILL)
      self.wait(task)

  def read(self, task, stream):
    return pathlib.Path(self._folder, f'{task} {stream}').read_text()

  def go_on(self, lost, code):
    """Starts the same command again after the end of a task with this code, to its end."""
    if code and 'ps 0' in self.names:
      self.start(lost)
      # A worker that nobody waits for may have made the last step without its chief.
      self.finish(allowed=(0, LOST) if self._is_async else (0,), spared={lost} - {CHIEF})
    else:
      self.finish(allowed=(0, LOST) if code else (0,))
      self.start(*self.names)
      self.finish()

  def finish(self, allowed=(0,), spared=()):
    """Waits until all have ended well; who came back too late for the end is not waited for."""
    codes = {task: self.wait(task) for task in self.names if task in {*self.running} - {*spared}}
    self.kill()
    said = ''.join(self.read(task, 'said') for task in codes)
    assert {*codes.values()} <= {*allowed} and 'Traceback' not in said, f'then {codes}: {said}'


def watched(name):
  return 'data' if name == 'convert' else 'job'


def digest(content):
  return hashlib.sha256(content).hexdigest()[:12]


def variables(prefix):
  """A digest of every variable of a checkpoint."""
  reader = tf.train.load_checkpoint(prefix)
  names = sorted(reader.get_variable_to_shape_map())
  return {name: digest(np.asarray(reader.get_tensor(name)).tobytes()) for name in names}


def events(folder, *names):
  """Those in metrics.jsonl of these names, by default all."""
  return [row for row in metrics_log.read(f'{folder}/job') if not names or row['event'] in names]


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
    del contents['data/cifar10.lock']  # Its text: who has it, or was killed.
    return {path: digest(pathlib.Path(whole).read_bytes()) for path, whole in contents.items()}
  prefixes = [path.removesuffix('.index') for path in contents if path.endswith('.index')]
  found = {path: variables(f'{folder}/{path}') for path in prefixes if f'{path}.index' not in half}
  if name == 'export':  # Named by the time; where the first was whole before the fault, two are.
    exports = [values for path, values in found.items() if path.startswith('job/export/')]
    return {json.dumps(values): 'exported' for values in exports}
  trained, saved = ([row['step'] for row in events(folder, name)] for name in ('train', 'save'))
  # The means of a training that a fault ended have a row of their own. Who finds the last step
  # saved neither trains nor saves: its rows may be missing.
  assert sorted(set(trained)) == trained and sorted(set(saved)) == saved, (trained, saved)
  evaluations = events(folder, 'evaluate')
  if name == 'async':
    return {'evaluated': {row['subset'] for row in evaluations}, 'all': listed_step(folder) >= 40}
  for path in {'job/best/best.json', 'job/checkpoint', 'job/ended.json'} & contents.keys():
    found[path] = re.sub('"time": .*', '', pathlib.Path(folder, path).read_text())
  found['save'] = [step for step in saved if step < events(folder)[-1]['step']]
  for row in evaluations:
    found[row['step'], row['subset']] = row['accuracy'], row['cross_entropy']
  found['evaluations'] = len(evaluations)
  return found


def listed_step(folder):
  """The step in the checkpoint from which a training goes on; 0 without one."""
  checkpoint = tf.train.latest_checkpoint(f'{folder}/job')
  return int(tf.train.load_variable(checkpoint, 'global_step')) if checkpoint else 0


def fault_of(point, names, life):
  """What a point of the seed is."""
  outcome, number = point
  if outcome != 'TIME':
    return Fault(CHIEF, outcome, number)
  rng = random.Random(f'{SEED} {number}')
  return Fault(seconds=rng.uniform(0, life), task=rng.choice(names))


def meet(name, start, expected, life, point):
  """Runs with a fault, then without -> 'held', 'missed' or 'failed', and what is to be told."""
  outcome, number = point
  what, is_met = f'{outcome}:{number}', True
  with tempfile.TemporaryDirectory() as folder, Tasks(name, folder) as tasks:
    shutil.copytree(start, folder, dirs_exist_ok=True)
    fault = fault_of(point, tasks.names, life)
    try:
      tasks.start(*tasks.names, fault=fault)
      code = tasks.wait(fault.task)
      said, calls = (tasks.read(fault.task, stream) for stream in ('said', 'calls'))
      if outcome == 'TIME':
        what += f' ({fault.task} after {fault.seconds:.2f} of {life:.2f} s)'
        assert code in (0, -signal.SIGALRM), f'code {code}: {said}'
        is_met = code != 0
      else:  # Else over before: a thread wrote less often this time.
        is_met = len(calls.splitlines()) >= number
      if is_met and outcome != 'TIME':
        what += f' ({calls.splitlines()[number - 1].partition(" ")[2]})'
        check_end(outcome, code, said)
      saved, starts = listed_step(folder), len(events(folder, 'start'))
      tasks.go_on(fault.task, code)
      resumed = [event['step'] for event in events(folder, 'start')[starts:]]
      # Servers of asynchronous workers may have more than was saved, before the first save.
      is_known = resumed[:1] in ([], [saved]) or (name == 'async' and saved == 0)
      assert is_known or fault.task != CHIEF, f'resumed at {resumed}, not {saved}'
      found = left(name, folder)
      differing = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
      assert not differing, [(key, found.get(key), expected.get(key)) for key in differing]
    except Exception:
      return 'failed', f'{what}: {traceback.format_exc()}'
  return ('held', '') if is_met else ('missed', f'{what}: not met')


def check_end(outcome, code, said):
  """A kill kills. Of a disk one line tells, with code 1, or the command does without the call."""
  if outcome in ('KILL', 'TORN'):
    assert code == -signal.SIGKILL, f'code {code}: {said}'
    return
  # The thread that writes TensorFlow's summaries prints a traceback of its own.
  own = said.partition('Exception in thread EventLoggerThread')[0]
  assert code in (0, 1) and 'Traceback' not in own, f'code {code}: {said}'
  errors = re.findall('^error: .*', said, re.MULTILINE)
  assert len(errors) == code and all('goes on' in line for line in errors), f'code {code}: {said}'


def check_order(calls):
  """What a loss of power may leave, by the order of the calls -> a line for each that is wrong.

  A file is flushed before it gets its final name, and before a list names it; nothing is deleted
  before a list no longer names it. TensorFlow renames the files of a checkpoint before they can be
  flushed, and never flushes its list of them, without which a training goes on as well. A manifest
  precedes its records, whose digests it has.
  """
  unflushed, unnamed, unlisted = set(), set(), set()
  for call in calls:
    _, kind, path, *old = call.split(' ')
    if kind in ('fsync', 'fdatasync'):
      unflushed.discard(path)
    elif kind in ('unlink', 'rmdir'):
      if path not in unnamed and list_of(path) in unlisted:
        yield f'{call}: no list names yet what replaces it'
      unflushed.discard(path)
      unnamed.discard(path)
    elif kind == 'rename':
      moved = {each for each in unflushed if each == old[0] or each.startswith(f'{old[0]}/')}
      is_tensorflows = LIST in (path, list_of(path)) or path.startswith('temp-')
      if moved and not is_tensorflows:
        yield f'{call}: not flushed: {sorted(moved)}'
      late = [each for each in unflushed | unnamed if list_of(each) == path]
      if late:
        yield f'{call}: not flushed, or without a name yet: {late}'
      unflushed = (unflushed - moved) | {path + each.removeprefix(old[0]) for each in moved}
      unnamed.discard(old[0])
      unlisted = (unlisted | {list_of(path)}) - {path, None}
    elif kind != 'mkdir':
      unflushed.add(path)
      unnamed |= {path} if re.search(r'\.(tmp|temp|[0-9]+\.tmp)', path) else set()


def list_of(path):
  """The list that names a file; None if none does."""
  return next((name for name, files in LISTS.items() if re.match(files, path)), None)


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


def undisturbed(name, folder):
  """Runs a command to its end -> the calls that change files, the seconds that it took."""
  with Tasks(name, folder) as tasks:
    since = time.monotonic()
    tasks.start(*tasks.names)
    tasks.finish()
    return tasks.read(CHIEF, 'calls').splitlines(), time.monotonic() - since


def main():
  with tempfile.TemporaryDirectory() as folder:
    start, whole = f'{folder}/start', f'{folder}/whole'
    os.makedirs(f'{start}/temporary')
    for before in BEFORE.get(FLAGS.command, ('convert',)):
      undisturbed(before, start)
    shutil.copytree(start, whole)
    calls, life = undisturbed(FLAGS.command, whole)
    within = re.compile(f' ({whole}/)?{watched(FLAGS.command)}/')  # What is renamed is a path.
    points = points_of(calls, FLAGS.outcomes.split(','), FLAGS.sample)
    if FLAGS.only:
      outcome, _, number = FLAGS.only.partition(':')
      points = [(outcome, int(number))]
    each = functools.partial(meet, FLAGS.command, start, left(FLAGS.command, whole), life)
    tell = functools.partial(tqdm.tqdm.write, file=sys.stderr)
    unordered = [*check_order(within.sub(' ', call) for call in calls)]
    for wrong in unordered:
      tell(wrong)
    ends = collections.Counter()
    with multiprocessing.get_context('fork').Pool(FLAGS.jobs) as pool:
      results = pool.imap_unordered(each, points)
      for end, what in tqdm.tqdm(results, total=len(points), unit=' points'):
        ends[end] += 1
        if what:
          tell(what if FLAGS.only else f'{what[:2000]!r}')
  result = {'command': FLAGS.command, 'seed': SEED, 'calls': len(calls)}
  result |= {'renames': sum(' rename ' in call for call in calls), 'unordered': len(unordered)}
  result |= {'points': collections.Counter(outcome for outcome, _ in points)}
  print(json.dumps({**result, 'missed': ends['missed'], 'failed': ends['failed']}))
  sys.exit(bool(ends['failed'] or unordered))


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
  sys.path[:1] = [checkout.ROOT, os.path.join(checkout.ROOT, 'tests', 'own')]
  os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
  import tensorflow as tf

  import cifar10_main
  import generate_cifar10_tfrecords
  from cifar10 import (
    api,  # noqa: F401  (all that the commands import is there before a fork)
    local_cluster,
  )
  from cifar10.job import metrics_log

  PROGRAMS = {
    'cifar10_main.py': cifar10_main,
    'generate_cifar10_tfrecords.py': generate_cifar10_tfrecords,
  }
  try:
    main()
  finally:
    shutil.rmtree(os.path.dirname(os.environ[LIBRARY]))
