"""The command that looks into checkpoints and makes others of them."""

import json
import os
import pathlib

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded
from recomputed import SUFFIX, values

from cifar10 import checkpoint
from cifar10.data import manifest, records
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.job import checkpoints
from cifar10.options.hparams import from_values
from cifar10.training import checkpoint_tool

SMALL = ['--num-layers', 8, '--train-batch-size', 16]


@pytest.fixture(scope='module')
def job(run_shared, data_dir, tmp_path_factory):
  """Two steps with an average of the weights."""
  folder = str(tmp_path_factory.mktemp('jobs') / 'job')
  flags = [*SMALL, '--train-steps', 2, '--save-every-steps', 1, '--ema-decay', 0.5]
  succeeded(run_shared('--data-dir', data_dir, '--job-dir', folder, *flags, '--mode', 'train'))
  return folder


@pytest.fixture
def run(run_here):
  """Runs the command -> its JSON, or the one line that refuses."""

  def run(*flags):
    result = run_here(*flags, command=checkpoint)
    return refused(result) if result.returncode else succeeded(result)

  return run


def test_lists_what_is_there_and_its_sums(job, run):
  """ResNet-8's parameters by hand.

  Kernels 3 x 3 x (3 x 16 + 2 x 16 x 16 + 16 x 32 + 32 x 32 + 32 x 64 + 64 x 64) = 74,160; seven
  batch norms of 16, 16, 16, 32, 32, 64 and 64 channels, 240 in all, with a scale and an offset
  each; a head of 64 x 10 + 10.
  """
  found = run('list', job)
  assert found['checkpoint'] == os.path.join(job, 'model.ckpt-2')
  assert found['global_step'] == 2
  assert found['trainable'] == {'variables': 7 + 14 + 2, 'numbers': 75_290, 'bytes': 4 * 75_290}
  assert found['slot'] == found['trainable']
  # Batch norm's 480 numbers, and of each of the 23 + 14 variables its average: 75,290 + 480 more.
  assert found['average'] == {'variables': 14 + 37, 'numbers': 76_250, 'bytes': 4 * 76_250}
  assert found['other'] == {'variables': 1, 'numbers': 1, 'bytes': 8}


@pytest.mark.parametrize('ema', [[], ['--use-ema']])
def test_a_dump_has_what_inference_needs_and_nothing_else(ema, job, run, tmp_path):
  arrays, copy = str(tmp_path / 'new' / 'dump.npz'), str(tmp_path / 'copy')
  assert run('dump', job, '--out', arrays, *ema)['numbers'] == 75_290 + 480
  run('dump', arrays, '--out', copy)
  trained, dumped = values(job), values(copy)
  assert len(dumped) == 37 + 1
  assert dumped.pop('global_step') == 2
  for name, value in dumped.items():
    np.testing.assert_array_equal(value, trained[name + SUFFIX if ema else name], err_msg=name)
  assert any((trained[name] != trained[name + SUFFIX]).any() for name in dumped)


def test_an_average_has_mean_weights_and_moving_averages_of_its_own(job, run, data_dir, tmp_path):
  """An epoch is 16 batches of 16 images: the mean of their means is that of all 256."""
  paths = [f'{job}/model.ckpt-{step}' for step in (0, 2)]
  run('average', *paths, '--job-dir', job, '--data-dir', data_dir, '--out', tmp_path / 'mean')
  first, second, mean = map(values, (*paths, tmp_path / 'mean'))
  assert mean.pop('global_step') == 2
  for name in mean:
    if not name.endswith(('/moving_mean', '/moving_variance')):
      expected = (first[name].astype(np.float64) + second[name]) / 2
      np.testing.assert_allclose(mean[name], expected, rtol=1e-6, atol=1e-8, err_msg=name)
  images, _ = Cifar10DataSet(data_dir, 'train').all_examples()
  kernel = mean['resnet/init/conv/kernel']
  convolved = tf.nn.conv2d(images.astype(np.float32) / 128 - 1, kernel, 1, 'SAME').numpy()
  found = mean['resnet/init/batch_norm/moving_mean']
  np.testing.assert_allclose(found, convolved.mean((0, 1, 2)), rtol=1e-3, atol=1e-4)
  batches = convolved.var((0, 1, 2))  # Of all; batches vary less by what their means do.
  assert (mean['resnet/init/batch_norm/moving_variance'] < batches * 1.001).all()
  assert (mean['resnet/init/batch_norm/moving_variance'] > batches * 0.5).all()


