"""The harder half of a batch: which images it has, and what the proxy learns from it."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps, ancestors, run

import model_base
from cifar10.training.hard_examples import harder_half

pytestmark = pytest.mark.usefixtures('graph')


class Proxy(model_base.Layers):
  """Of images whose pixels are all x: logits x * weight."""

  def forward_pass(self, images):
    weight = self._variable('weight', [2], tf.compat.v1.ones_initializer(), model_base.HEAD)
    return images[:, 0, 0, :1] * weight * [0.0, 1.0]


# Logits 0 and x: an image of class 0 costs ln(1 + e^x), one of class 1 ln(1 + e^-x).
PIXELS = [3.0, 0.0, 2.0, 1.0, -4.0]
LABELS = [0, 0, 1, 1, 1]
# That is 3.049, 0.693, 0.127, 0.313 and 4.018: the hardest three of five are 4, 0 and 1.
HARDEST = {0, 1, 4}


def chosen(weight_decay=0.0, label_smoothing=0.0):
  """The harder half of the images, with what chose it."""
  tf.compat.v1.train.get_or_create_global_step()
  grey = tf.ones([5, 32, 32, 3]) * tf.reshape(PIXELS, [5, 1, 1, 1])
  proxy = Proxy(True, 'channels_last', 0.9, 1e-5)
  return harder_half(grey, tf.constant(LABELS), proxy, lambda _: weight_decay, label_smoothing)


def test_the_images_with_the_highest_losses_are_left():
  half = chosen()
  assert half.images.shape == [3, 32, 32, 3]
  images, labels, cross_entropy = run(half[:3])
  assert {PIXELS.index(image[0, 0, 0]) for image in images} == HARDEST
  for image, label in zip(images, labels):
    assert (image == image[0, 0, 0]).all()
    assert label == LABELS[PIXELS.index(image[0, 0, 0])]
  assert cross_entropy == pytest.approx((3.048587 + 0.693147 + 4.018150) / 3)


def test_smoothed_labels_choose_others():
  """With 0.9 of it spread over two classes a target is 0.55 and 0.45.

  The label's logit is s more than the other one: -3, 0, 2, 1 and -4. Cross entropy is
  ln(1 + e^-s) + 0.45 s: 1.699, 0.693, 1.027, 0.763 and 2.218. So the hardest are 4, 0 and 2.
  """
  images = run(chosen(label_smoothing=0.9).images)
  assert {PIXELS.index(image[0, 0, 0]) for image in images} == {0, 2, 4}


def test_what_momentum_changes_waits_for_the_forward_pass(graph):
  """Also where the gradient is 0: else a variable could change while it is read.

  What chooses the branch has to wait: TensorFlow runs a branch as soon as its own inputs are there.
  """
  chosen()
  [condition] = [op for op in graph.get_operations() if op.type in ('If', 'StatelessIf')]
  [choice] = [op for op in graph.get_operations() if op.type == 'TopKV2']
  assert choice in ancestors(condition.inputs[0].op)


@pytest.mark.parametrize(('step', 'learns'), [(0, 1), (1, 0), (2, 0), (3, 0), (4, 1), (8, 1)])
def test_the_proxy_learns_from_them_at_every_fourth_step(step, learns):
  """Of the mean loss by the second weight, 1: x (sigmoid(x) - label), over images 0, 1 and 4.

  (3 * 0.952574 + 0 - 4 * (0.017986 - 1)) / 3 = 2.261926; and 0.1 * 1 of the penalty for both.
  """
  [(gradient, variable)] = chosen(weight_decay=0.1).gradients
  assert variable.op.name == 'proxy/weight'
  [value] = after_steps(tf.compat.v1.train.get_global_step().assign(step), gradient, 1)
  np.testing.assert_allclose(value, [learns * 0.1, learns * 2.361926], rtol=1e-5)
