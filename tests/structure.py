"""Counts what the program is made of, and checks the rules of its structure.

  python tests/structure.py

prints a table, and a line for each rule that is broken; then the exit code is 1. With --write it
first writes the tree of files into docs/architecture.md. The rules, for imports within functions,
too: no circle; none goes up a floor; within functions only of optional packages and, once a
command, of what needs TensorFlow; modules named by strings only where users name theirs.
"""

import ast
import collections
import json
import os
import re
import sys

import checkout

PAGE = 'docs/architecture.md'
# Limits of version 2. A count may fall below its limit, and the limit is lowered with it.
LIMITS = {
  'program, lines': 13_000,
  'program, files': 90,
  'tests, lines': 16_000,
  'docs, lines': 2_000,
  'docs, pages': 12,
  'benchmarks, lines': 3_200,
  'examples, lines': 500,
  'flags': 75,
  'functions of over 50 lines': 0,
  'modules in circles of imports': 0,
  'lines with Any': 164,
  'lines with type: ignore': 0,
}
# The packages that an installation may lack: each is imported within one function.
OPTIONAL = {'jinja2', 'matplotlib', 'onnx', 'tensorflow_io', 'tf2onnx'}
# The folders of cifar10/, the lowest first: imports go down. What lies beside them is above all.
FLOORS = (
  'core options data ops model_base networks cluster job callbacks training exporters reporting'
)
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
COMMANDS = {'cifar10_main', 'cifar10.local_cluster', 'cifar10.checkpoint', 'cifar10.control'}
COMMANDS |= {'cifar10.report', 'generate_cifar10_tfrecords'}
# The generator's file has what the Python call makes records with, too.
FROM_COMMANDS = {('cifar10.api', 'generate_cifar10_tfrecords')}
# Where a module is imported by a string: the package's when first used, users' own, TensorFlow's.
BY_NAME = {'cifar10', 'cifar10.core.user_code', 'estimator_again'}


def tracked(pattern):
  """The files of the checkout that git knows, by a pattern of its own."""
  return checkout.run('git', 'ls-files', pattern, must_succeed=True).stdout.splitlines()


def lines_of(paths):
  return sum(checkout.read(path).count('\n') for path in paths)


def kinds():
  """The Python files: program, tests, benchmarks, examples."""
  found = collections.defaultdict(list)
  for path in tracked('*.py'):
    folder = path.partition('/')[0]
    kind = folder if folder in ('tests', 'benchmarks', 'examples') else 'program'
    found[kind].append(path)
  return found


TREES = {name: ast.parse(checkout.read(path)) for name, path in checkout.modules().items()}


