"""Little memory: what a limit of the address space (`ulimit -v`) leaves no room for."""

import pytest
from harness import COMMANDS, Case, cases

TITLE = 'Little memory'
BEFORE = 0
WAS = 'tracebacks, ends by signal 6 or code 127, and once no end'
NOW = (
  'TensorFlow is not loaded where there is less room than it needs (code 2), and a process that \
dies for want of more is named by the one that watches over it (code 1)'
)

_LITTLE = (0.5, 1.0, 1.5, 2.0)  # Gigabytes: refused.
_SOME = (2.4, 2.6, 2.8, 3.0)  # Refused, too little, or enough: it depends on the cores.
_WITHOUT = ('control', 'cluster')  # They do not load TensorFlow themselves.
CASES = [
  Case(f'{command} in {size} GB', command, (2,), limits={'RLIMIT_AS': int(size * 1e9)}, fresh=True)
  for command in COMMANDS
  if command not in _WITHOUT
  for size in _LITTLE
]
CASES += [
  Case(
    f'{command} in {size} GB', command, (1, 2), limits={'RLIMIT_AS': int(size * 1e9)}, fresh=True
  )
  for command in _WITHOUT
  for size in _LITTLE
]
CASES += [
  Case(
    f'{command} in {size} GB', command, (0, 1, 2), limits={'RLIMIT_AS': int(size * 1e9)}, fresh=True
  )
  for command in ('train', 'train and evaluate', 'evaluate', 'export saved_model', 'list')
  for size in _SOME
]
CASES += [
  Case(
    f'a large network in {size} GB',
    'train',
    (0, 1, 2),
    ('--network', 'wrn', '--num-layers', '16', '--widen-factor', '4', '--train-batch-size', '250'),
    limits={'RLIMIT_AS': int(size * 1e9)},
    fresh=True,
  )
  for size in (3.0, 3.5)
]


@pytest.mark.slow
@cases(CASES)
def test_little_memory(run_case, case):
  run_case(case)
