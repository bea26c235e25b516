"""How many small mistakes in the spine of the program the quick tests notice.

  python tests/mutants.py [--commit REV] [--count 40] [--seed 0]

Draws places in the spine's files by the seed, changes one at a time (an operator, a number, a truth
value, a statement left out), and runs the quick tests until the first failure; a mutant that none
fails has survived. It works in a checkout of the commit under runs/, prints a line a mutant and a
last line of JSON, and goes on where it was stopped. It takes hours on two cores.
"""

import argparse
import ast
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

import checkout

# By their names in version 1 and 2, wherever they lie.
SPINE = """
augmentation cifar10_main ema evaluation experiment input_pipeline lookahead model_base model_fn
optimizers records resnet schedules sync tf_config towers trainer
"""
SWAPPED = {
  **{'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==', ' is not ': ' is '},
  **{' is ': ' is not ', ' not in ': ' in ', ' in ': ' not in ', 'and': 'or', 'or': 'and'},
  **{'+': '-', '-': '+', '*': '/', '/': '*', '//': '*', '%': '*', '**': '*'},
}
# Those that would notice first; all others follow.
FIRST = ('training', 'networks', 'data', 'cluster', 'test_main.py', 'test_old_names.py')
QUICK = 'not slow and not cluster and not hosts and not long'
SECONDS = 1800  # After which a mutant that hangs the tests is noticed.


def sites(path):
  """(path, first byte, last byte, what to write there) of each possible mistake in a file."""
  text = checkout.read(path).encode()
  starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]

  def span(node):
    end = starts[node.end_lineno - 1] + node.end_col_offset
    return starts[node.lineno - 1] + node.col_offset, end

  def operator(left, right):
    first, last = span(left)[1], span(right)[0]
    between = text[first:last].decode()
    for old in sorted(SWAPPED, key=len, reverse=True):
      if between.strip() == old.strip():
        yield path, first, last, between.replace(old.strip(), SWAPPED[old].strip())

  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
      yield from operator(node.left, node.comparators[0])
    elif isinstance(node, ast.BinOp):
      yield from operator(node.left, node.right)
    elif isinstance(node, ast.BoolOp):
      yield from operator(*node.values[:2])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
      wrong = not node.value if isinstance(node.value, bool) else node.value + 1
      yield path, *span(node), repr(wrong)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
      yield path, *span(node), ast.unparse(node.operand)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
      yield path, *span(node), 'pass'


def drawn(count, seed):
  """The mutants of this checkout that the seed names."""
  modules = checkout.modules().items()
  spine = [path for name, path in modules if name.rpartition('.')[2] in SPINE.split()]
  return random.Random(seed).sample([site for path in spine for site in sites(path)], count)


def noticed_by(root, module):
  """The quick test that fails first, '' if none does; those named like the module begin."""
  named = checkout.run('git', 'ls-files', f'tests/**/test_*{module}*.py', cwd=root).stdout.split()
  names = sorted(os.listdir(os.path.join(root, 'tests')))
  first = [name for name in FIRST if name in names]
  rest = [name for name in names if name not in first and name.startswith('test_')]
  tests = [*named, *(f'tests/{name}' for name in [*first, *rest])]
  command = [sys.executable, '-m', 'pytest', '-x', '-rfE', '-m', QUICK, '-n2', '--dist=load']
  with subprocess.Popen(
    [*command, *tests], cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True
  ) as process:
    try:
      said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      return 'the time limit'
  if process.returncode == 0:
    return ''
  [by] = re.findall(r'^(?:FAILED|ERROR) (\S+)', said, re.MULTILINE)[:1]
  return by


def main():
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--commit', default='HEAD')
  parser.add_argument('--count', type=int, default=40)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args()
  named = checkout.run('git', 'rev-parse', '--short', flags.commit, must_succeed=True)
  commit = named.stdout.strip()
  root = os.path.join(checkout.ROOT, 'runs', 'mutants', commit)
  if not os.path.exists(root):
    checkout.run('git', 'worktree', 'add', '--detach', root, commit, must_succeed=True)
  kept = f'{root}-{flags.seed}.jsonl'
  checkout.ROOT = root
  with open(kept, 'a+', encoding='utf-8') as file:
    file.seek(0)
    done = [json.loads(line) for line in file]
  for path, first, last, wrong in drawn(flags.count, flags.seed)[len(done) :]:
    changed = pathlib.Path(root, path)
    whole = changed.read_bytes()
    line = whole[:first].count(b'\n') + 1
    row = {'place': f'{path}:{line}', 'was': whole[first:last].decode(), 'is': wrong}
    changed.write_bytes(whole[:first] + wrong.encode() + whole[last:])
    try:
      row['noticed_by'] = noticed_by(root, os.path.basename(path).removesuffix('.py'))
    finally:
      changed.write_bytes(whole)
    done.append(row)
    with open(kept, 'a', encoding='utf-8') as file:
      file.write(json.dumps(row) + '\n')
    print(json.dumps(row), file=sys.stderr, flush=True)
  survived = [row for row in done if not row['noticed_by']]
  print(json.dumps({'commit': commit, 'mutants': len(done), 'survived': survived}))


if __name__ == '__main__':
  main()
