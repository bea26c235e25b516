"""The whole program on filesystems that are no local disk, by their URLs.

ram:// is TensorFlow's, and lives in this process's memory: all commands run in it. file:// is the
local disk, reached as any URL is: what several processes do with each other is tried there.
"""

import os

import checkout
import pytest
import tensorflow as tf
from outcome import events, refused, succeeded, until

import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, report
from cifar10.core import files
from cifar10.job import checkpoints, control_requests

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
  """An empty working folder."""
  folder = tmp_path / 'nowhere'
  folder.mkdir()
  monkeypatch.chdir(folder)
  return folder


@pytest.mark.slow
def test_a_whole_life_in_memory(run_here, nowhere, tmp_path):
  url = f'ram:/{tmp_path}'
  data, job = f'{url}/data', f'{url}/job'

  for _ in range(2):
    made = run_here('--data-dir', data, '--synthetic', 20, command=generate_cifar10_tfrecords)
    assert succeeded(made)['examples'] == {'train': 80, 'validation': 20, 'eval': 20}
  assert 'they are intact; nothing to do' in made.stderr

  train = ['--data-dir', data, '--job-dir', job, *SMALL, '--eval-every-steps', 2]
  train += ['--keep-checkpoints', 2]
  assert succeeded(run_here(*train, '--train-steps', 4))['global_step'] == 4
  ended = succeeded(run_here(*train, '--train-steps', 8))
  assert ended['global_step'] == 8
  assert ended['checkpoint'] == f'{job}/model.ckpt-8'
  assert [event['step'] for event in events(job, 'save')] == [0, 2, 4, 6, 8]
  content = files.read(f'{job}/model.ckpt-8.index')
  with files.writing(f'{job}/model.ckpt-8.index') as file:
    file.write(content[:-1])
  again = run_here(*train, '--train-steps', 8)
  assert succeeded(again)['loss'] == pytest.approx(ended['loss'], rel=1e-4)
  assert 'model.ckpt-6: 2 steps are made again' in again.stderr
  evaluated = succeeded(run_here('--mode', 'evaluate', '--data-dir', data, '--job-dir', job))
  assert evaluated['loss'] == pytest.approx(ended['loss'], rel=1e-4)

  image = f'{checkout.ROOT}/tests/hostile/grey.png'
  succeeded(run_here('--mode', 'predict', '--job-dir', job, '--images', image))
  exported = succeeded(run_here('--mode', 'export', '--job-dir', job))
  assert exported['saved_model'].startswith(f'{job}/export/')
  assert exported['accuracy']['eval'] == evaluated['accuracy']
  assert 'serving_default' in tf.saved_model.load(exported['saved_model']).signatures

  page = tmp_path / 'report.html'
  reported = run_here(job, '--out', page, '--table', command=report)
  assert succeeded(reported)['jobs'][0]['evaluation']['accuracy']['value'] == evaluated['accuracy']
  assert 'Worst mistakes' in page.read_text(encoding='utf-8')
  assert succeeded(run_here('list', job, command=checkpoint))['checkpoint'] == f'{job}/model.ckpt-8'
  dumped = run_here('dump', f'{job}/best', '--out', f'{url}/best.npz', command=checkpoint)
  assert succeeded(dumped)['variables'] == 37  # 23 trained ones and 14 moving averages.
  warm = ['--mode', 'train', '--data-dir', data, '--job-dir', f'{url}/warm', *SMALL]
  warm += ['--train-steps', 1, '--warm-start-from', f'{url}/best.npz']
  assert '37 of 37 variables' in run_here(*warm).stderr

  assert {os.path.basename(path) for path in files.matching(f'{job}/damaged', '*')} == {
    'model.ckpt-8.index',
    'model.ckpt-8.data-00000-of-00001',
  }
  assert os.listdir(nowhere) == []
  assert sorted(os.listdir(tmp_path)) == ['nowhere', 'report.html']


@pytest.mark.long
def test_processes_meet_behind_a_url(run_here, start_main, data_dir, nowhere, tmp_path):
  """One trains, without a lock, and says so; an order from another ends it."""
  job = f'file://{tmp_path}/job'
  train = ['--mode', 'train', '--data-dir', f'file://{data_dir}', '--job-dir', job, *SMALL]
  train += ['--train-steps', 10**6, '--save-every-steps', 10**6]
  with start_main(*train) as process:
    until(lambda: events(job, 'start'), 300, process)
    assert f'process {process.pid} on ' in control_requests.who_trains(job)
    assert succeeded(run_here(job, 'stop', command=control))['ok']
    assert process.wait(300) == 0
  [end] = events(job, 'end')
  assert end['reason'] == 'control'
  assert checkpoints.latest_step(job) == end['step'] > 0
  assert sorted(os.listdir(tmp_path)) == ['job', 'nowhere']
  assert os.listdir(nowhere) == []


URL = 'foo://bucket/folder'
PREDICT = ['--mode', 'predict', '--job-dir', 'job', '--images', 'x.png', 'gs://bucket/x.png']


@pytest.mark.parametrize(
  ('command', 'flags', 'says'),
  [
    (generate_cifar10_tfrecords, ['--data-dir', URL, '--synthetic', 2], 'foo:// is no filesystem'),
    (cifar10_main, ['--data-dir', 'data', '--job-dir', URL], 'foo:// is no filesystem'),
    (checkpoint, ['list', URL], 'foo:// is no filesystem'),
    (control, [URL, 'save'], 'foo:// is no filesystem'),
    (cifar10_main, PREDICT, '--images gs://bucket/x.png is a URL'),
  ],
)
def test_what_a_url_cannot_be(run_here, nowhere, command, flags, says):
  assert refused(run_here(*flags, command=command), at_once=True).startswith(f'error: {says}')
  assert os.listdir(nowhere) == []
