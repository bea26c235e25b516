"""The program's parts: each can be taken out, and a plain training loads none that it does not use.

python tests/test_without_parts.py prints them as a table, with their files and lines.
"""

import ast
import os
import re
import shutil

import checkout
import pytest

PROGRAM = ('cifar10', 'cifar10_main.py', 'generate_cifar10_tfrecords.py', 'model_base.py')
# Where parts are registered, a line each: 'name': ... 'package.module' or 'package.module:NAME'.
REGISTRIES = ('cifar10/core/parts.py', 'cifar10/networks/registry.py')
LINE = re.compile(r"^ +'([\w-]+)': .*?'(cifar10(?:\.\w+)+)[:']", re.M)
SPINE = ('resnet', 'saved_model')  # What the test trains, and exports.
# Commands that nothing imports, and what nobody else uses goes with them.
COMMANDS = ('checkpoint', 'control', 'data_service', 'local_cluster', 'report')


PATHS = {name: path for name, path in checkout.modules().items() if '__init__' not in path}


def imports(module):
  """The program's modules that a module imports, wherever in it, or names in a registry."""
  text = checkout.read(PATHS[module])
  found = {place for _, place in LINE.findall(text)} if PATHS[module] in REGISTRIES else set()
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.ImportFrom) and node.module:
      found |= {f'{node.module}.{alias.name}' for alias in node.names} | {node.module}
  return found & set(PATHS)


IMPORTS = {module: imports(module) for module in PATHS}


def files_of(*modules):
  """Parts' modules, and those that only these use."""
  gone = set(modules)
  while True:
    left = {other for name, others in IMPORTS.items() if name not in gone for other in others}
    used = {other for name in gone for other in IMPORTS[name]}
    more = used - left - gone
    if not more:
      return sorted(PATHS[name] for name in gone)
    gone |= more


def parts():
  """Each part's module by its name."""
  lines = [line for path in REGISTRIES for line in LINE.findall(checkout.read(path))]
  found = {name: module for name, module in lines if name not in SPINE}
  return found | {f'{name} (command)': f'cifar10.{name}' for name in COMMANDS}


def count_lines(paths):
  return sum(checkout.read(path).count('\n') for path in paths)


@pytest.fixture(scope='module')
def without(tmp_path_factory):
  """Copies the program without some modules and their lines in the registries -> the folder."""

  def copy(*modules):
    folder = tmp_path_factory.mktemp('program')
    for name in PROGRAM:
      source = os.path.join(checkout.ROOT, name)
      if os.path.isdir(source):
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns('__pycache__'))
      else:
        shutil.copy(source, folder / name)
    for path in files_of(*modules):
      os.remove(folder / path)
    for registry in REGISTRIES:
      lines = (folder / registry).read_text().splitlines(keepends=True)
      kept = [line for line in lines if not (found := LINE.match(line)) or found[2] not in modules]
      (folder / registry).write_text(''.join(kept))
    return folder

  return copy


def run(program, *words):
  """Runs Python in a copy -> what it printed."""
  environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
  result = checkout.python(*words, cwd=program, env=environment)
  assert result.returncode == 0, result.stderr
  return result.stdout


def flags_of(name):
  """The flags of the options that belong to a part."""
  from cifar10.core.option import declarations  # noqa: PLC0415
  from cifar10.options.hparams import HParams  # noqa: PLC0415
  from cifar10.options.run_options import RunOptions  # noqa: PLC0415

  declared = (*declarations(HParams), *declarations(RunOptions))
  return [each.flag for each in declared if each.option.part == name]


ALL_IN_ONE = """
import sys
import cifar10

data_dir, job_dir, exports = sys.argv[1:]
small = {'num_layers': 8, 'train_steps': 2, 'train_batch_size': 16}
print(cifar10.train(job_dir, data_dir, **small)['global_step'])
print(cifar10.evaluate(job_dir, data_dir)['global_step'])
if exports == 'True':
  print(cifar10.export(job_dir)['global_step'])
"""


def check_without(names, program, data_dir, job_dir):
  """It trains, evaluates and exports (where that is what is left), and its flags are gone."""
  exports = 'export' not in names
  printed = run(program, '-c', ALL_IN_ONE, data_dir, job_dir, exports)
  assert printed.split() == ['2'] * (2 + exports)
  usage = run(program, 'cifar10_main.py', '--help')
  gone = [flag for name in names for flag in flags_of(name)]
  assert not [flag for flag in gone if re.search(rf'^  {flag}\b', usage, re.M)]


@pytest.mark.long
@pytest.mark.parametrize('name', parts())
def test_the_program_works_without_it(name, without, data_dir, tmp_path):
  check_without([name], without(parts()[name]), data_dir, tmp_path / 'job')


@pytest.mark.slow
def test_the_program_works_without_all_of_them(without, data_dir, tmp_path):
  check_without(parts(), without(*parts().values()), data_dir, tmp_path / 'job')


LOADED = """
import os, runpy, sys
sys.argv = ['cifar10_main.py', *sys.argv[1:]]
try:
  runpy.run_path('cifar10_main.py', run_name='__main__')
except SystemExit:
  pass
names = (name for name in sys.modules if name.startswith('cifar10') or name == 'model_base')
os.write(1, ' '.join(names).encode())  # `print` goes to standard error since.
"""


def test_a_plain_training_loads_no_part(data_dir, tmp_path):
  small = ['--num-layers', '8', '--train-steps', '2', '--train-batch-size', '16']
  where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job']
  result = checkout.python('-c', LOADED, *where, *small, must_succeed=True)
  loaded = set(result.stdout.splitlines()[-1].split())
  assert 'cifar10.training.model_fn' in loaded
  assert loaded & {module for name, module in parts().items() if name not in USED} == set()


USED = ('best_checkpoint', 'resources')  # What a training with the default options asks for.


if __name__ == '__main__':
  print('| part | files | lines |\n|---|---|---:|')
  for part, its_module in parts().items():
    files = files_of(its_module)
    names = ', '.join(f'`{path.removeprefix("cifar10/")}`' for path in files)
    print(f'| {part} | {names} | {count_lines(files)} |')
