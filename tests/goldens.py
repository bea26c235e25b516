"""Whether this checkout computes what commit 0872a1f, the last of version 1, computes, bit for bit.

  python tests/goldens.py [--quick] [--only PATTERN] [--jobs N]

Runs each case of golden_cases.py with the program of 0872a1f and with that of this checkout, on
this machine and with the Python that runs this, and compares every variable of the last checkpoint,
what is printed, the exit code, the evaluations on the way, record files and what an export answers.
What 0872a1f comes to is kept in runs/goldens/ of the main working tree, by TensorFlow's version and
the processor, so that it runs there only once; what this checkout leaves is in its own
runs/goldens/now/. Prints a line a case and a last line of JSON; ends with code 1 where any differs.
"""

import argparse
import concurrent.futures
import fcntl
import glob
import hashlib
import importlib.metadata
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

import numpy as np
from golden_cases import CASES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLD_COMMIT = '0872a1f'
SECONDS = 600  # That a command may take.


def main():
  formatter = argparse.RawDescriptionHelpFormatter
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
  parser.add_argument('--quick', action='store_true', help='only the cases that are marked so')
  parser.add_argument('--only', default='', metavar='PATTERN', help='those whose name has this')
  parser.add_argument('--jobs', type=int, default=2, help='cases at the same time (default: 2)')
  flags = parser.parse_args()
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  since, goldens = time.monotonic(), Goldens()
  asked = [name for name in CASES if re.search(flags.only, name)]
  asked = [name for name in asked if CASES[name].quick or not flags.quick]
  asked = [name for name in asked if '$' not in os.path.expandvars(CASES[name].command)]
  with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
    same = list(pool.map(goldens.compare, asked))
  different = [name for name, is_same in zip(asked, same) if not is_same]
  result = {'same': sum(same), 'different': different, 'with': os.path.basename(goldens.kept)}
  print(json.dumps({**result, 'seconds': round(time.monotonic() - since)}))
  sys.exit(bool(different))


