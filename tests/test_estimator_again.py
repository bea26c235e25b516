"""estimator_again: the Estimator for programs of others, the same on both lines of TensorFlow."""

import importlib.util
import json
import sys
import types

import checkout
import pytest
import tensorflow as tf
from outcome import succeeded, until

import estimator_again
import estimator_cluster
from cifar10 import local_cluster

CANNED, RESNET = 'tests/again/canned.py', 'tests/again/resnet.py'
NEW = not tf.__version__.startswith('2.15.')
needs_new = pytest.mark.skipif(not NEW, reason='TensorFlow 2.15 still has its own')
needs_keras_2 = pytest.mark.skipif(
  NEW and importlib.util.find_spec('tf_keras') is None,
  reason="tf-keras is not installed: `pip install '.[estimator]'` brings it",
)


def again(*arguments):
  """Runs another program as it stands -> what it printed last, as JSON."""
  return succeeded(checkout.python('-m', 'estimator_again', *arguments))


def last_line(code):
  """What Python code under `install` says at its end."""
  before = 'import estimator_again\nestimator_again.install()\nimport tensorflow as tf\n'
  return checkout.python('-c', before + code).stderr.splitlines()[-1]


def public(module):
  return {name for name in dir(module) if not name.startswith('_')}


def test_all_names_are_there():
  estimator, v1 = estimator_again.estimator, estimator_again.estimator_v1
  assert (len(public(estimator)), len(public(estimator.experimental))) == (55, 12)
  assert {'Estimator', 'LinearClassifier', 'train_and_evaluate'} <= public(estimator)
  assert {'Estimator', 'LinearClassifier', 'inputs', 'tpu'} <= public(v1)
  assert v1.Estimator is not estimator.Estimator
  assert NEW or estimator.Estimator is tf.estimator.Estimator


def test_every_way_to_import_it_finds_the_same():
  code = """
import tensorflow.compat.v1
import tensorflow.compat.v2
from tensorflow import estimator
from tensorflow.estimator import Estimator
from tensorflow.compat.v1.estimator import Estimator as V1
from tensorflow.python.estimator.canned import linear
assert Estimator is estimator.Estimator is tf.estimator.Estimator
assert Estimator is estimator_again.estimator.Estimator is tf.compat.v2.estimator.Estimator
assert V1 is tf.compat.v1.estimator.Estimator is estimator_again.estimator_v1.Estimator
assert V1 is tf.compat.v2.compat.v1.estimator.Estimator
assert linear.LinearClassifierV2 is estimator.LinearClassifier
from tensorflow.contrib import slim
"""
  gone = 'docs/estimator.md has what takes its place'  # In one line, behind all that is there.
  assert gone in last_line(code)
  assert not NEW or gone in last_line('tf.compat.v1.estimator.tpu.TPUEstimator')


@needs_new
def test_a_strategy_in_a_cluster_is_refused(monkeypatch):
  strategy = tf.distribute.OneDeviceStrategy('/cpu:0')
  run_config = estimator_again.estimator.RunConfig
  assert run_config(train_distribute=strategy).train_distribute is strategy
  tasks = {'cluster': {'chief': ['a:1'], 'worker': ['b:1']}, 'task': {'type': 'chief', 'index': 0}}
  monkeypatch.setenv('TF_CONFIG', json.dumps(tasks))
  with pytest.raises(ValueError, match=r'needs TensorFlow 2\.15'):
    run_config(train_distribute=strategy)


def test_what_was_not_tested_is_refused():
  with pytest.raises(estimator_again.NotTestedError, match=r'^TensorFlow 2\.22\.0 with '):
    estimator_again._put_back.__wrapped__('2.22.0')  # Not what an earlier call has found.


