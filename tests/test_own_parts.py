"""Networks and callbacks of a module outside of the program: by flags, in one process and more."""

import json
import math
import shutil
import sys

import numpy as np
import pytest
import random_checkpoint
import tensorflow as tf
from outcome import refused, succeeded
from recomputed import assert_equal
from tensorflow.compat.v1.train import MomentumOptimizer, Optimizer

import cifar10
from cifar10 import checkpoint
from cifar10.core import user_code
from cifar10.core.errors import InputError
from cifar10.data.manifest import CIFAR10
from cifar10.exporters import freeze_graph
from cifar10.options.hparams import from_values

NET = 'outside_parts:net'
SMALL = ['--train-batch-size', 16, '--eval-batch-size', 64]
ONLY = ['--mode', 'train', '--save-every-steps', 2]  # No evaluation, which takes as long again.


def flags(data_dir, job_dir, *more, network=NET):
  job = ['--data-dir', data_dir, '--job-dir', job_dir, '--network', network]
  return [*job, *SMALL, '--train-steps', 4, '--eval-every-steps', 2, *more]


def test_a_function_trains_resumes_and_serves(run_here, data_dir, tmp_path):
  """On two towers; no later command names the network."""
  job = tmp_path / 'job'
  own = ['--callback', 'outside_parts:Heard', '--callback', 'outside_parts:nothing']
  result = run_here(*flags(data_dir, job, '--num-cpu-towers', 2, '--ema-decay', 0.9, *own))
  succeeded(result)
  heard = [line for line in result.stdout.splitlines() if line.startswith('HEARD')]
  assert heard == ['HEARD validation 2', 'HEARD validation 4', 'HEARD eval 4']
  assert json.loads((job / 'config.json').read_text())['network'] == NET
  [path] = job.glob('events*')
  events = tf.compat.v1.train.summary_iterator(str(path))
  found = {each.tag: each.simple_value for event in events for each in event.summary.value}
  assert found['tower_0/network/width'] == 4
  assert found['own/answer'] == 42
  assert not any(tag.startswith('tower_1') for tag in found)
  reader = tf.train.load_checkpoint(str(job))
  assert np.abs(reader.get_tensor('network/mean')).max() > 0
  assert reader.get_tensor('network/weights/ExponentialMovingAverage').shape == (4, 10)
  succeeded(run_here(*flags(data_dir, job, '--train-steps', 6, '--ema-decay', 0.9)))
  evaluate = ['--mode', 'evaluate', '--use-ema', '--callback', 'outside_parts:Heard']
  result = run_here('--data-dir', data_dir, '--job-dir', job, *evaluate)
  assert succeeded(result)['global_step'] == 6
  assert result.stdout.startswith('HEARD eval 6')
  exported = succeeded(run_here('--job-dir', job, '--mode', 'export'))
  serve = tf.saved_model.load(exported['saved_model']).signatures['serving_default']
  images = np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3], np.uint8)
  served = serve(images=tf.constant(images))['probabilities'].numpy()
  np.testing.assert_allclose(served, cifar10.predict(job, images).probabilities, atol=1e-5)


def test_what_is_in_the_process_alone_is_not_exported():
  """Loaded elsewhere, the function would be unknown."""
  hparams = from_values({'network': 'outside_parts:calls_python'})
  path, _ = random_checkpoint.save(hparams)
  with pytest.raises(InputError, match=r'^the network cannot be exported: .* \(PyFunc'):
    freeze_graph.freeze(hparams, CIFAR10, path)


@pytest.mark.bfloat16
def test_a_frozen_function_in_bfloat16_starts_warm(run_here, data_dir, tmp_path):
  first, second = tmp_path / 'first', tmp_path / 'second'
  succeeded(run_here(*flags(data_dir, first, '--mode', 'train')))
  more = ['--mode', 'train', '--dtype', 'bfloat16', '--freeze', 'kernel']
  succeeded(run_here(*flags(data_dir, second, *more, '--warm-start-from', first)))
  before, after = (tf.train.load_checkpoint(str(job)) for job in (first, second))
  name = 'network/kernel'
  np.testing.assert_array_equal(before.get_tensor(name), after.get_tensor(name))
  assert after.get_tensor(name).dtype == np.float32
  assert (before.get_tensor('network/weights') != after.get_tensor('network/weights')).any()


