"""How many small mistakes in the spine of the program the quick tests notice.

  python tests/mutants.py [--commit REV] [--count 40] [--seed 0]

Draws places in the spine's files by the seed and makes a mistake at each (an operator, a number, a
truth value, a statement left out). Each mutant first meets the tests named like its module. Those
that pass them are put in together, and all quick tests run; each alone then meets the tests that
failed, and who fails none of them goes into the next round. A round that passes with all who are
left shows that they survive. It works in a checkout of the commit under runs/, prints a line a
mutant and a last line of JSON, and goes on where it was stopped. It takes hours on two cores.
"""

import argparse
import ast
import contextlib
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
QUICK = 'not slow and not cluster and not hosts and not long'
LATE = 'the time limit'
WHOLE = -1  # The number of the program without a mistake.
SECONDS = 2400  # After which a mutant that hangs the tests is noticed.


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


@contextlib.contextmanager
def mistaken(root, mutants):
  """The checkout with these mistakes, no two of which overlap, in it."""
  whole = {path: pathlib.Path(root, path).read_bytes() for path, *_ in mutants}
  changed = dict(whole)
  for path, first, last, wrong in sorted(mutants, key=lambda mutant: -mutant[1]):
    changed[path] = changed[path][:first] + wrong.encode() + changed[path][last:]
  try:
    for path, text in changed.items():
      pathlib.Path(root, path).write_bytes(text)
    yield
  finally:
    for path, text in whole.items():
      pathlib.Path(root, path).write_bytes(text)


def failing(root, tests, most, excused=()):
  """The first of these quick tests that fail, at most so many."""
  command = [sys.executable, '-m', 'pytest', f'--maxfail={most}', '-rfE', '-m', QUICK]
  command += [f'--deselect={test}' for test in excused]
  with subprocess.Popen(
    [*command, '-n3', '--dist=worksteal', *tests],
    **{'cwd': root, 'stdout': subprocess.PIPE, 'text': True, 'start_new_session': True},
  ) as process:
    try:
      said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      return [LATE]
  found = re.findall(r'^(?:FAILED|ERROR) ([^\s\[]+)', said, re.MULTILINE)
  if process.returncode and not found:
    raise RuntimeError(f'pytest ended with {process.returncode}:\n{said[-2000:]}')
  return found


def apart(mutants):
  """Those mutants that overlap none before them."""
  kept = []
  for path, first, last, wrong in mutants:
    if not any(path == other[0] and first < other[2] and other[1] < last for other in kept):
      kept.append((path, first, last, wrong))
  return kept


def meet(root, mutants, done, record):
  """Records for each mutant the test that notices it, '' for those that survive."""
  if WHOLE not in done:  # As they stand, without a mistake.
    record(WHOLE, [''], fail=failing(root, ['tests'], 1000))
  excused = done[WHOLE]['fail']
  for number, mutant in enumerate(mutants):
    if number not in done:
      module = os.path.basename(mutant[0]).removesuffix('.py')
      named = checkout.run('git', 'ls-files', f'tests/**/test_*{module}*.py', cwd=root).stdout
      with mistaken(root, [mutant]):
        record(number, (failing(root, named.split(), 1, excused) if named else []) or [''])
  while True:
    left = [number for number in range(len(mutants)) if not done[number]['noticed_by']]
    unmet = [number for number in left if not done[number].get('survived')]
    group = apart([mutants[number] for number in unmet])
    if not group:
      return
    with mistaken(root, group):
      tests = failing(root, ['tests'], 10, excused)
    if tests == [LATE]:  # One of them hangs the tests: each meets all by itself.
      tests = ['tests']
    members = [number for number in unmet if mutants[number] in group]
    noticed = 0
    for number in members:
      if not tests:
        record(number, [''], survived=True)
        continue
      with mistaken(root, [mutants[number]]):
        by = failing(root, tests, 1, excused)
      if by:
        noticed += 1
        record(number, by)
      elif tests == ['tests']:
        record(number, [''], survived=True)
    if tests not in ([], ['tests']) and not noticed:
      excused += tests  # They fail by several together, or by chance.


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
  mutants = drawn(flags.count, flags.seed)
  done = {}
  if os.path.exists(kept):
    with open(kept, encoding='utf-8') as file:
      done = {row['number']: row for row in map(json.loads, file)}

  def told(path, first, last, wrong):
    text = pathlib.Path(root, path).read_bytes()
    line = text[:first].count(b'\n') + 1
    return {'place': f'{path}:{line}', 'was': text[first:last].decode(), 'is': wrong}

  changes = {number: told(*mutant) for number, mutant in enumerate(mutants)}

  def record(number, by, **more):
    done[number] = {'number': number, **changes.get(number, {}), 'noticed_by': by[0], **more}
    with open(kept, 'a', encoding='utf-8') as file:
      file.write(json.dumps(done[number]) + '\n')
    print(json.dumps(done[number]), file=sys.stderr, flush=True)

  meet(root, mutants, done, record)
  survived = [row for row in done.values() if row.get('survived')]
  print(json.dumps({'commit': commit, 'mutants': len(mutants), 'survived': survived}))


if __name__ == '__main__':
  main()
