"""The folders of cifar10/ are floors: imports go down, in one order; nothing imports a command."""

import ast

import checkout

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


# The syntax tree of every module of the program.
MODULES = {name: ast.parse(checkout.read(path)) for name, path in checkout.modules().items()}


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
  folders = {name.split('.')[1] for name in MODULES if name.count('.') >= 2}
  assert folders | {'model_base'} == set(FLOORS)


def test_imports_go_down():
  pairs = [
    (name, other) for name in MODULES if name != 'cifar10' for other in imported(MODULES[name])
  ]
  for name, other in pairs:
    if other.startswith('cifar10.') or other == 'model_base':
      assert floor(other) <= floor(name), f'{name} imports {other}'
    # The generator's file has what the Python call makes records with, too.
    is_api = (name, other) == ('cifar10.api', 'generate_cifar10_tfrecords')
    assert is_api or other not in COMMANDS, f'{name} imports the command {other}'


# What reaches files itself, and why. All else goes through cifar10.core.files, so that a data
# dir or a job dir may be a URL.
OF_ITS_OWN = {
  'cifar10.core.files': 'it is the way to them',
  'cifar10.core.devices': '/proc',
  'cifar10.core.logs': 'the standard streams and the null device',
  'cifar10.core.lock': 'a lock of the system on a local file',
  'cifar10.core.start_tensorflow': 'what TensorFlow prints, for a moment',
  'cifar10.core.limits': '/proc',
  'cifar10.job.metrics_log': 'a lock of the system on a local file',
  'cifar10.ops.own_gradients': 'what XLA prints, for a moment',
  'cifar10.data.build.download': 'a local file, which grows',
  'cifar10.data.image_files': 'images are local',
  'cifar10.data.build.image_folder': 'images are local',
  'cifar10.exporters.predict': 'images are local',
  'cifar10.exporters.export': 'a local folder, from where the export is moved',
  'cifar10.exporters.saved_model': 'a local folder, from where the export is moved',
  'cifar10.job.pretrained': 'a temporary job dir',
  'cifar10.training.dry_run': 'a temporary job dir, whether one can be written',
  'cifar10.local_cluster': "the program's own files",
  'estimator_again': "another program's folder",
}
OF_NAMES = {'os.path.join', 'os.path.basename', 'os.path.dirname', 'os.path.split'}
OF_MODULES = {'os.path', 'shutil', 'glob', 'tempfile', 'pathlib'}
OF_FILES = {
  f'os.{name}'
  for name in (
    *('access', 'link', 'listdir', 'lstat', 'makedirs', 'mkdir', 'open', 'readlink', 'remove'),
    *('removedirs', 'rename', 'replace', 'rmdir', 'scandir', 'stat', 'symlink', 'truncate'),
    *('unlink', 'utime', 'walk'),
  )
}
OF_FILES |= {'io.open', 'tf.io.gfile', 'tf.compat.v1.gfile'}
# They first ask whether a checkpoint is a folder, which ram:// answers with yes.
OF_FILES |= {f'tf.train.{name}' for name in ('load_checkpoint', 'load_variable', 'list_variables')}


def dotted(node):
  """'os.path.join' of such an expression; '' of another."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Attribute):
    return f'{before}.{node.attr}' if (before := dotted(node.value)) else ''
  return ''


def uses_of_files(tree):
  """What in a module reaches files, or takes their names apart as only local ones can be."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Call) and dotted(node.func) == 'open':
      yield 'open'
    elif isinstance(node, ast.Attribute):
      whole = dotted(node)
      if whole in OF_FILES or (whole.startswith('os.path.') and whole not in OF_NAMES):
        yield whole
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
      module = getattr(node, 'module', None)
      found = [f'{module}.{alias.name}' if module else alias.name for alias in node.names]
      yield from (name for name in found if {name, module} & (OF_MODULES | OF_FILES))


def test_files_are_reached_in_one_way():
  found = {name: sorted(set(uses_of_files(tree))) for name, tree in MODULES.items()}
  assert {name: uses for name, uses in found.items() if uses and name not in OF_ITS_OWN} == {}
  assert [name for name in OF_ITS_OWN if not found[name]] == []  # No reason outlives its use.