def test_weight_decay_is_of_all_that_is_trained(run_here, data_dir, tmp_path):
  """Of weights 0.5: 4 x 10 / 2 / 4 = 5, times 0.01; of a frozen kernel nothing."""
  more = ['--weight-decay', 0.01, '--freeze', 'kernel', '--learning-rate', 1e-9]
  result = succeeded(run_here(*flags(data_dir, tmp_path / 'job', *more)))
  assert result['loss'] - result['cross_entropy'] == pytest.approx(0.05, abs=1e-5)


def test_a_family_has_options(run_here, data_dir, tmp_path):
  job, place = tmp_path / 'job', 'outside_parts:Outside'
  result = run_here(*flags(data_dir, job, *ONLY, '--outside-width', 8, network=place))
  succeeded(result)
  assert 'training Outside-8 on' in result.stderr
  config = json.loads((job / 'config.json').read_text())
  assert (config['network'], config['outside_width']) == (place, 8)
  again = run_here(*flags(data_dir, job, *ONLY, network=place))
  assert 'training Outside-8' in again.stderr  # Fixed.
  said = refused(run_here(*flags(data_dir, job, '--outside-widht', 8, network=place)))
  assert 'unrecognized arguments: --outside-widht 8' in said
  # Of the other families an option may have the name: help shows only its own.
  shown = run_here('--network', 'outside_parts:SharedOption', '--help').stdout
  assert '--network outside_parts:SharedOption: a family outside of the program' in shown
  assert ('--widths' in shown, '--vgg-layers' in shown) == (True, False)


@pytest.mark.parametrize(
  ('network', 'says'),
  [
    ('outside_parts:no_variable', 'has no variable to train'),
    ('outside_parts:bare_variable', 'bare, which nothing would train'),
    ('outside_parts:keras_batch_norm', 'in evaluation, which is missing in tra'),
    ('outside_parts:layer_with_regularizer', 'give --weight-decay'),
    ('outside_parts:fails_in_training', "fails: KeyError: 'no such branch' ("),
    ('outside_parts:fails_in_evaluation', "fails: KeyError: 'no such branch' ("),
    ('outside_parts:NoName', 'is no class derived from cifar10.Family'),
    ('outside_parts:FailingCheck', "FailingCheck fails: KeyError: 'no such option' ("),
    ('outside_parts:TakenOption', 'has an option whose name is taken'),
    ('outside_parts:TakenFlag', 'has an option whose name is taken'),
    ('outside_parts:gone', "has no attribute 'gone'"),
    ('gone_module:net', "cannot be imported: ModuleNotFoundError: No module named 'gone_module'"),
  ],
)
def test_what_is_no_network_is_refused(run_here, data_dir, tmp_path, network, says):
  """What only its evaluation lacks, too, is found before a training."""
  said = refused(run_here(*flags(data_dir, tmp_path / 'job', network=network)))
  assert f'--network {network} ' in said
  assert says in said
  assert not (tmp_path / 'job' / 'checkpoint').exists()


def test_a_dry_run_refuses_a_network_that_needs_whole_images(run_here, data_dir, tmp_path):
  whole = flags(data_dir, tmp_path / 'job', '--dry-run', network='outside_parts:needs_whole_images')
  succeeded(run_here(*whole))
  said = refused(run_here(*whole, '--resolutions', '16,0.5'))
  assert '--network outside_parts:needs_whole_images fails: TypeError' in said


def test_a_counter_is_written_averaged_and_begun_anew(run_here, data_dir, tmp_path):
  """After 4 steps it is 4, at step 2 it was 2: the mean is 3.

  The epoch that recomputes moving averages adds its batches, 256 / 16. A warm start counts from 0.
  """
  job, out = tmp_path / 'job', tmp_path / 'mean' / 'model.ckpt'
  more = [*ONLY, '--ema-decay', 0.5]
  succeeded(run_here(*flags(data_dir, job, *more, network='outside_parts:counts')))
  succeeded(run_here('dump', job, '--out', tmp_path / 'a.npz', command=checkpoint))
  dumped = np.load(tmp_path / 'a.npz')['network/seen']
  assert (dumped, dumped.dtype) == (4, np.int64)
  out.parent.mkdir()
  where = ['--job-dir', job, '--data-dir', data_dir, '--out', out]
  succeeded(run_here('average', f'{job}/model.ckpt-2', job, *where, command=checkpoint))
  assert tf.train.load_checkpoint(str(out)).get_tensor('network/seen') == 3 + 16
  on, more = tmp_path / 'on', [*ONLY, '--warm-start-from', job]
  succeeded(run_here(*flags(data_dir, on, *more, network='outside_parts:counts')))
  assert tf.train.load_checkpoint(str(on)).get_tensor('network/seen') == 4


