"""Kills the program with SIGKILL at random moments of its life, and runs the same command again.

  python tests/kills.py --times 50 [--kinds convert train ...] [--seed 0]

prints what came of it as JSON; benchmarks/results/kills.json is made of such lines. The moments
spread over the whole life of a run that nobody kills, start-up and end included.
tests/test_kills.py does a few of each in CI.
"""

import argparse
import collections
import contextlib
import glob
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from checkout import ROOT

sys.path[:0] = [ROOT, os.path.join(ROOT, 'benchmarks')]
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import outcome  # noqa: E402

STEPS, SAVE_EVERY = 120, 20
NETWORK = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]
# One thread: a step that is made again makes the same loss to the last digit.
EXACTLY = ['--num-intra-threads', 1, '--num-inter-threads', 1]
TRAINING = [
  *('--train-steps', STEPS, '--eval-every-steps', 60, '--save-every-steps', SAVE_EVERY),
  *('--log-every', 1e-6, *NETWORK),
]
Ran = collections.namedtuple('Ran', 'code output said')


class BrokenPromiseError(AssertionError):
  """What the program promises did not hold."""


def require(holds, *said):
  if not holds:
    raise BrokenPromiseError('\n'.join(map(str, said)))


class Kind:
  """One command: how it is started in a folder, and what must hold after a kill and a rerun."""

  program = 'cifar10_main.py'

  def __init__(self, folder):
    """`folder` is for what all its runs share."""
    self.folder = folder
    self.data = os.path.join(folder, 'data')
    if not os.path.exists(self.data):
      made = self.run(Convert.flags_for(self.data), 'generate_cifar10_tfrecords.py')
      require(made.code == 0, made.said)

  def prepare(self, folder):
    """Fills the folder of one run."""

  def start(self, flags, program=None, said=subprocess.PIPE):
    python = [sys.executable, *(program or self.program).split()]
    temporary = os.path.join(self.folder, 'temporary')
    os.makedirs(temporary, exist_ok=True)
    return subprocess.Popen(
      [*python, *map(str, flags)],
      cwd=ROOT,
      env={**os.environ, 'TMPDIR': temporary},
      stdout=subprocess.PIPE,
      stderr=said,
      text=True,
    )

  def run(self, flags, program=None):
    process = self.start(flags, program)
    output, said = process.communicate(timeout=600)
    return Ran(process.returncode, output, said)

  def reference(self):
    """A run that nobody kills, by which the others are judged -> its seconds."""
    folder = os.path.join(self.folder, f'{type(self).__name__}-reference')
    self.prepare(folder)
    since = time.monotonic()
    ran = self.run(self.flags(folder))
    seconds = time.monotonic() - since
    require(ran.code == 0, ran.said)
    self.remember(folder, ran)
    return seconds

  def kill_once(self, folder, seconds):
    """Kills after so many seconds, runs again, checks -> steps lost; None: it was over by then."""
    self.prepare(folder)
    with tempfile.TemporaryFile('w+') as said:
      with self.start(self.flags(folder), said=said) as process:
        try:
          process.wait(seconds)
        except subprocess.TimeoutExpired:
          process.kill()
      if process.returncode == 0:
        return None
      require(process.returncode == -9, process.returncode)
      said.seek(0)
      before = said.read()
    again = self.run(self.flags(folder))
    require(again.code == 0, f'after {seconds:.2f} s:', before, again.said)
    require('Traceback' not in again.said, again.said)
    return self.check(folder, before, again)


class Convert(Kind):
  program = 'generate_cifar10_tfrecords.py'

  @staticmethod
  def flags_for(folder):
    return ['--data-dir', folder, '--synthetic', 300]

  flags = staticmethod(flags_for)

  def remember(self, folder, ran):
    self.files = digests(folder)

  def check(self, folder, before, again):
    require(digests(folder) == self.files, digests(folder), self.files)
    return 0


class Train(Kind):
  def flags(self, folder):
    return ['--data-dir', self.data, '--job-dir', folder, *TRAINING, *EXACTLY]

  def remember(self, folder, ran):
    self.losses = losses(ran.said)
    self.result = result_of(ran)

  def check(self, folder, before, again):
    """The same curve and end as without a kill; as many steps made again as were not saved."""
    made, remade = losses(before), losses(again.said)
    begins = resumed_at(again.said) if remade else STEPS  # None: killed after the last step.
    lost = max(made, default=0) - begins
    require(lost <= SAVE_EVERY, f'{lost} steps lost', before, again.said)
    require(list(remade) == list(range(begins + 1, STEPS + 1)), list(remade), begins)
    for step, loss in [*made.items(), *remade.items()]:
      require(loss == self.losses[step], f'step {step}: {loss}, not {self.losses[step]}')
    require(result_of(again) == self.result, result_of(again), self.result)
    check_curves(folder)
    return max(lost, 0)


