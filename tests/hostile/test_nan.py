"""NaN is not JSON: what the program prints and writes can be read by other programs."""

import numpy as np
from harness import COMMANDS, Case, cases
from test_lying_checkpoints import save, tensors

TITLE = 'NaN is not JSON'
BEFORE = '19 of 24'
WAS = '`evaluate` and `predict` print `NaN` and `Infinity`'
NOW = '`null`, by the one writer of JSON'


def spoil(*values):
  """Puts these in place of the first numbers of each variable of the network."""

  def prepare(place):
    prefix = place.path('job', 'model.ckpt-8')
    found = {name: np.array(tensor) for name, tensor in tensors(prefix).items()}
    for tensor in found.values():
      if tensor.dtype == np.float32:
        tensor.reshape(-1)[: len(values)] = values[: tensor.size]
    save(prefix, found)

  return prepare


VALUES = {'NaN': [np.nan], 'infinity': [np.inf, -np.inf], 'huge': [3e38] * 9}
CASES = [
  Case(f'{command} {name}', command, (0, 1, 2), prepare=spoil(*values))
  for name, values in VALUES.items()
  for command in COMMANDS
  if command in ('evaluate', 'predict', 'table', 'report', 'resume', 'list', 'dump', 'average')
]


@cases(CASES)
def test_nan(run_case, case):
  run_case(case)
