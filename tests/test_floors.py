"""The folders of cifar10/ are floors: imports go down, in one order; nothing imports a command."""

from structure import TREES, imported

FLOORS = (  # The highest first.
  'reporting',
  'exporters',
  'training',
  'callbacks',
  'job',
  'cluster',
  'networks',
  'model_base',
  'ops',
  'data',
  'options',
  'core',
)
COMMANDS = (
  'cifar10_main',
  'generate_cifar10_tfrecords',
  'cifar10.local_cluster',
  'cifar10.checkpoint',
  'cifar10.control',
  'cifar10.report',
)


def floor(module):
  """Counted from the ground; the commands are above all."""
  parts = module.split('.') if '.' in module else ['', module]
  return len(FLOORS) - FLOORS.index(parts[1]) if parts[1] in FLOORS else len(FLOORS) + 1


def test_every_folder_is_a_floor():
  folders = {name.split('.')[1] for name in TREES if name.count('.') >= 2}
  assert folders | {'model_base'} == set(FLOORS)


def test_imports_go_down():
  pairs = [(name, other) for name in TREES if name != 'cifar10' for other in imported(TREES[name])]
  for name, other in pairs:
    if other.startswith('cifar10.') or other == 'model_base':
      assert floor(other) <= floor(name), f'{name} imports {other}'
    # The generator's file has what the Python call makes records with, too.
    is_api = (name, other) == ('cifar10.api', 'generate_cifar10_tfrecords')
    assert is_api or other not in COMMANDS, f'{name} imports the command {other}'