class Evaluate(Kind):
  def __init__(self, folder):
    super().__init__(folder)
    self.job = os.path.join(folder, 'job')
    if not os.path.exists(self.job):
      flags = ['--data-dir', self.data, '--job-dir', self.job, *NETWORK]
      made = self.run([*flags, '--mode', 'train', '--train-steps', 4])
      require(made.code == 0, made.said)

  def prepare(self, folder):
    shutil.copytree(self.job, folder)

  def flags(self, folder):
    return ['--data-dir', self.data, '--job-dir', folder, '--mode', 'evaluate', *EXACTLY]

  def remember(self, folder, ran):
    self.result = result_of(ran)

  def check(self, folder, before, again):
    require(result_of(again) == self.result, result_of(again), self.result)
    return 0


class Export(Evaluate):
  def flags(self, folder):
    return ['--job-dir', folder, '--mode', 'export']

  def check(self, folder, before, again):
    """What has an export's name can be loaded, also what the killed run may have left."""
    import tensorflow as tf  # noqa: PLC0415 - it takes seconds, which --help does not need

    found = [path for path in glob.glob(f'{folder}/export/*') if os.path.basename(path).isdigit()]
    require(json.loads(again.output)['saved_model'] in found, again.output)
    for path in found:
      require('serving_default' in tf.saved_model.load(path).signatures, path)
    return 0


class Cluster(Kind):
  """A chief, a worker and a parameter server; --restart starts the one again that is killed."""

  program = '-m cifar10.local_cluster'
  more = ()

  def flags(self, folder):
    own = ['--workers', 1, '--ps', 1, '--restart', *self.more, '--']
    return [*own, '--data-dir', self.data, '--job-dir', folder, *TRAINING]

  def remember(self, folder, ran):
    pass

  def kill_once(self, folder, seconds):
    with tempfile.TemporaryFile('w+') as said:
      started = self.start(self.flags(folder), said=said)
      with outcome.followed(started, subprocess.Popen.terminate) as process:
        time.sleep(seconds)
        said.seek(0)
        tasks = re.findall(r'(\w+ \d+) \| started as process (\d+)', said.read())
        said.seek(0, os.SEEK_END)
        if process.poll() is not None or not tasks:
          process.kill()
          return None
        name, number = self.random.choice(tasks)
        with contextlib.suppress(ProcessLookupError):
          os.kill(int(number), 9)
        output, _ = process.communicate(timeout=600)
      said.seek(0)
      text = said.read()
    if f'{name} | ended with signal 9; starting it again' not in text:
      return None  # It had ended by itself.
    require(process.returncode == 0, f'{name} after {seconds:.2f} s:', text)
    require('Traceback' not in text, text)
    chief = '\n'.join(line for line in text.splitlines() if line.startswith('  chief 0'))
    before, _, after = chief.partition('starting it again')
    made, remade = losses(before), losses(after)
    # Without steps after it the kill came after the last one.
    begins = resumed_at(after) or (0 if remade else STEPS)
    lost = max(made, default=0) - begins if name == 'chief 0' else 0
    check_curves(folder)
    # Asynchronous steps are those of all tasks: between two saves the worker makes some, too.
    require(lost <= SAVE_EVERY + (0 if self.more else 2), f'{lost} steps lost', text)
    require(json.loads(output.splitlines()[-1])['global_step'] >= STEPS, output)
    return max(lost, 0)


class Sync(Cluster):
  more = ('--sync',)


KINDS = {
  'convert': Convert,
  'train': Train,
  'evaluate': Evaluate,
  'export': Export,
  'async': Cluster,
  'sync': Sync,
}


def result_of(ran):
  result = json.loads(ran.output.splitlines()[-1])
  return {key: value for key, value in result.items() if key != 'checkpoint'}


def losses(said):
  """What a training printed of each step."""
  found = re.findall(r' step ([\d,]+) of [\d,]+  loss (\S+)', said)
  return {int(step.replace(',', '')): float(loss) for step, loss in found}


