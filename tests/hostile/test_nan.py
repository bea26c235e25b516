"""NaN is not JSON: what the program prints and writes can be read by other programs."""

import numpy as np
import tensorflow as tf
from harness import COMMANDS, Case, cases

TITLE = 'NaN is not JSON'
BEFORE = '19 of 24'
WAS = '`evaluate` and `predict` print `NaN` and `Infinity`'
NOW = '`null`, by the one writer of JSON'


def spoil(*values):
  """Puts these in place of the first numbers of each variable of the network."""

  def prepare(place):
    prefix = place.path('job', 'model.ckpt-8')
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    found = {name: np.array(reader.get_tensor(name)) for name in names}
    for tensor in found.values():
      if tensor.dtype == np.float32:
        tensor.reshape(-1)[: len(values)] = values[: tensor.size]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      empty, tensors = [''] * len(names), [found[name] for name in names]
      session.run(
        tf.raw_ops.SaveV2(
          prefix=prefix, tensor_names=names, shape_and_slices=empty, tensors=tensors
        )
      )

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
