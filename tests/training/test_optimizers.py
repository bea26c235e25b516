"""Parameter groups, Muon and lookahead, by values worked out by hand."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps, plain_sgd, run, untrained, variable
from tensorflow.compat.v1.train import get_or_create_global_step as global_step

import model_base
from cifar10.core import user_code
from cifar10.options.families import FIRST_BIAS, Group
from cifar10.options.hparams import from_values
from cifar10.training.optimizers import Groups, make_optimizer, orthogonalised
from cifar10.training.schedules import Rates

pytestmark = pytest.mark.usefixtures('graph')

ROLES = {
  'kernel': model_base.CONVOLUTION,
  'scale': model_base.SCALE,
  'offset': model_base.OFFSET,
  'head': model_base.HEAD,
  'bias': FIRST_BIAS,
}


def update(gradients, rates=(0.1, 0.1), **options):
  """Of (gradient, variable) pairs by what the options make; a variable's name is in ROLES."""
  hparams = from_values({'momentum': 0.0, **options})
  groups = Groups(hparams, ROLES)
  optimizer = make_optimizer(hparams, Rates(*rates), groups)
  pairs = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in gradients]
  return optimizer.apply_gradients(groups.scaled(pairs), global_step())


def test_groups_learn_faster_and_decay_less():
  hparams = from_values({'weight_decay': 6.0, 'offset_lr_factor': 64.0, 'head_lr_factor': 3.0})
  groups = Groups(hparams, ROLES)
  variables = [variable(name, 1.0) for name in ('offset', 'head', 'scale')]
  assert list(map(groups.weight_decay, variables)) == [6 / 64, 2, 6]
  scaled = groups.scaled([(tf.constant(1.0), v) for v in variables])
  assert run([gradient for gradient, _ in scaled]) == [64, 3, 1]
  groups = Groups(from_values({'muon_learning_rate': 1.0, 'weight_decay': 0.5}), ROLES)
  assert [groups.weight_decay(v) for v in (variable('kernel', 1.0), variables[1])] == [0, 0.5]


def test_a_factor_on_the_gradient_is_a_factor_on_the_learning_rate():
  """Two steps of Nesterov's momentum, learning rate 0.1, gradient 1, factor 2.

  v = 1: w = 0 - 0.2 (1 + 0.5 * 1) = -0.3.
  v = 0.5 + 1 = 1.5: w = -0.3 - 0.2 (1 + 0.5 * 1.5) = -0.65.
  """
  offset = variable('offset', 0.0)
  apply = update([(1.0, offset)], momentum=0.5, nesterov=True, offset_lr_factor=2.0)
  assert after_steps(apply, offset, 2) == pytest.approx([-0.3, -0.65])


def test_an_optimizer_of_ones_own_gets_the_rate_and_scaled_gradients():
  """Three times the rate 0.1, twice the gradient 1: 1 - 0.6. Moving averages stand around it."""
  head = variable('head', 1.0)
  own = user_code.given(lambda rate: tf.compat.v1.train.GradientDescentOptimizer(3 * rate))
  apply = update([(1.0, head)], optimizer=own, head_lr_factor=2.0, ema_decay=0.5)
  assert after_steps(apply, head, 1) == pytest.approx([0.4])
  assert 'head/ExponentialMovingAverage' in {v.op.name for v in tf.compat.v1.global_variables()}


def test_a_group_stops_learning():
  """Momentum 0, rate 0.1, gradient 1 for 2 of 4 steps."""
  bias, other = variable('bias', 0.0), variable('scale', 0.0)
  apply = update([(1.0, bias), (1.0, other)], network='fastnet', first_bias_steps=2)
  rate = 0.1 * from_values({'network': 'fastnet'}).family.group(FIRST_BIAS, from_values({}))[0]
  expected = [[-rate, -0.1], [-2 * rate, -0.2], [-2 * rate, -0.3], [-2 * rate, -0.4]]
  np.testing.assert_allclose(after_steps(apply, [bias, other], 4), expected, rtol=1e-5)


def test_muon_leaves_a_kernel_without_a_gradient_where_it_is():
  """Its momentum, made orthogonal, would move it as far as a gradient does."""
  kernel, gradient = variable('kernel', [[[[2.0, 1.0]]]]), tf.constant([[[[1.0, 0.0]]]])
  learns = tf.cast(tf.equal(global_step() % 2, 0), tf.float32)
  apply = update([(gradient * learns, kernel)], muon_learning_rate=1.0)
  first, second, third, fourth = (value.tolist() for value in after_steps(apply, kernel, 4))
  assert first == second != third == fourth


@pytest.mark.parametrize(
  ('initial', 'moved'),
  [
    ({'kernel': 2.0, 'head': 1.0}, [1 + 0.25 * 0.7207, 0.5]),
    ({'kernel': 2.0}, [1 + 0.25 * 0.7207]),  # With --freeze only kernels are trained, or the head.
    ({'kernel': 0.0}, [0.25 * 0.7207]),  # 0 has no unit vector; the direction is left.
    ({'head': 2.0}, [1.5]),
  ],
)
def test_a_step_of_muon_by_hand(initial, moved):
  """One output of one input: a kernel is scaled to norm 1, and moved by Muon's rate * 0.7207.

  x = 1: x <- 3.4445 x - 4.775 x^3 + 2.0315 x^5 = 0.7010, then 1.1136, then 0.7207. Everything else
  is moved by SGD with its rate, and the step counts once.
  """
  gradients = {'kernel': [[[[-3.0]]]], 'head': [[[[1.0]]]]}
  weights = {role: variable(role, [[[[value]]]]) for role, value in initial.items()}
  pairs = [(gradients[role], weight) for role, weight in weights.items()]
  apply = update(pairs, (0.5, 0.25), muon_learning_rate=1.0)
  [values] = after_steps(apply, list(weights.values()), 1)
  assert np.ravel(values) == pytest.approx(moved, abs=1e-4)
  assert after_steps(apply, global_step(), 2) == [1, 2]