@needs_keras_2
@pytest.mark.slow
def test_a_premade_estimator_trains_evaluates_and_exports(tmp_path):
  measured = again(CANNED, '--model_dir', tmp_path, '--steps', 30)
  assert measured['global_step'] == 30
  assert measured['loss'] < 0.693  # That of a guess: ln 2.
  assert again(CANNED, '--model_dir', tmp_path) == measured
  assert [*(tmp_path / 'export' / 'best').iterdir()]
  *_, latest = (tmp_path / 'export' / 'latest').iterdir()
  served = tf.saved_model.load(str(latest)).signatures['predict']
  example = tf.train.Example()
  example.features.feature['age'].float_list.value.append(0.9)
  example.features.feature['town'].bytes_list.value.append(b'Rome')
  answer = served(examples=tf.constant([example.SerializeToString()]))
  assert answer['probabilities'].shape == [1, 2]


@needs_keras_2
@pytest.mark.slow
def test_layers_hooks_and_a_warm_start(tmp_path):
  first = again(RESNET, '--model_dir', tmp_path / 'first')
  assert len(first['losses']) == 20
  assert first['losses'][-1] < first['losses'][0] / 2
  assert 'batch_normalization_1/moving_mean' in first['names']
  then = again(RESNET, '--model_dir', tmp_path / 'then', '--warm_start', tmp_path / 'first')
  assert then['losses'][0] < first['losses'][-1]


def test_an_evaluator_stays_while_a_lone_chief_saves(monkeypatch):
  """Which listens nowhere. Looks at its checkpoint, at these seconds; 600 of patience."""
  looks = [('ckpt-10', 500), ('ckpt-20', 1000), ('ckpt-20', 1500), ('ckpt-20', 1601)]
  none_new = types.SimpleNamespace(status='no new checkpoint')

  class Executor:
    def __init__(self, estimator, train_spec, eval_spec, hooks, listener):
      self.estimator, self.listener = estimator, listener

    def run(self):
      goes_on = []
      for checkpoint, seconds in looks:
        self.estimator.latest_checkpoint = lambda checkpoint=checkpoint: checkpoint
        monkeypatch.setattr(estimator_cluster.time, 'monotonic', lambda seconds=seconds: seconds)
        goes_on.append(self.listener.after_eval(none_new))
      return goes_on

  module = types.SimpleNamespace(_ContinuousEvalListener=types.SimpleNamespace)
  module._TrainingExecutor = Executor
  monkeypatch.setitem(sys.modules, 'training', module)
  monkeypatch.setenv('TF_CONFIG', '{"cluster": {"chief": ["127.0.0.1:1"]}}')
  monkeypatch.setattr(estimator_cluster.time, 'monotonic', lambda: 0)
  spec = type('TrainSpec', (), {'__module__': 'training', 'max_steps': 99})()
  estimator = types.SimpleNamespace(get_variable_value=lambda name: 20)
  estimator.config = types.SimpleNamespace(task_type='evaluator')
  assert estimator_cluster.train_and_evaluate(estimator, spec, None) == [True] * 3 + [False]


class Others(local_cluster.LocalCluster):
  """Tasks that run another program."""

  def command(self, name):
    return [sys.executable, '-m', 'estimator_again', CANNED, *self._flags]


@needs_keras_2
@pytest.mark.cluster
@pytest.mark.parametrize(('steps', 'patience'), [(30, 600), (100, 30)])
def test_every_task_ends(tmp_path, steps, patience):
  """After its last step, or, with fewer batches than steps, once nobody has trained for a while."""
  flags = ['--model_dir', tmp_path, '--steps', steps, '--patience', patience]
  with Others(flags, num_workers=1, num_ps=1, evaluator=True) as cluster:
    cluster.start()
    until(lambda: len(cluster.codes()) == 4, 300)
    assert set(cluster.codes().values()) == {0}
  saved = json.loads(cluster.results['chief 0'])['global_step']
  assert saved >= min(steps, 32)  # As many batches as a task has.
  assert [*(tmp_path / 'export' / 'latest').iterdir()]  # The evaluator's.
