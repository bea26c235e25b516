"""The folders of cifar10/ are floors: imports go down, in one order; nothing imports a command."""

import ast
import os

import pytest

from cifar10.networks.registry import FAMILIES
from cifar10.options.hparams import RECIPES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLOORS = (  # The highest first.
  'reporting',
  'training',
  'inference',
  'callbacks',
  'cluster',
  'options',
  'networks',
  'data',
  'model_base',
  'platform',
)
COMMANDS = (
  'cifar10_main',
  'generate_cifar10_tfrecords',
  'cifar10.local_cluster',
  'cifar10.control',
  'cifar10.report',
)


def modules():
  """Every module of the program by its dotted name, with its syntax tree."""
  with open(os.path.join(ROOT, 'model_base.py'), encoding='utf-8') as file:
    found = {'model_base': ast.parse(file.read())}
  for folder, _, names in os.walk(os.path.join(ROOT, 'cifar10')):
    for name in names:
      if name.endswith('.py'):
        path = os.path.join(folder, name)
        dotted = os.path.relpath(path, ROOT)[:-3].replace(os.sep, '.').removesuffix('.__init__')
        with open(path, encoding='utf-8') as file:
          found[dotted] = ast.parse(file.read())
  return found


MODULES = modules()


def imported(tree):
  """The program's modules that a module imports, wherever in it."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        whole = f'{node.module}.{alias.name}'
        yield whole if whole in MODULES else node.module


def floor(module):
  """Counted from the ground; the commands are above all."""
  parts = module.split('.') if '.' in module else ['', module]
  return len(FLOORS) - FLOORS.index(parts[1]) if parts[1] in FLOORS else len(FLOORS) + 1


def test_every_folder_is_a_floor():
  folders = {name.split('.')[1] for name in MODULES if name.count('.') == 2}
  assert folders | {'model_base'} == set(FLOORS)


@pytest.mark.parametrize('module', [name for name in MODULES if name != 'cifar10'])
def test_imports_go_down(module):
  for other in imported(MODULES[module]):
    if other.startswith('cifar10.') or other == 'model_base':
      assert floor(other) <= floor(module), f'{module} imports {other}'
    assert other not in COMMANDS, f'{module} imports the command {other}'


def test_no_circle_of_imports():
  graph = {name: set(imported(tree)) & set(MODULES) - {name} for name, tree in MODULES.items()}
  while leaves := [name for name, others in graph.items() if not others]:
    for name in leaves:
      del graph[name]
    for others in graph.values():
      others.difference_update(leaves)
  assert not graph


def test_nothing_outside_a_family_asks_for_its_name():
  names = set(FAMILIES) | set(RECIPES) - {'classic'}  # Which is the default.
  for module, tree in MODULES.items():
    if not module.startswith('cifar10.networks'):
      texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
      assert not texts & names, module