def test_variables_of_values_are_float32(run_here, data_dir, tmp_path):
  more = [*ONLY, '--learning-rate', 1e-30, '--num-cpu-towers', 2]
  succeeded(run_here(*flags(data_dir, tmp_path / 'a', *more, network='outside_parts:of_values')))
  reader = tf.train.load_checkpoint(str(tmp_path / 'a'))
  found = {name: reader.get_tensor(f'network/{name}') for name in ('scale', 'shift', 'seven')}
  assert [value.dtype for value in found.values()] == [np.float32, np.float32, np.int32]
  assert [each.tolist() for each in found.values()] == [[0.5] * 3, [2.0] * 3, 7]


def test_a_job_whose_module_is_gone_says_which(run_here, data_dir, tmp_path, monkeypatch):
  job = tmp_path / 'job'
  succeeded(run_here(*flags(data_dir, job, '--mode', 'train')))
  monkeypatch.setattr(sys, 'path', [path for path in sys.path if not path.endswith('/own')])
  monkeypatch.delitem(sys.modules, 'outside_parts')
  said = refused(run_here('--job-dir', job, '--mode', 'export'), at_once=True)
  assert said.startswith(f'error: --network {NET} cannot be imported: ')


def test_a_failing_line_is_named_in_a_folder_of_any_name(tmp_path):
  own = tmp_path / 'tensorflow' / 'own.py'
  own.parent.mkdir()
  own.write_text('def fails():\n  return 1 / 0\n')
  place = {}
  exec(compile(own.read_text(), own, 'exec'), place)
  with pytest.raises(InputError, match=rf'ZeroDivisionError: .* \({own}, line 2\)$'):
    user_code.called('--source', 'own:fails', place['fails'])()


def test_a_network_of_a_script_says_where_it_is():
  with pytest.raises(InputError, match='the script or notebook that holds it can go on with this'):
    user_code.imported('--network', '__main__:gone')


ADAM = 'tensorflow:compat.v1.train.AdamOptimizer'
OWN = {'optimizer': ADAM, 'schedule': 'outside_parts:by_epoch'}
OWN['augmentation'] = 'outside_parts:blended'


