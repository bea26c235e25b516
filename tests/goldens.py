"""Whether this checkout computes what commit 0872a1f, the last of version 1, computes, bit for bit.

  python tests/goldens.py [--quick] [--only PATTERN] [--twice] [--jobs N]

Runs each case below with the program of 0872a1f and with that of this checkout, on this machine and
with the Python that runs this, and compares every variable of the last checkpoint, what is printed,
the exit code, and the evaluations on the way. What 0872a1f came to is kept in runs/goldens/ of the
main working tree, by TensorFlow's version and the processor, so that it runs there only once; what
this checkout came to is left in its own runs/goldens/now/ until the next time.

--quick: the cases marked so, in a minute and a half. --only: those whose name has this regular
expression. --twice: 0872a1f once more in place of this checkout, which shows what is reproducible.
Prints a line a case and one line of JSON; ends with code 1 where anything differs.
"""

import argparse
import concurrent.futures
import fcntl
import glob
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import typing

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLD_COMMIT = '0872a1f'
SECONDS = 300  # That a command may take.

DETERMINISTIC = '--seed 3 --deterministic --num-intra-threads 1 --num-inter-threads 1'
JOB = f'--data-dir {{data}} --job-dir {{job}} {DETERMINISTIC} --eval-batch-size 50'
TRAIN = f'{JOB} --train-steps 20 --train-batch-size 32'
MAIN = f'cifar10_main.py {TRAIN}'
RESNET8 = f'{MAIN} --num-layers 8'
FAST = '--widths 24,32,32'
IMAGES = '{old}/docs/pictures/cat.jpg'
SAVED = 'cifar10_main.py --job-dir {job} --num-intra-threads 1 --num-inter-threads 1'
SYNC = f'-m cifar10.local_cluster --workers 1 --ps 1 -- {TRAIN} --num-layers 8 --sync'
RECIPES = {
  'classic': '--num-layers 8',
  'he2015': '--num-layers 8',
  'fast94': FAST,
  'fast95': FAST,
  'fast96': f'{FAST} --proxy-widths 16,24,24',
  'wrn-28-10': '--wrn-depth 10 --wrn-widen-factor 1',
  'vgg16': '--vgg-layers 11',
}


class Case(typing.NamedTuple):
  """One command. {job}, {data}, {old} and {jobs}/NAME are filled in with folders."""

  command: str
  now: str = ''  # This checkout's command, where a flag has another name.
  start: str = ''  # The case of whose job dir, as 0872a1f left it, a copy is made first; or a path.
  like: str = ''  # The case with whose outcome this one's is compared, in place of its own.
  before: str = ''  # A shell command to run first.
  tf_config: str = ''
  needs: str = 'records'  # The cases that have to have run.
  quick: bool = False


CASES = {
  'records': Case(
    'generate_cifar10_tfrecords.py --data-dir {job} --synthetic 100', needs='', quick=True
  ),
  **{
    f'{recipe}-{dtype}': Case(
      f'{MAIN} --recipe {recipe} --dtype {dtype} {flags}',
      quick=f'{recipe}-{dtype}' in ('classic-float32', 'fast94-bfloat16'),
    )
    for recipe, flags in RECIPES.items()
    for dtype in ('float32', 'bfloat16')
  },
  'two-towers': Case(f'{RESNET8} --num-cpu-towers 2', quick=True),
  'sync': Case(SYNC, quick=True),
  'half': Case(f'{RESNET8} --train-steps 10'),
  'resumed': Case(RESNET8, start='half', like='classic-float32', quick=True),
  'evaluate': Case(f'cifar10_main.py {JOB} --mode evaluate', start='classic-float32', quick=True),
  'predict': Case(f'{SAVED} --mode predict --images {IMAGES}', start='classic-float32', quick=True),
  'export': Case(f'{SAVED} --mode export', start='classic-float32'),
  'unknown-flag': Case('cifar10_main.py --no-such-flag 3', quick=True),
}


