"""What README.md, CONTRIBUTING.md and docs/*.md say holds: commands, links, names, defaults."""

import functools
import glob
import itertools
import os
import re
import shlex
import socket
import subprocess
import sys

import checkout
import pytest
import structure
import tensorflow as tf
from outcome import followed, succeeded

from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import schedules

# What users write, what the old program had, and what is at an earlier commit.
ELSEWHERE = """
my_source.py my_network.py program.py cifar10.py cifar10_model.py cifar10_utils.py lines.py
with_flags.py onednn.py cluster_accuracy.py soak_memory.py python_calls.py loader_peer.py
python_source.py tests/wire.py transfer.py
"""
# Of Slurm, Docker, TensorBoard and tests/faults.py; ours with its no; of an older commit's result.
OTHER_FLAGS = """
--nodes --ntasks-per-node --gpus-per-node --gpus-per-task --cpus-per-task --gpus --build-arg
--requeue --logdir --no-nesterov --lr-boundaries-steps --only --outcomes --sample
"""


def documents():
  """Their texts by path, the README first: what it makes, the others use."""
  pages = sorted(glob.glob('docs/*.md', root_dir=checkout.ROOT))
  return {path: checkout.read(path) for path in ('README.md', 'CONTRIBUTING.md', *pages)}


def commands(texts):
  """The lines of all `sh` blocks in order, without comments; what stands there twice, once.

  What needs the package installed test_commands.py runs.
  """
  blocks = re.findall(r'```sh\n(.*?)```', '\n'.join(texts), re.S)
  lines = '\n'.join(blocks).replace('\\\n', ' ').splitlines()
  found = (tuple(shlex.split(line, comments=True)) for line in lines)
  once = [list(words) for words in dict.fromkeys(found) if words]
  return [words for words in once if not re.match('pip$|eval$|cifar10-', words[0])]


def small(words):
  """The command with flags added that make it short: an appended flag wins over an earlier one."""
  if words[1] == 'generate_cifar10_tfrecords.py':
    return words if '--images' in words else [*words, '--synthetic', '40']
  if '--mode' in words or not {'cifar10_main.py', 'cifar10.local_cluster'} & {*words}:
    return words
  if '--train-epochs' in words:
    at = words.index('--train-epochs')
    words = words[:at] + words[at + 2 :]
  words = [*words, '--train-steps', '2', '--train-batch-size', '16']
  if any(word.startswith('fast') for word in words):
    return [*words, '--widths', '24,32,32']
  return words if '--network' in words else [*words, '--num-layers', '8']


def free_ports(words):
  """The command with ports that nothing else uses; the same ones for the same ones."""
  return [re.sub(r'(?<=localhost:)\d+', lambda match: free_port(match[0]), each) for each in words]


@functools.cache
def free_port(instead_of):
  with socket.create_server(('localhost', 0)) as server:
    return str(server.getsockname()[1])


def start(words, cwd):
  """The process of a command line: assignments first, `&` perhaps last."""
  assigned = dict(itertools.takewhile(lambda pair: len(pair) > 1, (w.split('=', 1) for w in words)))
  command = small([word for word in words[len(assigned) :] if word != '&'])
  settings = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'cwd': cwd}
  environment = {**os.environ, **assigned}
  return subprocess.Popen([sys.executable, *command[1:]], env=environment, **settings)


def make(*arguments):
  """What `make` would run: `make demo` itself is CI's."""
  command = ['make', '-n', f'PYTHON={sys.executable}', *arguments]  # It need not look for one.
  # Without the variables that were given to the `make test` that runs this.
  own = {name: value for name, value in os.environ.items() if not name.startswith('MAKE')}
  return checkout.run(*command, must_succeed=True, env=own).stdout


def test_make_targets_exist():
  targets = [words[1:] for words in commands(documents().values()) if words[0] == 'make']
  assert {'demo', 'test', 'install', 'lint', 'test-all'} <= {target for target, *_ in targets}
  make(*itertools.chain.from_iterable(targets))
  # The CUDA libraries are installed only when asked for.
  assert "'tensorflow[and-cuda]'" in make('install', 'VENV=.none', 'GPU=1')
  assert 'cuda' not in make('install', 'VENV=.none', 'GPU=')


def test_the_readme_is_short():
  lines = checkout.read('README.md').splitlines()
  assert len(lines) <= 130
  assert [line for line in lines if len(line) > 120] == []


def test_links_lead_somewhere():
  lost = []
  for path, text in documents().items():
    for target in re.findall(r'\]\((?!https?:)([^)\s]+)\)', text):
      name, _, heading = target.partition('#')
      file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
      there = os.path.exists(os.path.join(checkout.ROOT, file))
      titles = re.findall(r'^#+ (.*)$', checkout.read(file), re.M) if there and heading else ()
      known = [re.sub(r'[^\w -]', '', title.lower()).replace(' ', '-') for title in titles]
      if not there or (heading and heading not in known):
        lost.append(f'{path}: {target}')
  assert not lost


def unknown(pattern, known):
  """What the lines of the pages name as code, by the pattern's group, and nobody knows."""
  for path, text in documents().items():
    lines = re.sub(r'^```.*?^```', '', text, flags=re.S | re.M)
    for code in re.findall(r'`([^`]+)`', lines):
      yield from ((path, name) for name in re.findall(pattern, code) if not known(name))


