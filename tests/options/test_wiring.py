"""Every hyper-parameter reaches what it is for, and nothing else.

Each is changed alone, and everything that training computes is observed: what differs must be what
the table says. A hyper-parameter that no row changes fails the last test.
"""

import dataclasses
import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from graphs import examples, first_batches
from tiny_network import Tiny

from cifar10.cluster import roles
from cifar10.core.option import names
from cifar10.data.manifest import CIFAR10
from cifar10.job import run as job_run
from cifar10.networks import fastnet
from cifar10.options.families import BUILT_IN
from cifar10.options.hparams import Augmentation, HParams, from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import experiment, model_fn
from cifar10.training.evaluator import Evaluator
from estimator_again import estimator as tf_estimator

MODES = tf_estimator.ModeKeys
EPOCH = 64  # Examples.


def joined(values):
  """All values, one after another: float64 [n]."""
  return np.concatenate([np.ravel(value).astype(np.float64) for value in values])


def differ(one, other):
  """By more than what the order of a sum or a rounding can explain."""
  return one.shape != other.shape or not np.allclose(one, other, rtol=1e-4, atol=1e-6)


def observe_training(hparams, data_dir):
  """What two steps on a constant batch compute: arrays by kind."""
  images, labels = examples(4, seed=1)
  given = hparams, lambda count: images, CIFAR10, tf.compat.v1.ConfigProto()
  prepared = fastnet.prepare(*given, num_gpus=1)
  built = []
  training = model_fn.Training(roles.Role(), EPOCH, *prepared, on_graph=built.append)
  function = model_fn.get_model_fn(0, 'CPU', 1, training=training)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.set_random_seed(hparams.seed)
    step = tf.compat.v1.train.get_or_create_global_step()
    spec = function((tf.constant(images),), (tf.constant(labels),), MODES.TRAIN, hparams)
    trainable = {v.op.name: v for v in tf.compat.v1.trainable_variables()}
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    averages = [v for name, v in variables.items() if re.search('/moving_[a-z]*$', name)]
    ema = [v for name, v in variables.items() if name.endswith('/ExponentialMovingAverage')]
    session.run(tf.compat.v1.global_variables_initializer())
    described = repr([(name, v.shape) for name, v in trainable.items()]).encode()
    seen = {'variables': np.frombuffer(described, np.uint8)}
    seen['initial values'] = joined(session.run(list(trainable.values())))
    of_proxy = [v for name, v in built[0].loss_parts.items() if name.startswith('proxy')]
    loss, of_proxy, _ = session.run([spec.loss, of_proxy, spec.train_op])
    seen['loss'] = joined([loss])
    seen['loss of the proxy'] = joined([[], *of_proxy])
    first = session.run(trainable)
    seen['averages'] = joined(session.run(averages))
    session.run(spec.train_op)
    seen['second step'] = joined(session.run(list(trainable.values())))
    seen['average of the weights'] = joined([[], *session.run(ema)])
    rates = []
    for number in (0, 20, 40, 100, 200):
      session.run(step.assign(number))
      rates.append(session.run(built[0].scalars['learning_rate']))
    seen['schedule'] = joined(rates)
  for kind, pattern in (
    ('convolutions', r'/conv\d?/kernel$'),
    ('offsets', '/offset$'),
    ('head', 'fully_connected/kernel$'),
  ):
    seen[kind] = joined(value for name, value in first.items() if re.search(pattern, name))
  return seen


def observe_evaluation(hparams, data_dir):
  """The loss of the untrained network."""
  images, labels = examples(4, seed=1)
  function = model_fn.get_model_fn(0, 'CPU', 1)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.set_random_seed(hparams.seed)
    tf.compat.v1.train.get_or_create_global_step()
    spec = function((tf.constant(images),), (tf.constant(labels),), MODES.EVAL, hparams)
    plain = [m for name, m in spec.eval_metric_ops.items() if name.endswith('/without_tta')]
    session.run(
      [tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()]
    )
    seen = session.run([spec.loss, [update for _, update in plain]])
    return {'evaluation': joined([seen[0]]), 'accuracy without views': joined([[], *seen[1]])}