class Side:
  """A checkout and the folder in which its cases run."""

  def __init__(self, checkout, folder, cache):
    self.checkout, self.folder, self.cache = checkout, folder, cache

  def run(self, name, case, command):
    """Runs a case anew -> its outcome, as JSON has it, and what it said on standard error."""
    job = os.path.join(self.folder, name)
    shutil.rmtree(job, ignore_errors=True)
    places = {'job': job, 'data': f'{self.cache.jobs}/records', 'old': self.cache.checkout}
    places['jobs'] = self.cache.jobs
    if case.start:
      shutil.copytree(os.path.join(self.cache.jobs, case.start.format(**places)), job)
    if case.before:
      subprocess.run(case.before.format(**places), shell=True, check=True)
    words = shlex.split(command.format(**places))
    if words[0] != '-m':
      words[0] = os.path.join(self.checkout, words[0])
    environment = {name: value for name, value in os.environ.items() if name != 'TF_CONFIG'}
    environment['PYTHONPATH'] = f'{self.checkout}{os.pathsep}{ROOT}/tests'
    if case.tf_config:
      environment['TF_CONFIG'] = case.tf_config
    os.makedirs(self.folder, exist_ok=True)
    settings = {'cwd': self.folder, 'env': environment, 'capture_output': True, 'text': True}
    try:
      ran = subprocess.run([sys.executable, *words], check=False, timeout=SECONDS, **settings)
    except subprocess.TimeoutExpired as error:
      ran = subprocess.CompletedProcess(words, f'none in {SECONDS} s', '', str(error))
    return outcome(ran, job, places), ran.stderr


class Cache(Side):
  """0872a1f, whose outcomes are kept."""

  def __init__(self):
    import tensorflow as tf  # noqa: PLC0415  (so late that --help does not wait)

    common = git('rev-parse', '--path-format=absolute', '--git-common-dir')
    top = os.path.join(os.path.dirname(common), 'runs', 'goldens')
    self.jobs = os.path.join(top, f'tensorflow-{tf.__version__}-{processor()}')
    super().__init__(os.path.join(top, OLD_COMMIT), self.jobs, self)
    os.makedirs(self.jobs, exist_ok=True)
    with locked(self.checkout):
      if not os.path.exists(os.path.join(self.checkout, 'cifar10_main.py')):
        git('worktree', 'prune')
        git('worktree', 'add', '--detach', self.checkout, OLD_COMMIT)

  def outcome(self, name):
    """What the case came to, now or at an earlier time."""
    case = CASES[name]
    for needed in filter(None, [*case.needs.split(), case.start in CASES and case.start]):
      self.outcome(needed)
    if case.like:
      one_run = self.outcome(case.like)
      return {key: one_run[key] for key in one_run if key != 'evaluations'}
    path = f'{self.folder}/{name}.json'
    key = [*case._replace(now='', quick=False)]
    with locked(path):
      if os.path.exists(path):
        with open(path, encoding='utf-8') as file:
          kept = json.load(file)
        if kept['case'] == key:
          return kept['outcome']
      result, _ = self.run(name, case, case.command)
      with open(path, 'w', encoding='utf-8') as file:
        json.dump({'case': key, 'outcome': result}, file, indent=1)
      return result


def outcome(ran, job, places):
  """What a command came to, without times and the names of its folders."""
  printed = ran.stdout.replace(job, 'JOB')
  for name, place in places.items():
    printed = printed.replace(place, name.upper())
  return {
    'exit code': ran.returncode,
    'errors': len(re.findall(r'(?m)^(?:.* \| )?error: ', ran.stderr)),
    'traceback': 'Traceback' in ran.stderr,
    'printed': [without_times(line) for line in printed.splitlines()],
    'evaluations': evaluations(job),
    'variables': variables(job),
    'exported': exported(job),
    'records': records(job),
  }


def without_times(line):
  """A printed line of JSON without what another run has otherwise."""
  line = re.sub(r'export/\d+', 'export/TIME', line)
  try:
    values = json.loads(line)
  except ValueError:
    return line
  return {key: values[key] for key in values if key not in ('seconds', 'time')}


def evaluations(job):
  """The numbers of each evaluation, in the order in which they were made."""
  path = os.path.join(job, 'metrics.jsonl')
  if not os.path.exists(path):
    return []
  with open(path, encoding='utf-8') as file:
    events = [event for event in map(json.loads, file) if event['event'] == 'evaluate']
  names = ('step', 'subset', 'accuracy', 'loss', 'cross_entropy')
  return [[event.get(name) for name in names] for event in events]


def records(job):
  """The digest of each record file."""
  files = sorted(glob.glob(os.path.join(job, '*.tfrecords')))
  return {os.path.basename(file): digest(pathlib.Path(file).read_bytes()) for file in files}