class Goldens:
  """The checkout of 0872a1f and what is kept of it."""

  def __init__(self):
    top = os.path.dirname(git('rev-parse', '--path-format=absolute', '--git-common-dir'))
    top = os.path.join(top, 'runs', 'goldens')
    tensorflow = importlib.metadata.version('tensorflow')
    self.kept = os.path.join(top, f'tensorflow-{tensorflow}-{processor()}')
    self.old, self.photos = os.path.join(top, OLD_COMMIT), os.path.join(self.kept, 'photos')
    os.makedirs(self.kept, exist_ok=True)
    with locked(self.old):
      if not os.path.exists(os.path.join(self.old, 'cifar10_main.py')):
        git('worktree', 'prune')
        git('worktree', 'add', '--detach', self.old, OLD_COMMIT)
      if not os.path.exists(self.photos):
        make_photos(self.photos)

  def compare(self, name):
    """Runs a case here, and with 0872a1f where that has not been done -> whether alike."""
    since = time.monotonic()
    old = self.outcome(name)
    seconds = time.monotonic() - since
    now, said = self.run(ROOT, os.path.join(ROOT, 'runs/goldens/now'), name)
    lines = differences(old, now)
    if old['exit code'] or old['error lines']:
      lines.append(f'{OLD_COMMIT} ends with {old["exit code"]} and {old["error lines"]} errors')
    text = f'{"DIFFERS" if lines else "same   "} {name:28} {time.monotonic() - since:3.0f} s'
    text += f', {seconds:.0f} of them {OLD_COMMIT}' if seconds > 1 else ''
    print('\n  '.join([text, *lines, *(said.splitlines()[-4:] if lines else [])]), flush=True)
    return not lines

  def outcome(self, name):
    """What a case comes to with 0872a1f, now or at an earlier time."""
    case = CASES[name]
    for needed in re.findall(r'{jobs}/([\w-]+)', f'{case.start} {case.command}'):
      self.outcome(needed)
    if '{data}' in case.command:
      self.outcome('records')
    if case.like:
      return {key: value for key, value in self.outcome(case.like).items() if key != 'evaluations'}
    path, key = f'{self.kept}/{name}.json', [case.command, case.start, case.before]
    with locked(path):
      if os.path.exists(path):
        kept = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        if kept['case'][:3] == key:
          return kept['outcome']
      outcome, said = self.run(self.old, self.kept, name)
      kept = {'case': key, 'outcome': outcome, 'said': said.splitlines()[-20:]}
      pathlib.Path(path).write_text(json.dumps(kept, indent=1), encoding='utf-8')
      return outcome

  def run(self, checkout, folder, name):
    """Runs a case's command -> its outcome, as JSON has it, and what it said on standard error."""
    case, job = CASES[name], os.path.join(folder, name)
    shutil.rmtree(job, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    places = {'job': job, 'data': f'{self.kept}/records', 'photos': self.photos}
    places |= {'jobs': self.kept, 'old': self.old}
    if case.start:
      shutil.copytree(case.start.format(**places), job)
    if case.before:
      subprocess.run(case.before.format(**places), shell=True, check=True)
    words = shlex.split(os.path.expandvars(case.command.format(**places)))
    # As 0872a1f does, a recipe trains without the warm-up of batch norm's moving averages.
    if checkout == ROOT and '--train-batch-size' in words and '--recipe' not in words:
      words += ['--recipe', 'classic']
    # What recipes of fast networks have otherwise since then; jobs of e632993 keep what they have.
    if checkout == ROOT and '--train-batch-size' in words:
      words += ['--resolutions', 'none']
    elif {'fast94', 'fast95', 'fast96'} & set(words):
      words += ['--first-bias-steps', '150' if 'e632993' in name else '10']
    words[:1] = words[:1] if words[0] == '-m' else [os.path.join(checkout, words[0])]
    environment = {key: value for key, value in os.environ.items() if key != 'TF_CONFIG'}
    environment['PYTHONPATH'] = f'{checkout}{os.pathsep}{ROOT}/tests'
    settings = {'cwd': folder, 'env': environment, 'capture_output': True, 'text': True}
    try:
      ran = subprocess.run([sys.executable, *words], check=False, timeout=SECONDS, **settings)
    except subprocess.TimeoutExpired:
      ran = subprocess.CompletedProcess(words, f'none in {SECONDS} s', '', '')
    printed = ran.stdout
    for key, place in places.items():  # The job dir first, which is in another of these folders.
      printed = printed.replace(place, key.upper())
    return {
      'exit code': ran.returncode,
      'error lines': len(re.findall(r'(?m)^(?:.* \| )?error: ', ran.stderr)),
      'traceback': 'Traceback' in ran.stderr,
      'printed': [re.sub(r'export/\d+', 'export/TIME', line) for line in printed.splitlines()],
      'evaluations': evaluations(job),
      'records': {
        path.name: digest(path.read_bytes()) for path in pathlib.Path(job).glob('*.tfrecords')
      },
      'variables': variables(job),
      'answers': answers(job),
    }, ran.stderr


def evaluations(job):
  """The numbers of each evaluation, in the order in which they were made."""
  path = pathlib.Path(job, 'metrics.jsonl')
  lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
  events = [event for event in map(json.loads, lines) if event['event'] == 'evaluate']
  names = ('step', 'subset', 'accuracy', 'loss', 'cross_entropy')
  return [[event.get(name) for name in names] for event in events]


def variables(job):
  """The type, shape and digest of every variable of the latest checkpoint, by name."""
  import tensorflow as tf  # noqa: PLC0415  (so late that --help does not wait)

  # An average of checkpoints, in a folder without the file `checkpoint`, is found by its own name.
  written = [path.removesuffix('.index') for path in sorted(glob.glob(f'{job}/*.index'))]
  if not written:
    return {}
  path = tf.train.latest_checkpoint(job) or written[-1]
  try:
    reader = tf.train.load_checkpoint(path)
    values = {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}
  except (tf.errors.OpError, IndexError) as error:
    return {'damaged': type(error).__name__}
  return {
    name: f'{value.dtype}{[*value.shape]} {digest(value.tobytes())}'
    for name, value in values.items()
  }


def answers(job):
  """What an exported SavedModel answers for eight images: the digest of each output."""
  import tensorflow as tf  # noqa: PLC0415

  folders = sorted(glob.glob(os.path.join(job, 'export', '*')))
  if not folders:
    return {}
  signature = tf.saved_model.load(folders[-1]).signatures['serving_default']
  [(name, spec)] = signature.structured_input_signature[1].items()
  images = np.random.default_rng(0).integers(0, 256, [8, 32, 32, 3]).astype(spec.dtype.name)
  outputs = signature(**{name: tf.constant(images)})
  return {key: digest(outputs[key].numpy().tobytes()) for key in sorted(outputs)}


def differences(old, now):
  """What two outcomes have otherwise, a line each."""
  lines = []
  for key in old:
    if isinstance(old[key], dict):
      names = {**old[key], **now[key]}
      names = [name for name in names if old[key].get(name) != now[key].get(name)]
      lines += [f'{len(names)} of {key}: {", ".join(names[:4])}'] if names else []
    elif old[key] != now[key]:
      lines += [f'{key}: {str(old[key])[:500]} -> {str(now[key])[:500]}']
  return lines


def make_photos(folder):
  """Images of three classes: PNG and JPEG files of other sizes than 32x32, too."""
  import tensorflow as tf  # noqa: PLC0415

  for number in range(24):
    shape = [(32, 32, 3), (40, 64, 3), (90, 50, 3)][number // 8]
    pixels = tf.constant(np.random.default_rng(number).integers(0, 256, shape, np.uint8))
    path = pathlib.Path(folder, 'abc'[number % 3], f'{number}.{("png", "jpg")[number % 2]}')
    path.parent.mkdir(parents=True, exist_ok=True)
    encode = (tf.io.encode_png, tf.io.encode_jpeg)[number % 2]
    path.write_bytes(encode(pixels).numpy())


def some_examples():
  """For --source: 40 images and labels."""
  images = np.random.default_rng(0).integers(0, 256, [40, 32, 32, 3], np.uint8)
  yield from zip(images, np.arange(40) % 10)


def small_network(images, is_training, num_classes):
  """For --network: a convolution and a dense layer."""
  import tensorflow as tf  # noqa: PLC0415

  kernel = tf.compat.v1.get_variable('kernel', [3, 3, 3, 4], images.dtype)
  x = tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(images, kernel, 4, 'SAME')), [1, 2])
  return tf.matmul(x, tf.compat.v1.get_variable('weights', [4, num_classes], images.dtype))


def digest(content):
  return hashlib.sha256(content).hexdigest()[:16]


def processor():
  """A name of the processor and of what limits its kernels."""
  limits = [os.environ.get(name) for name in ('TF_ENABLE_ONEDNN_OPTS', 'ONEDNN_MAX_CPU_ISA')]
  path = pathlib.Path('/proc/cpuinfo')
  values = dict(re.findall(r'(?m)^(.*?)\t*: (.*)$', path.read_text() if path.exists() else ''))
  model = [values.get(name, platform.machine()) for name in ('vendor_id', 'cpu family', 'model')]
  return '-'.join([*model, digest(repr([values.get('flags'), limits]).encode())[:6]])


def git(*words):
  command = ['git', '-C', ROOT, *words]
  return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def locked(path):
  """A context in which no other thread or process is, for the same path."""
  file = open(f'{path}.lock', 'w', encoding='utf-8')  # noqa: SIM115  (the context closes it)
  fcntl.flock(file, fcntl.LOCK_EX)
  return file


if __name__ == '__main__':
  main()
