"""Variables of checkpoints: those of another network are refused."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.job import variable_files

BIAS = 'resnet/fully_connected/bias'
SHAPES = {'resnet/init/conv/kernel': [3, 3, 3, 4], BIAS: [10]}


@pytest.fixture
def source(tmp_path):
  """A network with these variables; the step, and what momentum keeps of one."""
  shapes = {**SHAPES, 'global_step': [], 'resnet/init/conv/kernel/Momentum': [3, 3, 3, 4]}
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    for name, shape in shapes.items():
      tf.compat.v1.get_variable(name, shape)
    session.run(tf.compat.v1.global_variables_initializer())
    path = tf.compat.v1.train.Saver().save(session, str(tmp_path / 'model.ckpt'), 3)
  return variable_files.open_checkpoint(path, '--checkpoint x')


def test_one_of_the_same_network_serves(source):
  variable_files.check_network(source, SHAPES, 'resnet')


def test_a_variable_may_have_another_s_name_as_its_scope():
  """Of weight normalisation, `kernel` and `kernel/g`: both are the network's, and trained."""
  network = ['net/kernel', 'net/kernel/g']
  beside = [name + end for name in network for end in ('/Momentum', '/slow')]
  averages = [name + '/ExponentialMovingAverage' for name in network]
  arrays = {name: np.zeros(4) for name in (*network, *beside, *averages)}
  kept = variable_files.VariableFile('x', 'x', arrays)
  assert list(kept.shapes) == network
  kinds = {'trainable': network, 'slot': beside, 'average': averages}
  assert kept.kinds() == {name: kind for kind, names in kinds.items() for name in names}


@pytest.mark.parametrize(
  ('shapes', 'said'),
  [
    ({**SHAPES, 'resnet/stage1/kernel': [1]}, r'stage1/kernel is missing there, and \[1\] here'),
    ({**SHAPES, BIAS: [20]}, r'bias is \[10\] there, and \[20\] here'),
    ({'resnet/init/conv/kernel': [3, 3, 3, 4]}, r'bias is \[10\] there, and missing here'),
  ],
)
def test_one_of_another_network_is_refused(source, shapes, said):
  with pytest.raises(InputError, match=f'^--checkpoint x is of another network: .*{said}; n'):
    variable_files.check_network(source, shapes, 'resnet')
