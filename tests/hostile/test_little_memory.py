"""Little memory: what a limit of the address space (`ulimit -v`) leaves no room for."""

from harness import COMMANDS, Case, cases

TITLE = 'Little memory'
BEFORE = '2 of 28'
WAS = 'tracebacks, ends by signal 6 or code 127, and once no end'
NOW = (
  'below 2.5 GB TensorFlow is not loaded (code 2), and above it a second process says so where one '
  'dies for want of more (code 1)'
)

_WITHOUT = ('control', 'cluster')  # They do not load TensorFlow themselves.


def _case(command, size, codes, more=()):
  limits = {'RLIMIT_AS': int(size * 1e9)}
  name = f'{command}{" of a large network" if more else ""} in {size} GB'
  return Case(name, command, codes, more, limits=limits, fresh=True)


CASES = [
  _case(command, size, (1, 2) if command in _WITHOUT else (2,))
  for command in COMMANDS
  for size in (0.5, 1.5)
]
CASES += [
  _case(command, size, (2,))
  for command in ('train', 'evaluate', 'list')
  for size in (1.0, 2.0, 2.4)
]
CASES += [  # Too little, or enough: it depends on the cores.
  _case(command, size, (0, 1))
  for command in ('train', 'train and evaluate', 'evaluate')
  for size in (2.55, 2.8, 3.1)
]
_LARGE = ('--num-layers', '56', '--train-batch-size', '250')
CASES += [_case('train', size, (0, 1), _LARGE) for size in (2.6, 3.0)]


@cases(CASES)
def test_little_memory(run_case, case):
  run_case(case)