def test_a_factor_is_a_factor_of_muons_rate():
  """It normalises gradients, so a factor on them would be none: 1 - 2 * 0.25 * 0.7207."""

  class OwnFamily(type(from_values({}).family)):
    def group(self, role, rates):
      return Group(2.0, uses_muon=True)

  kernel = variable('kernel', [[[[2.0]]]])
  hparams = dataclasses.replace(from_values({'muon_learning_rate': 1.0}), family=OwnFamily())
  optimizer = make_optimizer(hparams, Rates(0.5, 0.25), Groups(hparams, ROLES))
  apply = optimizer.apply_gradients([(tf.ones([1, 1, 1, 1]), kernel)], global_step())
  assert after_steps(apply, kernel, 1)[0].item() == pytest.approx(1 - 0.5 * 0.7207, abs=1e-4)


@pytest.mark.parametrize('shape', [(3, 3, 4, 16), (1, 1, 4, 16), (3, 3, 16, 16)])
def test_orthogonalised_singular_values_are_near_1(shape):
  kernel = np.random.default_rng(0).normal(size=shape)
  result = run(orthogonalised(tf.constant(kernel, tf.float32)))
  _, singular, _ = np.linalg.svd(result.reshape(-1, shape[-1]), full_matrices=False)
  before_u, before, before_v = np.linalg.svd(kernel.reshape(-1, shape[-1]), full_matrices=False)
  # Three iterations bring all that were above a twentieth of the norm between 0.3 and 1.3.
  large = before / np.linalg.norm(kernel) > 0.05
  assert large.sum() > len(large) / 2
  assert singular.max() < 1.3
  assert (np.sort(singular)[::-1][: large.sum()] > 0.3).all()
  # The directions stay: the product with the nearest orthogonal matrix is nearly symmetric.
  product = result.reshape(-1, shape[-1]).T @ (before_u @ before_v)
  np.testing.assert_allclose(product, product.T, atol=1e-4)


def test_muons_momentum_is_nesterovs():
  """Of one output and two inputs a direction is 0.7207 times the unit vector.

  Momentum 0.6, gradients (1, 0) and then (0, 1): the momentum is (1, 0) and then (0.6, 1), the
  directions are those of (1, 0) + 0.6 (1, 0) and (0, 1) + 0.6 (0.6, 1) = (0.36, 1.6).
  """
  kernel = variable('kernel', np.reshape([3.0, 4.0], [1, 1, 2, 1]))
  gradient = tf.reshape(tf.one_hot(tf.cast(global_step(), tf.int32), 2), [1, 1, 2, 1])
  apply = update([(gradient, kernel)], (0.1, 0.5), muon_learning_rate=1.0)
  first, second = after_steps(apply, kernel, 2)
  np.testing.assert_allclose(first.ravel(), [0.6 - 0.5 * 0.7207, 0.8], atol=1e-4)
  unit = first.ravel() / np.linalg.norm(first)
  expected = unit - 0.5 * 0.7207 * np.array([0.36, 1.6]) / 1.64
  np.testing.assert_allclose(second.ravel(), expected, atol=1e-4)


@pytest.mark.parametrize(
  ('steps', 'last_step', 'expected'),
  [
    # Step 2: w = 8; decay 0.95^2 (2/4)^3 = 0.1128125: 10 * it + 8 * (1 - it) = 8.225625.
    # Step 4: w = 6.225625; decay 0.9025: 8.225625 * it + 6.225625 * (1 - it) = 8.030625.
    (2, 4, [9, 8.225625, 7.225625, 8.030625]),
    (2, 3, [9, 8.534815, 8.534815]),  # Decay 0.9025 (2/3)^3 = 0.267407; at the last step that.
    (5, 3, [9, 8, 7]),  # Slow ones have their initial values; what was learned is kept.
  ],
)
def test_lookahead_by_hand(steps, last_step, expected):
  """Plain SGD from w = 10, gradient 1, learning rate 1; it ends with the slow variables."""
  weight, apply = plain_sgd(lookahead_steps=steps, train_steps=last_step)
  assert after_steps(apply, weight, last_step) == pytest.approx(expected)


def test_lookahead_leaves_what_is_frozen_as_it_is():
  """0.95 w + 0.05 w is not w in floating point."""
  initial = np.linspace(0.1, 1, 1000, dtype=np.float32)
  frozen = untrained('frozen', initial)
  _, apply = plain_sgd(lookahead_steps=1, train_steps=1)
  np.testing.assert_array_equal(after_steps(apply, frozen, 1)[0], initial)


def test_lookahead_averages_the_moving_averages_after_their_update():
  """The average goes 0 -> 4 at each step; at step 1 of 1, decay 0.95: 0.05 * 4 = 0.2."""
  average = untrained('moving_mean', 0.0)
  update = average.assign_add(4.0, read_value=False)
  _, apply = plain_sgd([update], lookahead_steps=1, train_steps=1)
  assert after_steps(apply, average, 1) == pytest.approx([0.2])