def resumed_at(said):
  found = re.search(r'resuming at step ([\d,]+)', said)
  return int(found[1].replace(',', '')) if found else 0


def digests(folder):
  """Of all files but the lock, by name; a half file would be among them."""
  found = {}
  paths = glob.glob(f'{folder}/**', recursive=True)
  for path in filter(os.path.isfile, set(paths) - {f'{folder}/cifar10.lock'}):
    with open(path, 'rb') as file:
      found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
  return found


def check_curves(job):
  """No step twice in metrics.jsonl or TensorBoard; every checkpoint whole; nothing half left."""
  import tensorflow as tf  # noqa: PLC0415
  from tensorboard.backend.event_processing import event_accumulator  # noqa: PLC0415

  with open(os.path.join(job, 'metrics.jsonl'), encoding='utf-8') as file:
    events = [json.loads(line) for line in file]
  for name in ('train', 'save', 'evaluate'):
    found = [(e['step'], e.get('subset')) for e in events if e['event'] == name]
    require(len(found) == len(set(found)), name, found)
    require([step for step, _ in found] == sorted(step for step, _ in found), name, found)
  for run in filter(lambda run: os.path.isdir(os.path.join(job, run)), ('', 'validation', 'eval')):
    accumulator = event_accumulator.EventAccumulator(os.path.join(job, run))
    accumulator.Reload()
    for tag in ('loss', 'accuracy'):
      if tag in accumulator.Tags()['scalars']:
        steps = [point.step for point in accumulator.Scalars(tag)]
        require(steps == sorted(set(steps)), run, tag, steps)
  for index in glob.glob(f'{job}/**/model.ckpt-*.index', recursive=True):
    reader = tf.train.load_checkpoint(index.removesuffix('.index'))
    for variable in reader.get_variable_to_shape_map():
      reader.get_tensor(variable)
  left = [p for p in glob.glob(f'{job}/**/*', recursive=True) if re.search(r'\.tmp|temp', p)]
  require(not left, left)


def kill(name, times, seed, folder, minutes=1e9):
  """Kills one kind so many times, or for so many minutes -> what came of it."""
  kind = KINDS[name](folder)
  kind.random = random.Random(f'{name} {seed}')
  life = kind.reference()
  deadline = time.monotonic() + 60 * minutes
  lost, after, failures, over = [], [], [], 0
  while len(after) < times and time.monotonic() < deadline:
    seconds = kind.random.uniform(0, life)
    run = os.path.join(folder, f'{name}-{len(after)}-{over}')
    try:
      found = kind.kill_once(run, seconds)
    except BrokenPromiseError as failed:
      found = f'failed: {failed}'
      failures.append(str(failed))
    if found is None:
      over += 1
      require(over < 10 * times + 10, 'the runs are over before they are killed')
    else:
      lost += [found] if isinstance(found, int) else []
      after.append(round(seconds, 1))
      print(f'{name} {len(after)}: after {seconds:.2f} s: {found}', file=sys.stderr, flush=True)
    shutil.rmtree(run, ignore_errors=True)
  left = os.listdir(os.path.join(folder, 'temporary'))
  return {
    'kills': len(after),
    'reruns_that_kept_all_promises': len(after) - len(failures),
    'most_steps_lost': max(lost, default=None),
    'temporary_files_left': len(left),
    'seconds_of_a_run': round(life, 1),
    'killed_after_seconds': sorted(after),
    'failures': failures,
  }


def main():
  """Kills, and prints the record."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--times', type=int, default=50, help='each (default: 50)')
  parser.add_argument('--kinds', nargs='+', choices=KINDS, default=list(KINDS))
  parser.add_argument('--seed', type=int, default=0, help='of the moments')
  parser.add_argument('--minutes', type=float, default=1e9, help='at most, for each kind')
  flags = parser.parse_args()
  import environment  # noqa: PLC0415 - it imports TensorFlow

  kinds = {}
  with tempfile.TemporaryDirectory() as folder:
    for name in flags.kinds:
      kinds[name] = kill(name, flags.times, flags.seed, folder, flags.minutes)
  command = f'python tests/kills.py --times {flags.times} --kinds {" ".join(flags.kinds)}'
  record = {'name': 'kills', 'command': command, 'seed': flags.seed}
  print(
    json.dumps({**record, **environment.describe(), 'steps_between_saves': SAVE_EVERY, **kinds})
  )


if __name__ == '__main__':
  main()