def imported(tree):
  """The program's modules that a module imports, wherever in it."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names if alias.name in TREES)
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        whole = f'{node.module}.{alias.name}'
        yield whole if whole in TREES else node.module


def circle():
  """Modules that are left when those that import no others are taken away again and again."""
  graph = {name: set(imported(tree)) & set(TREES) - {name} for name, tree in TREES.items()}
  while leaves := [name for name, others in graph.items() if not others]:
    for name in leaves:
      del graph[name]
    for others in graph.values():
      others.difference_update(leaves)
  return sorted(graph)


def floor(module):
  floors, name = FLOORS.split(), module.removeprefix('cifar10.').partition('.')[0]
  return floors.index(name) if name in floors else len(floors)


def late_imports(tree):
  """(function, what it imports) of each import within a function."""
  for function in ast.walk(tree):
    if isinstance(function, FUNCTION):
      for node in ast.walk(function):
        if isinstance(node, ast.Import | ast.ImportFrom):
          yield function.name, getattr(node, 'module', None) or node.names[0].name


def broken_imports():
  """A line for each."""
  if left := circle():
    yield f'a circle of imports is among {", ".join(left)}'
  late = collections.defaultdict(set)
  for module, tree in TREES.items():
    for other in imported(tree):
      up = other.startswith(('cifar10.', 'model_base')) and floor(other) > floor(module)
      if (up or other in COMMANDS) and (module, other) not in FROM_COMMANDS:
        yield f'{module} imports {other}, which lies above it'
    for function, package in late_imports(tree):
      top = package.partition('.')[0]
      if top not in {*OPTIONAL, 'cifar10', 'tensorflow'}:
        yield f'{module}: {function} imports {package}, which is not optional'
      elif top not in OPTIONAL:
        late[module].add(function)
    names = {getattr(node, 'attr', getattr(node, 'id', '')) for node in ast.walk(tree)}
    if names & {'import_module', '__import__'} and module not in BY_NAME:
      yield f'{module} imports a module by a string'
  for module, functions in late.items():
    if len(functions) > 1:
      yield f'{module}: {", ".join(functions)} import what needs TensorFlow; one is enough'


def counts():
  files = kinds()
  program = files['program']
  nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
  functions = [node for node in nodes if isinstance(node, FUNCTION)]
  lines = [line for path in program for line in checkout.read(path).splitlines()]
  code = [line.partition('#')[0] for line in lines]
  return {
    'program, lines': lines_of(program),
    'program, files': sum(not path.endswith('__init__.py') for path in program),
    'tests, lines': lines_of(files['tests']),
    'docs, lines': lines_of(tracked('docs/*.md')),
    'docs, pages': len(tracked('docs/*.md')),
    'benchmarks, lines': lines_of(files['benchmarks']),
    'examples, lines': lines_of(files['examples']),
    'flags': checkout.read('docs/flags.md').count('\n| `--'),  # A row for each option.
    'functions of over 50 lines': sum(f.end_lineno - f.lineno >= 50 for f in functions),
    'modules in circles of imports': len(circle()),
    'lines with Any': sum('Any' in line for line in code if 'import' not in line),
    'lines with type: ignore': sum('type: ignore' in line for line in lines),
  }


def tree():
  """The files of the program and what each says of itself, as docs/architecture.md shows them."""
  lines, folders = [], {''}
  paths = [path for path in kinds()['program'] if not path.startswith(('deploy/', 'docs/'))]
  for path in sorted(paths, key=lambda path: ('/' in path, path)):
    folder, _, name = path.rpartition('/')
    indent = '  ' * path.count('/')
    if folder not in folders:
      folders.add(folder)
      lines.append(f'{indent[2:]}{folder.rpartition("/")[2]}/\n')
    said = (ast.get_docstring(ast.parse(checkout.read(path))) or '').partition('\n')[0]
    if name != '__init__.py':
      lines.append(f'{indent + name:32}{said.rstrip(".:")}'.rstrip() + '\n')
  return ''.join(lines)


def documented(text):
  """The page with the tree of today."""
  before, heading, rest = text.partition('## The files\n\n```\n')
  return f'{before}{heading}{tree()}```{rest.partition("```")[2]}'


def main():
  if sys.argv[1:] == ['--write']:
    text = documented(checkout.read(PAGE))
    with open(os.path.join(checkout.ROOT, PAGE), 'w', encoding='utf-8') as file:
      file.write(text)
  found = counts()
  for name, count in found.items():
    print(f'{name:30} {count:7,}  (limit {LIMITS[name]:,})', file=sys.stderr)
  above = [name for name, count in found.items() if count > LIMITS[name]]
  broken = [*broken_imports(), *(f'{name}: above {LIMITS[name]:,}' for name in above)]
  if documented(checkout.read(PAGE)) != checkout.read(PAGE):
    broken.append(f'{PAGE} has another tree of files: run make docs')
  for path in re.findall(r'tests/[\w/]+(?:\.py)?', checkout.read('Makefile')):
    if not os.path.exists(os.path.join(checkout.ROOT, path)):
      broken.append(f'the Makefile names {path}, which is gone')
  for line in broken:
    print(f'broken: {line}', file=sys.stderr)
  print(json.dumps({**found, 'broken': len(broken)}))
  sys.exit(bool(broken))


if __name__ == '__main__':
  main()