def observe_input(hparams, data_dir):
  """The first training batch that a job reads, and the first evaluation batch."""
  work = job_run.begin(hparams, RunOptions('unused', data_dir=data_dir, num_gpus=0))
  seen = {}
  for kind, make in (
    ('batches', lambda: experiment.input_fn(work, experiment.training_examples(work))),
    ('evaluation batches', Evaluator(work).input_fn_of('eval')),
    ('validation batches', Evaluator(work).input_fn_of('validation')),
  ):
    [((images,), (labels,))] = first_batches(make)
    seen[kind] = joined([images, labels])
  return seen


def observe(given, data_dir):
  family = {} if 'network' in given else {'family': Tiny()}
  hparams = dataclasses.replace(from_values(given), **family)
  run = job_run.Run(hparams, RunOptions('unused'), roles.Role(), CIFAR10, None)
  hparams = experiment.for_training(run, EPOCH).hparams
  seen = {}
  for look in (observe_training, observe_evaluation, observe_input):
    seen.update(look(hparams, data_dir))
  return seen


# After one step.
UPDATES = {'convolutions', 'offsets', 'head', 'second step'}
EVERYTHING = UPDATES | {'loss', 'averages', 'evaluation'}
BASE = {'train_batch_size': 4, 'train_steps': 400}
PHASES = {**BASE, 'lr_values': (1.0, 0.1), 'lr_boundaries_epochs': (3,)}
ROWS: list = [  # What is changed, what else holds, and what differs then.
  ({'train_on': 'train+validation'}, BASE, {'batches'}),
  ({'source': 'given_sources:listed'}, BASE, {'batches'}),
  ({'validation_source': 'given_sources:listed'}, BASE, {'validation batches'}),
  # A block of the shuffle is no larger than an epoch.
  ({'examples_per_epoch': 8}, {**BASE, 'source': 'given_sources:listed'}, {'batches'}),
  ({'train_steps': 300}, {**BASE, 'lr_triangle': (0.5, 0.5, 0.0)}, {'schedule', 'second step'}),
  ({'train_epochs': 10.0}, {**BASE, 'lr_triangle': (0.5, 0.5, 0.0)}, {'schedule', 'second step'}),
  ({'train_batch_size': 8}, PHASES, {'batches', 'schedule'}),
  ({'eval_batch_size': 7}, BASE, {'evaluation batches', 'validation batches'}),
  ({'learning_rate': 0.2}, BASE, {'schedule', *UPDATES}),
  ({'lr_values': (0.5, 0.1)}, PHASES, {'schedule', *UPDATES}),
  ({'lr_boundaries_epochs': (9,)}, PHASES, {'schedule'}),
  ({'schedule': 'outside_parts:by_epoch'}, BASE, {'schedule', *UPDATES}),
  ({'optimizer': 'tensorflow:compat.v1.train.AdamOptimizer'}, BASE, UPDATES),
  ({'lr_triangle': (0.5, 0.5, 0.0)}, BASE, {'schedule', *UPDATES}),
  ({'resolutions': (12.0, 0.5)}, BASE, EVERYTHING - {'evaluation'}),
  # The first step's direction is the gradient's, whatever the momentum.
  ({'momentum': 0.5}, BASE, {'second step'}),
  ({'nesterov': True}, BASE, UPDATES),
  ({'weight_decay': 0.1}, BASE, {'loss', 'evaluation', *UPDATES} - {'offsets'}),
  ({'offset_lr_factor': 2.0}, BASE, {'offsets', 'second step'}),
  ({'head_lr_factor': 2.0}, BASE, {'loss', 'evaluation', 'head', 'second step'}),
  ({'muon_learning_rate': 0.1}, BASE, {'loss', 'evaluation', 'convolutions', 'second step'}),
  ({'label_smoothing': 0.1}, BASE, {'loss', *UPDATES}),
  ({'lookahead_steps': 1}, {**BASE, 'train_steps': 4}, {'averages', *UPDATES}),
  ({'ema_decay': 0.5}, BASE, {'average of the weights'}),
  # At step 1 the decay is at most 2 / 11.
  ({'ema_decay': 0.1}, {**BASE, 'ema_decay': 0.5}, {'average of the weights'}),
  ({'use_distortion_for_training': False}, BASE, {'batches'}),
  ({'batch_norm_decay': 0.5}, BASE, {'averages'}),
  ({'batch_norm_warmup': True}, BASE, {'averages'}),
  ({'batch_norm_epsilon': 0.5}, BASE, EVERYTHING - {'averages'}),
  ({'tta': 'mirror'}, BASE, {'evaluation', 'accuracy without views'}),
  # Of ten classes the likeliest has a tenth at least: no image is doubtful.
  ({'tta_below': 0.05}, {**BASE, 'tta': 'mirror'}, {'evaluation'}),
  # Of a batch norm its scale alone, which then does not decay either.
  (
    {'freeze': 'scale$'},
    BASE,
    {'variables', 'initial values', 'loss', 'evaluation', 'second step'},
  ),
  ({'seed': 1}, BASE, {'batches', 'initial values', *EVERYTHING}),
  ({'crop_padding': 2}, BASE, {'batches'}),
  ({'padding_mode': 'reflect'}, BASE, {'batches'}),
  ({'flip': 'alternating'}, BASE, {'batches'}),
  ({'cutout': 8}, BASE, {'batches'}),
  ({'augmentation': 'outside_parts:blended'}, BASE, {'batches'}),
]
SHAPES = {'variables', 'initial values', *EVERYTHING}
RESNET = {**BASE, 'network': 'resnet', 'num_layers': 8}
FASTNET = {**BASE, 'network': 'fastnet', 'widths': (24, 24, 24)}
PROXIED = {**FASTNET, 'proxy_widths': (24, 24, 32)}
ROWS += [
  pytest.param({'dtype': 'bfloat16'}, RESNET, EVERYTHING, marks=pytest.mark.bfloat16),
  ({'num_layers': 14}, RESNET, SHAPES),
  ({'resnet_version': 2}, RESNET, SHAPES - {'initial values'}),
  ({'bottleneck': True, 'num_layers': 11}, {**RESNET, 'resnet_version': 2}, SHAPES),
  ({'widths': (24, 32, 48)}, FASTNET, SHAPES),
  ({'convs_per_group': 3}, FASTNET, SHAPES),
  # Further operations, by whose numbers later ones' seeds are drawn; evaluation has none of them.
  ({'proxy_widths': (24, 24, 32)}, FASTNET, {'loss of the proxy', *SHAPES} - {'evaluation'}),
  ({'label_smoothing': 0.1}, PROXIED, {'loss', 'loss of the proxy', *UPDATES}),
  # The first step still teaches the first bias, the second one does not.
  ({'first_bias_steps': 1}, FASTNET, {'second step'}),
]
WRN = {**BASE, 'network': 'wrn', 'wrn_depth': 10, 'wrn_widen_factor': 1}
VGG = {**BASE, 'network': 'vgg', 'vgg_layers': 11}
ROWS += [
  pytest.param({'wrn_depth': 16}, WRN, SHAPES, marks=pytest.mark.long),
  ({'wrn_widen_factor': 2}, WRN, SHAPES),
  pytest.param({'vgg_layers': 13}, VGG, SHAPES, marks=pytest.mark.long),
]


@pytest.fixture(scope='module')
def observed(data_dir):
  """`observe`, which looks at what stands in several rows once."""
  look = functools.cache(lambda *items: observe(dict(items), data_dir))
  return lambda given: look(*sorted(given.items()))


def as_parameters(row):
  """A row is slow that looks at two jobs of its own: with options of a base, or a real network."""
  values, marks = getattr(row, 'values', row), list(getattr(row, 'marks', ()))
  if values[1] is not BASE:
    marks.append(pytest.mark.slow)
  return pytest.param(*values, marks=marks, id=next(iter(values[0])))


PARAMETERS = [as_parameters(row) for row in ROWS]
CHANGES = [parameters.values[0] for parameters in PARAMETERS]


@pytest.mark.parametrize(('change', 'base', 'expected'), PARAMETERS)
def test_a_change_changes_what_it_should(observed, change, base, expected):
  before = observed(base)
  after = observed({**base, **change})
  assert {kind for kind in before if differ(before[kind], after[kind])} == expected


def test_every_hyper_parameter_has_a_row():
  changed = {name for change in CHANGES for name in change}
  assert changed == names(HParams, Augmentation, *BUILT_IN.values())