def variables(job):
  """The type, shape and digest of every variable of the latest checkpoint, by name."""
  import tensorflow as tf  # noqa: PLC0415

  path = os.path.isdir(job) and tf.train.latest_checkpoint(job)
  if not path:
    return {}
  try:
    reader = tf.train.load_checkpoint(path)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
  except tf.errors.OpError as error:
    return {'damaged': type(error).__name__}
  return {
    name: f'{values[name].dtype}{[*values[name].shape]} {digest(values[name].tobytes())}'
    for name in sorted(values)
  }


def exported(job):
  """What the SavedModel answers for some images: the digest of each output."""
  import numpy as np  # noqa: PLC0415
  import tensorflow as tf  # noqa: PLC0415

  folder = os.path.join(job, 'export')
  if not os.path.isdir(folder):
    return {}
  latest = os.path.join(folder, max(os.listdir(folder)))
  signature = tf.saved_model.load(latest).signatures['serving_default']
  [spec] = signature.structured_input_signature[1].values()
  images = np.random.default_rng(0).integers(0, 256, [8, 32, 32, 3]).astype(spec.dtype.name)
  answers = signature(**{spec.name: tf.constant(images)})
  return {key: digest(answers[key].numpy().tobytes()) for key in sorted(answers)}


def differences(old, now):
  """What two outcomes have otherwise, a line each."""
  lines = []
  for key in old:
    if isinstance(old[key], dict) and old[key] != now[key]:
      names = [*dict.fromkeys([*old[key], *now[key]])]
      names = [name for name in names if old[key].get(name) != now[key].get(name)]
      lines += [f'{len(names)} {key}, {", ".join(names[:3])}: {old[key].get(names[0], "none")}']
      lines[-1] += f' -> {now[key].get(names[0], "none")}'
    elif old[key] != now[key]:
      lines += [f'{key}: {old[key]} -> {now[key]}']
  return lines


def digest(content):
  return hashlib.sha256(content).hexdigest()[:16]


def processor():
  """A name of the processor that kernels may choose by."""
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as file:
      values = dict(re.findall(r'(?m)^(.*?)\t*: (.*)$', file.read()))
  except OSError:
    return platform.machine()
  limits = [os.environ.get(name) for name in ('TF_ENABLE_ONEDNN_OPTS', 'ONEDNN_MAX_CPU_ISA')]
  model = '-'.join(values.get(name, '') for name in ('vendor_id', 'cpu family', 'model'))
  return f'{model}-{digest(repr([values.get("flags"), limits]).encode())[:6]}'


def git(*words):
  command = ['git', '-C', ROOT, *words]
  return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def locked(path):
  """A context in which no other thread or process is, for the same path."""
  file = open(f'{path}.lock', 'w', encoding='utf-8')  # noqa: SIM115  (the context closes it)
  fcntl.flock(file, fcntl.LOCK_EX)
  return file


def compare(name, cache, twice):
  """Runs a case on this side, and on the old one where that has not been done -> whether alike."""
  case, since = CASES[name], time.monotonic()
  old, seconds = cache.outcome(name), time.monotonic() - since
  checkout, kind = (cache.checkout, 'twice') if twice else (ROOT, 'now')
  side = Side(checkout, os.path.join(ROOT, 'runs', 'goldens', kind), cache)
  now, said = side.run(name, case, case.command if twice else case.now or case.command)
  lines = differences(old, now)
  before = f' (before it {seconds:.0f} s at {OLD_COMMIT})' if seconds > 1 else ''
  seconds = time.monotonic() - since - seconds
  text = f'{"DIFFERS" if lines else "same   "} {name:25} {seconds:.0f} s{before}'
  print('\n  '.join([text, *lines, *(said.splitlines()[-3:] if lines else [])]), flush=True)
  return not lines


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--quick', action='store_true')
  parser.add_argument('--only', default='', metavar='PATTERN')
  parser.add_argument('--twice', action='store_true')
  parser.add_argument('--jobs', type=int, default=2, help='cases at the same time (default: 2)')
  flags = parser.parse_args()
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'  # Of this process, which applies exported networks.
  since, cache = time.monotonic(), Cache()
  names = [
    name
    for name, case in CASES.items()
    if re.search(flags.only, name) and (case.quick or not flags.quick)
  ]
  with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
    same = list(pool.map(lambda name: compare(name, cache, flags.twice), names))
  result = {
    'same': sum(same),
    'different': [name for name, is_same in zip(names, same) if not is_same],
    'with': os.path.basename(cache.jobs),
    'seconds': round(time.monotonic() - since),
  }
  print(json.dumps(result))
  sys.exit(bool(result['different']))


if __name__ == '__main__':
  main()
