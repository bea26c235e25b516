"""Folders whose names TensorFlow takes for patterns: a sweep writes `runs/lr[0.1]`."""

import os

import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded

import generate_cifar10_tfrecords
from cifar10 import checkpoint, report

ODD = 'lr[0.1]*?\\x'
tf1 = tf.compat.v1


@pytest.mark.parametrize('name', ['plain', 'lr[0.1]', 'a\\b', ODD])
def test_checkpoints_are_saved_found_read_and_removed(tmp_path, name):
  for beside in ('lr0', 'lr[0.1]xy\\x'):  # What the names fit as patterns.
    (tmp_path / beside).mkdir()
    (tmp_path / beside / 'model.ckpt-1.index').touch()
  folder = str(tmp_path / name)
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable('v', initializer=[1.0, 2.0])
    saver = tf1.train.Saver([variable], max_to_keep=2)
    session.run(variable.initializer)
    for step in (1, 2, 3):
      path = saver.save(session, os.path.join(folder, 'model.ckpt'), step)
    assert path == os.path.join(folder, 'model.ckpt-3')
    indices = [file for file in os.listdir(folder) if file.endswith('.index')]
    assert sorted(indices) == ['model.ckpt-2.index', 'model.ckpt-3.index']
    assert tf.train.latest_checkpoint(folder) == path
    session.run(variable.assign([0.0, 0.0]))
    saver.restore(session, path)
    assert session.run(variable).tolist() == [1, 2]
  assert tf1.train.NewCheckpointReader(path).get_tensor('v').tolist() == [1, 2]
  assert tf.train.load_variable(folder, 'v').tolist() == [1, 2]
  for beside in ('lr0', 'lr[0.1]xy\\x'):
    assert os.listdir(tmp_path / beside) == ['model.ckpt-1.index']


@pytest.mark.slow
def test_a_whole_life(run_main, run_here, tmp_path):
  data, job = str(tmp_path / ODD / 'data'), str(tmp_path / ODD)
  made = run_here('--data-dir', data, '--synthetic', 20, command=generate_cifar10_tfrecords)
  assert succeeded(made)['examples']['train'] == 80
  train = ['--data-dir', data, '--job-dir', job, '--num-layers', 8, '--train-batch-size', 8]
  train += ['--eval-every-steps', 2]
  assert succeeded(run_main(*train, '--train-steps', 2))['global_step'] == 2
  resumed = run_main(*train, '--train-steps', 4)
  assert succeeded(resumed)['checkpoint'] == f'{job}/model.ckpt-4'
  assert 'damaged' not in resumed.stderr
  evaluated = succeeded(run_main('--mode', 'evaluate', '--data-dir', data, '--job-dir', job))
  assert evaluated['loss'] == pytest.approx(succeeded(resumed)['loss'], rel=1e-4)
  best = run_main(
    '--mode', 'evaluate', '--data-dir', data, '--job-dir', job, '--checkpoint', 'best'
  )
  assert succeeded(best)['checkpoint'].startswith(f'{job}/best/')

  image = tmp_path / 'image.png'
  image.write_bytes(tf.io.encode_png(np.zeros([32, 32, 3], np.uint8)).numpy())
  assert succeeded(run_here('--mode', 'predict', '--job-dir', job, '--images', image))['class']
  for form in ('saved_model', 'keras'):
    exported = succeeded(run_here('--mode', 'export', '--job-dir', job, '--format', form))
    assert exported[form].startswith(f'{job}/export/')
  assert succeeded(run_here(job, '--table', command=report))['jobs']
  listed = succeeded(run_here('list', job, command=checkpoint))
  assert listed['global_step'] == 4
  dumped = run_here('dump', job, '--out', f'{job}/all.npz', command=checkpoint)
  assert succeeded(dumped)['variables']
