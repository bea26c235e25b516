"""Folders whose names TensorFlow takes for patterns: a sweep writes `runs/lr[0.1]`."""

import os

import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded, wait_for_start

import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, report
from cifar10.job import control_requests

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
  """Every command on a job dir `runs/ODD//`."""
  data, job = str(tmp_path / ODD / 'data'), f'{tmp_path}/runs/{ODD}//'
  folder = job.rstrip('/')
  made = run_here('--data-dir', data, '--synthetic', 20, command=generate_cifar10_tfrecords)
  assert succeeded(made)['examples']['train'] == 80
  train = ['--data-dir', data, '--job-dir', job, '--num-layers', 8, '--train-batch-size', 8]
  train += ['--eval-every-steps', 2]
  assert succeeded(run_main(*train, '--train-steps', 2))['global_step'] == 2
  resumed = run_main(*train, '--train-steps', 4)
  last = succeeded(resumed)
  assert os.path.normpath(last['checkpoint']) == f'{folder}/model.ckpt-4'
  assert 'damaged' not in resumed.stderr
  evaluated = succeeded(run_here('--mode', 'evaluate', '--data-dir', data, '--job-dir', job))
  assert evaluated['loss'] == pytest.approx(last['loss'], rel=1e-4)
  best = run_here(
    '--mode', 'evaluate', '--data-dir', data, '--job-dir', job, '--checkpoint', 'best'
  )
  assert os.path.normpath(succeeded(best)['checkpoint']).startswith(f'{folder}/best/')

  image = tmp_path / 'image.png'
  image.write_bytes(tf.io.encode_png(np.zeros([32, 32, 3], np.uint8)).numpy())
  assert succeeded(run_here('--mode', 'predict', '--job-dir', job, '--images', image))['class']
  for form in ('saved_model', 'onnx', 'keras'):
    exported = succeeded(run_here('--mode', 'export', '--job-dir', job, '--format', form))
    assert os.path.normpath(exported[form]).startswith(f'{folder}/export/')
    assert os.path.exists(exported[form])
  assert succeeded(run_here(job, '--table', command=report))['jobs']
  page = tmp_path / ODD / 'report.html'
  succeeded(run_here(job, '--data-dir', data, '--out', page, command=report))
  assert page.read_text().startswith('<!DOCTYPE html>')
  listed = succeeded(run_here('list', job, command=checkpoint))
  assert listed['global_step'] == 4
  for out in (f'{job}/all.npz', f'{job}/all'):
    assert succeeded(run_here('dump', job, '--out', out, command=checkpoint))['variables']
  ours = ('--job-dir', job, '--data-dir', data)
  mean = run_here(
    'average', job, f'{job}/model.ckpt-2', '--out', f'{job}/mean', *ours, command=checkpoint
  )
  assert succeeded(mean)['global_step'] == 4
  of_mean = run_here('--mode', 'evaluate', *ours, '--checkpoint', f'{job}/mean')
  assert succeeded(of_mean)['examples'] == 20
  assert sorted(os.listdir(tmp_path)) == ['image.png', ODD, 'runs']
  assert os.listdir(tmp_path / 'runs') == [ODD]


@pytest.mark.slow
def test_a_training_takes_control(run_here, start_main, data_dir, tmp_path):
  job = f'{tmp_path}/runs/{ODD}//'
  train = ['--data-dir', data_dir, '--job-dir', job, '--num-layers', 8, '--train-batch-size', 8]
  early = control_requests.request(job, control_requests.Command('stop'))
  with start_main(*train, '--mode', 'train', '--train-steps', 10**6) as process:
    wait_for_start(process, job, 120)
    answer = control_requests.take_answer(job, early)
    assert answer == {'ok': False, 'answer': 'the training was only starting; ask again'}
    assert succeeded(run_here(job, 'learning_rate=0.01', command=control))['ok']
    saved = succeeded(run_here(job, 'save', command=control))['answer'].removeprefix('saved ')
    assert os.path.samefile(os.path.dirname(saved), job)
    assert os.path.exists(f'{saved}.index')
    assert succeeded(run_here(job, 'stop', command=control))['ok']
    assert process.wait(120) == 0
  assert os.listdir(tmp_path / 'runs') == [ODD]