def test_files_that_the_pages_name_are_there():
  """By their path or its end."""
  known = ''.join(f'/{path}\n' for path in structure.tracked('*'))
  lost = unknown(
    r'(?<![\w/.-])((?:[\w-]+/)*\w+\.py)\b',
    lambda name: f'/{name}\n' in known or name in ELSEWHERE.split(),
  )
  assert list(lost) == []


def test_modules_and_names_that_the_pages_name_are_there():
  modules = checkout.modules()

  def is_there(place):
    module, names = place, ['']
    while module not in modules:
      module, _, name = module.rpartition('.')
      names.append(name)
    return re.search(rf'\b{names[-1]}\b', checkout.read(modules[module]))

  pattern = r'(?<![\w/.-])((?:cifar10(?!\.json|\.lock)|model_base(?!\.py))(?:\.\w+)+)'
  assert list(unknown(pattern, is_there)) == []


def test_flags_that_the_pages_name_are_there():
  """The options' are in docs/flags.md; the other commands' in the code that declares them."""
  known = set(re.findall(r'`(--[a-z-]+)`', checkout.read('docs/flags.md')))
  for path in structure.tracked('*.py'):
    if not path.startswith('tests/') and not path.endswith('gone.py'):
      known |= set(re.findall(r"'(--[a-z][a-z-]*)'", checkout.read(path)))
  known |= set(OTHER_FLAGS.split())
  assert list(unknown(r'(?<![\w-])(--[a-z][a-z-]+)', known.__contains__)) == []


def rows(title):
  """The cells of the first table of a section of docs/estimator.md."""
  section = checkout.read('docs/estimator.md').partition(f'## {title}\n')[2].partition('\n## ')[0]
  lines = [line for line in section.splitlines() if line.startswith('|')][2:]
  return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]


def test_old_flags_are_there_with_these_defaults():
  given = (from_values({}), from_values({}).family, RunOptions(job_dir='job'))
  table, compared = checkout.read('docs/flags.md'), 0
  for flags, _, now, _ in rows('The flags'):
    for flag in re.findall(r'`(--[a-z-]+)`', flags):
      assert f'| `{flag}` |' in table
      name = flag[2:].replace('-', '_')
      if number := re.match(r'[0-9][0-9,.]*(e-?\d+)?', now):
        [value] = [getattr(options, name) for options in given if hasattr(options, name)]
        assert value == float(number[0].rstrip(',.').replace(',', ''))
        compared += 1
  assert compared >= 10


def test_the_learning_rate_drops_at_these_steps():
  """82 x 40,000 / 128 = 25,625; 123 x 40,000 / 128 = 38,437.5; 300 x 40,000 / 128 = 93,750.

  Then: 45,000 // 128 = 351 batches an epoch; 82 x 351 = 28,782 and so on.
  """
  epochs = from_values({}).lr_boundaries_epochs
  steps = [(45_000 // 128 * each, schedules.steps_of(each, 40_000, 128)) for each in epochs]
  said = [
    tuple(int(re.search(r'step (\d[\d,]*\d)', cell)[1].replace(',', '')) for cell in row[1:])
    for row in rows('What `--recipe classic` changes')
    if 'drop' in row[0] and re.match(r'step [\d,]+', row[1])
  ]
  assert said == steps


@pytest.mark.parametrize(
  ('pages', 'at_least'),
  [
    pytest.param(['README.md'], 9, marks=pytest.mark.slow, id='readme'),
    pytest.param(list(documents()), 34, marks=pytest.mark.long, id='all'),
  ],
)
@pytest.mark.timeout(900)
def test_every_command_runs(pages, at_least, tmp_path):
  """Those of the README alone, and of it and all other pages, which use what it makes.

  Without TensorBoard and `make` they are 9, and 34.
  """
  for name in os.listdir(checkout.ROOT):
    if name.endswith('.py') or name in ('cifar10', 'benchmarks', 'docs'):
      os.symlink(os.path.join(checkout.ROOT, name), tmp_path / name)
  blocks = re.findall('```python\\n(.*?)```', checkout.read('docs/data.md'), re.S)
  (tmp_path / 'my_source.py').write_text(next(each for each in blocks if 'class Squares' in each))
  # Any image: the reader has a cat, and some photographs.
  picture = tf.io.encode_png(tf.fill([40, 50, 3], tf.constant(200, tf.uint8)))
  photos = [f'photos/{name}/{number}.png' for name in ('cat', 'dog') for number in range(10)]
  for path in ('cat.png', *photos):
    tf.io.write_file(str(tmp_path / path), picture)
  ran, running = 0, []
  try:
    for words in commands(checkout.read(page) for page in pages):
      if 'python' in words:
        running.append(start(free_ports(words), tmp_path))
        while running and words[-1] != '&':
          output, log = running[-1].communicate(timeout=180)
          succeeded(subprocess.CompletedProcess(words, running.pop().returncode, output, log))
          ran += 1
      else:
        assert words[0] in ('make', 'tensorboard') or words == ['.', '.venv/bin/activate'], words
  finally:
    for process in running:
      process.terminate()  # A cluster ends its own processes.
    for process in running:
      with followed(process):
        process.communicate(timeout=60)
  assert ran >= at_least
