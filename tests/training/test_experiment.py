"""The loop is TensorFlow's: tf.estimator.train_and_evaluate; in a cluster: test_warm_up.py."""

import json
import os
from unittest import mock

import pytest
import tensorflow as tf
from outcome import events
from recomputed import assert_equal

import cifar10
from cifar10.core.errors import InputError
from cifar10.job import stop_record
from cifar10.job.stop_record import StopReason
from cifar10.training import evaluator
from estimator_again import estimator as tf_estimator

OPTIONS = {
  'network': 'tiny_network:Tiny',
  'train_batch_size': 16,
  'eval_batch_size': 32,
  'num_gpus': 0,
  'train_steps': 6,
  'eval_every_steps': 2,
  'num_intra_threads': 1,
  'num_inter_threads': 1,
}


def test_train_and_evaluate_by_hand_is_the_commands_training(data_dir, tmp_path, monkeypatch):
  """With the job's files, and the evaluations that the options ask for, in one graph."""
  built, init = [], evaluator.KeptEvaluation.__init__
  monkeypatch.setattr(evaluator.KeptEvaluation, '__init__', lambda *args: built.append(init(*args)))
  by_hand, by_call = str(tmp_path / 'hand'), str(tmp_path / 'call')
  made = cifar10.make_experiment(by_hand, data_dir, **OPTIONS)
  assert not os.path.exists(by_hand)  # Nothing is written before it trains.
  metrics, exports = tf_estimator.train_and_evaluate(*made)
  assert (metrics['global_step'], exports, len(built)) == (6, [], 1)
  cifar10.train(by_call, data_dir, **OPTIONS)
  assert_equal(by_hand, by_call, 6)
  with open(os.path.join(by_hand, 'config.json'), encoding='utf-8') as file:
    assert json.load(file)['train_steps'] == 6
  assert [each['step'] for each in events(by_hand, 'evaluate')] == [2, 4, 6]
  assert [each['reason'] for each in events(by_hand, 'end')] == ['train_steps']


def test_a_loop_of_ones_own_over_the_estimator(data_dir, tmp_path):
  """`evaluate` of another input is TensorFlow's: no callback hears of it."""
  made = cifar10.make_experiment(tmp_path / 'job', data_dir, **OPTIONS)
  with pytest.raises(InputError, match='holds no checkpoint'):
    made.estimator.evaluate(made.eval_spec.input_fn)
  made.estimator.train(made.train_spec.input_fn, max_steps=3)
  [end] = events(tmp_path / 'job', 'end')
  assert end['message'] == 'a callback or max_steps ended it at step 3'
  found = made.estimator.evaluate(made.eval_spec.input_fn)
  assert (found['global_step'], len(events(tmp_path / 'job', 'evaluate'))) == (3, 1)
  hook = mock.Mock(spec=tf.compat.v1.train.SessionRunHook, **{'before_run.return_value': None})
  other = made.estimator.evaluate(lambda: cifar10.input_fn(data_dir, 'eval', 1, 32), 1, [hook])
  assert hook.after_run.call_count == 1  # Of three batches.
  assert (other['accuracy'] * 32) % 1 == 0
  assert len(events(tmp_path / 'job', 'evaluate')) == 1
  made.estimator.train(made.train_spec.input_fn, max_steps=4)  # With callbacks of its own.
  assert len(events(tmp_path / 'job', 'start')) == 2
  stop_record.write(str(tmp_path / 'job'), StopReason(stop_record.BY_CONTROL, 'stopped'), 4)
  made.estimator.train(made.train_spec.input_fn, max_steps=6)
  assert (made.estimator.ended_by, len(events(tmp_path / 'job', 'start'))) == ('control', 2)


def test_a_parameter_server_is_refused_by_name(data_dir, tmp_path, monkeypatch):
  cluster = {'chief': ['127.0.0.1:1'], 'worker': ['127.0.0.1:2'], 'ps': ['127.0.0.1:3']}
  text = json.dumps({'cluster': cluster, 'task': {'type': 'ps', 'index': 0}})
  monkeypatch.setenv('TF_CONFIG', text)
  with pytest.raises(InputError, match='TF_CONFIG names ps 0, which this call cannot be; run cif'):
    cifar10.make_experiment(tmp_path / 'job', data_dir, **OPTIONS)
