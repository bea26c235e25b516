"""Variables of checkpoints: those of another network are refused."""

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.job import variable_files
from cifar10.options.families import PROXY

BIAS = 'resnet/fully_connected/bias'
SHAPES = {'resnet/init/conv/kernel': [3, 3, 3, 4], BIAS: [10]}


def test_a_variable_may_have_another_s_name_as_its_scope():
  """Of weight normalisation, `kernel` and `kernel/g`: both are the network's, and trained.

  A proxy, the step and what optimizers and averages keep are no part of the network.
  """
  network = ['fastnet/kernel', 'fastnet/kernel/g', f'net/{PROXY}/kernel']
  beside = [name + end for name in network for end in ('/Momentum', '/slow')]
  averages = [name + '/ExponentialMovingAverage' for name in network]
  others = [f'fastnet/{PROXY}/kernel', 'global_step']
  arrays = {name: np.zeros(4) for name in (*network, *beside, *averages, *others)}
  kept = variable_files.VariableFile('x', 'x', arrays)
  assert list(kept.shapes) == network
  kinds = {'trainable': network, 'slot': beside, 'average': averages, 'other': others}
  assert kept.kinds() == {name: kind for kind, names in kinds.items() for name in names}


@pytest.mark.parametrize(
  ('shapes', 'said'),
  [
    ({**SHAPES, 'resnet/stage1/kernel': [1]}, r'stage1/kernel is missing there, and \[1\] here'),
    ({**SHAPES, BIAS: [20]}, r'bias is \[10\] there, and \[20\] here'),
    ({'resnet/init/conv/kernel': [3, 3, 3, 4]}, r'bias is \[10\] there, and missing here'),
  ],
)
def test_one_of_another_network_is_refused(shapes, said):
  arrays = {name: np.zeros(shape) for name, shape in SHAPES.items()}
  source = variable_files.VariableFile('--checkpoint x', 'x', arrays)
  variable_files.check_network(source, SHAPES, 'resnet')
  with pytest.raises(InputError, match=f'^--checkpoint x is of another network: .*{said}; n'):
    variable_files.check_network(source, shapes, 'resnet')