def test_an_average_leaves_frozen_moving_averages_as_they_are(job, run, data_dir, tmp_path):
  config = json.loads((pathlib.Path(job) / 'config.json').read_text())
  (tmp_path / 'job').mkdir()
  (tmp_path / 'job' / 'config.json').write_text(json.dumps({**config, 'freeze': 'resnet/init/'}))
  where = ['--job-dir', tmp_path / 'job', '--data-dir', data_dir]
  run('average', f'{job}/model.ckpt-2', *where, '--out', tmp_path / 'mean')
  before, after = values(f'{job}/model.ckpt-2'), values(tmp_path / 'mean')
  np.testing.assert_array_equal(
    after['resnet/init/batch_norm/moving_mean'], before['resnet/init/batch_norm/moving_mean']
  )
  later = 'resnet/stage1/block0/bn1/moving_mean'
  assert not np.allclose(after[later], before[later], rtol=1e-2)


def test_variables_that_share_an_initial_value_are_averaged_apart(tmp_path, monkeypatch):
  """As two that a function makes of one tensor of ones: the moving one stays 5, not 2."""
  monkeypatch.syspath_prepend(os.path.join(checkout.ROOT, 'tests', 'own'))
  hparams = from_values({'network': 'outside_parts:one_initial_value', 'train_batch_size': 4})
  shapes = {'scale': [3], 'variance': [3], 'both': [3], 'weights': [3, 10]}
  given = {f'network/{name}': np.full(shape, 2, np.float32) for name, shape in shapes.items()}
  given['network/variance'] += 3
  images = np.zeros([4, 3072], np.uint8)
  records.write_records(manifest.record_path(str(tmp_path), 'train'), images, [0] * 4)
  found = checkpoint_tool.with_moving_averages(hparams, manifest.CIFAR10, str(tmp_path), given)
  expected = {'scale': 2, 'variance': 5, 'both': 7, 'weights': 2}
  assert {name: value.flat[0] for name, value in found.items()} == {
    f'network/{name}': value for name, value in expected.items()
  }


def test_a_copy_of_best_is_the_copy(job, run, tmp_path):
  """Not the best/ that lies beside it, which a later training may have changed."""
  kept = {'accuracy': 0.5, 'global_step': 1}
  checkpoints.keep_best(str(tmp_path), f'{job}/model.ckpt-1', kept, 1)
  (tmp_path / 'best').rename(tmp_path / 'kept')
  assert run('list', tmp_path / 'kept')['global_step'] == 1


def test_refuses_what_does_not_fit(job, run, data_dir, tmp_path):
  arrays = tmp_path / 'dump.npz'
  run('dump', job, '--out', arrays)
  before = arrays.read_bytes()
  for out in (arrays, f'{tmp_path}/folder/'):
    assert f'--out {out} is ' in run('dump', job, '--out', out)
  assert arrays.read_bytes() == before
  assert 'holds no checkpoint' in run('list', tmp_path / 'none')
  assert '--use-ema' in run('dump', arrays, '--use-ema', '--out', tmp_path / 'ema')
  np.savez(tmp_path / 'other.npz', **{'resnet/fully_connected/bias': np.zeros(3)})
  where = ['--data-dir', data_dir, '--out', tmp_path / 'mean', '--job-dir']
  assert 'is of another network: ' in run('average', tmp_path / 'other.npz', *where, job)
  assert 'holds no job; name' in run('average', arrays, *where, tmp_path)
  config = json.loads((pathlib.Path(job) / 'config.json').read_text())
  (tmp_path / 'job').mkdir()
  (tmp_path / 'job' / 'config.json').write_text(json.dumps({**config, 'source': 'm:f'}))
  assert 'was trained on --source m:f' in run('average', arrays, *where, tmp_path / 'job')
  assert not list(tmp_path.glob('mean*'))