@pytest.mark.parametrize('towers', [1, 2])
def test_all_doors_of_training_resume(run_here, data_dir, tmp_path, towers):
  """Bit for bit; the network alone is imported for what does not train."""
  job, more = tmp_path / 'job', [*ONLY, '--num-cpu-towers', towers, '--num-intra-threads', 1]
  doors = [f'--{name}={function}' for name, function in OWN.items()]
  succeeded(run_here(*flags(data_dir, job, *more, *doors)))
  parts = shutil.copytree(job, tmp_path / 'parts')
  (parts / 'model.ckpt-4.index').unlink()
  (parts / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"')
  resumed = run_here(*flags(data_dir, parts, *more, *doors))
  assert 'resuming at step 2 of 4' in resumed.stderr
  assert_equal(job, parts, 4)
  for door in ([], ['--optimizer', 'outside_parts:nothing']):
    said = refused(run_here(*flags(data_dir, job, *more, *door)))
    assert f'optimizer is {ADAM} there and ' in said
  config = json.loads((job / 'config.json').read_text())
  assert OWN.items() < config.items()
  (job / 'config.json').write_text(json.dumps(config | dict.fromkeys(OWN, 'gone:gone')))
  assert cifar10.evaluate(job, data_dir)['global_step'] == 4


TINY = {'network': NET, 'train_batch_size': 16, 'mode': 'train'}


def test_objects_must_be_given_again(data_dir, tmp_path):
  own = {
    'optimizer': lambda rate: MomentumOptimizer(rate, 0.5, name='Own'),
    'schedule': lambda step, run: run.learning_rate / (1 + step),
    'augmentation': lambda images, labels, seed: (images, tf.one_hot(labels, 10)),
  }
  cifar10.train(tmp_path, data_dir, train_steps=2, **TINY, **own)
  config = json.loads((tmp_path / 'config.json').read_text())
  assert {config[name] for name in OWN} == {'given:function'}
  for name in OWN:
    rest = {other: own[other] for other in own if other != name}
    with pytest.raises(InputError, match=f'--{name} given:function is an object'):
      cifar10.train(tmp_path, data_dir, train_steps=4, **TINY, **rest)
  trained = cifar10.train(tmp_path, data_dir, train_steps=4, **TINY, **own)
  # Whatever the optimizer calls its variables, they are none of the network's.
  named = {'checkpoint': trained['checkpoint']}
  assert cifar10.evaluate(tmp_path, data_dir, **named)['global_step'] == 4


def late(images, labels, seed):
  """Fails in Python, when the first batch is made."""
  return tf.numpy_function(lambda x: x[::0], [images], tf.uint8), labels


def no_class(images, labels, seed):
  return images, labels + 10


def negative(images, labels, seed):
  return images, 1.5 * tf.one_hot(labels, 10) - 0.5 * tf.one_hot((labels + 1) % 10, 10)


def twice(images, labels, seed):
  return images, 2 * tf.one_hot(labels, 10)


@tf.function(autograph=False)
def graph(images, labels, seed):
  with tf.control_dependencies([tf.debugging.assert_less(labels, 3, 'too many')]):
    return tf.identity(images), labels


NO_BATCH = 'it must return images, uint8 .16, 32, 32, 3., and labels'


@pytest.mark.parametrize(
  ('door', 'own', 'says'),
  [
    ('optimizer', 'outside_parts:gone', "cannot be imported: .* has no attribute 'gone'"),
    ('optimizer', lambda: None, r'fails: TypeError: .* takes 0 positional arguments but 1 was'),
    (
      'optimizer',
      lambda rate: None,
      'returns a NoneType; it must return a tf.compat.v1.train.Optimizer',
    ),
    ('optimizer', lambda rate: Optimizer(False, 'bare'), 'fails: NotImplementedError'),
    ('schedule', lambda step, run: [0.1, 0.2], 'fails: ValueError: '),
    ('augmentation', lambda x, y: (x, y), 'fails: TypeError: .* takes 2 positional arguments'),
    ('augmentation', lambda x, y, seed: x, NO_BATCH),
    ('augmentation', lambda x, y, seed: (x, y, seed), NO_BATCH),
    ('augmentation', lambda x, y, seed: (tf.cast(x, 'float32'), y), f'dtype=float32.*{NO_BATCH}'),
    ('augmentation', lambda x, y, seed: (x[:8], y), NO_BATCH),
    ('augmentation', lambda x, y, seed: (x, y[:, None]), NO_BATCH),
    ('augmentation', lambda x, y, seed: (x, tf.one_hot(y, 9)), 'labels .16, 9.; make them .n, 10.'),
    ('augmentation', no_class, 'no_class fails: Received a label value of 1'),
    ('augmentation', negative, 'negative fails: .*must be probabilities, of sum 1'),
    ('augmentation', twice, 'twice fails: .*must be probabilities, of sum 1'),
    ('augmentation', late, 'late fails: .*ValueError: slice step cannot be zero$'),
    ('augmentation', graph, 'graph fails: .*assertion failed: .too many.'),
  ],
)
def test_what_does_not_fit_a_door_is_refused(data_dir, tmp_path, door, own, says):
  """And another function may take the folder."""
  with pytest.raises(InputError, match=says) as error:
    cifar10.train(tmp_path, data_dir, train_steps=1, **TINY, **{door: own})
  assert '\n' not in str(error.value)
  assert cifar10.train(tmp_path, data_dir, train_steps=1, **TINY)['global_step'] == 1


def test_a_schedule_whose_rate_is_no_number_is_named(data_dir, tmp_path):
  with pytest.raises(InputError, match='became NaN with --schedule given:function;'):
    cifar10.train(tmp_path, data_dir, train_steps=1, **TINY, schedule=lambda step, run: math.nan)
