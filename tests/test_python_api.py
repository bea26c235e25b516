"""`import cifar10`: what its calls return, refuse and leave behind."""

import concurrent.futures
import gc
import json
import logging
import os
import shutil
import signal
import tempfile
import threading

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import events

import cifar10
import generate_cifar10_tfrecords
from cifar10.core.logs import log

SMALL = {
  'network': 'tiny_network:Tiny',
  'train_batch_size': 16,
  'train_steps': 4,
  'eval_every_steps': 2,
}


@pytest.fixture(scope='module')
def job(data_dir, tmp_path_factory):
  folder = tmp_path_factory.mktemp('api') / 'job'
  schedule = {'lr_values': [1, 0.1], 'lr_boundaries_epochs': [9]}
  return folder, cifar10.train(folder, data_dir, **schedule, **SMALL)


def test_results_are_what_the_command_prints(job, data_dir, run_here):
  folder, trained = job
  assert trained['ended_by'] == 'train_steps'
  evaluated = cifar10.evaluate(folder, data_dir)
  assert evaluated == {name: value for name, value in trained.items() if name != 'ended_by'}
  printed = run_here('--job-dir', folder, '--data-dir', data_dir, '--mode', 'evaluate').stdout
  assert json.loads(printed) == evaluated
  assert cifar10.export(folder)['accuracy']['eval'] == trained['accuracy']


def test_an_array_is_answered_as_its_files_are(job, tmp_path):
  folder, _ = job
  images = np.random.default_rng(1).integers(0, 256, [3, 32, 32, 3], np.uint8)
  paths = [tmp_path / f'{number}.png' for number in range(3)]
  for path, image in zip(paths, images):
    path.write_bytes(tf.io.encode_png(image).numpy())
  with cifar10.load(folder, eval_batch_size=2) as network:
    answers = network(images)
    assert network(images[:0]).probabilities.shape == (0, 10)
    with pytest.raises(cifar10.InputError, match=r'images are float64 \[3, 32, 32, 3\]; they must'):
      network(images / 255)
  with pytest.raises(RuntimeError, match='closed Session'):
    network(images)
  for answer, predicted in zip(answers.probabilities, cifar10.predict(folder, paths)):
    assert list(predicted['probabilities'].values()) == pytest.approx(answer.tolist(), abs=2e-6)
  assert [each['class'] for each in cifar10.predict(folder, paths)] == [
    network.classes[label] for label in answers.classes
  ]
  [lost] = cifar10.predict(folder, tmp_path / 'none.png')
  assert 'does not exist' in lost['error']


@pytest.mark.parametrize('name', ['learning_rate', 'vgg_layers', 'num_cpu_towers', 'best_by'])
def test_what_the_command_refuses_is_an_input_error(name, data_dir, tmp_path, run_here):
  job_dir, flag = tmp_path / 'job', f'--{name.replace("_", "-")}=-3'
  printed = run_here('--job-dir', job_dir, '--data-dir', data_dir, flag).stderr.splitlines()[-1]
  with pytest.raises(cifar10.InputError) as error:
    cifar10.train(job_dir, data_dir, **{name: -3})
  assert printed == f'error: {error.value}'
  with pytest.raises(cifar10.InputError, match='4 values and its boundaries are 2;'):  # Not 1.
    cifar10.train(job_dir, data_dir, lr_boundaries_epochs=['10', '20'])
  assert not job_dir.exists()


def test_convert_makes_what_the_generator_makes(tmp_path, run_here):
  made = cifar10.convert(tmp_path / 'here', synthetic=20, seed=3)
  assert made['examples'] == {'train': 80, 'validation': 20, 'eval': 20}
  flags = ['--data-dir', tmp_path / 'there', '--synthetic', 20, '--seed', 3]
  printed = run_here(*flags, command=generate_cifar10_tfrecords).stdout
  assert {**made, 'data_dir': str(tmp_path / 'there')} == json.loads(printed)
  for split in made['examples']:
    name = f'{split}.tfrecords'
    assert (tmp_path / 'here' / name).read_bytes() == (tmp_path / 'there' / name).read_bytes()
  assert cifar10.convert(tmp_path / 'here', synthetic=20, seed=3, force=False) == made
  with pytest.raises(cifar10.InputError, match='--forc'):  # No abbreviation: this one replaces.
    cifar10.convert(tmp_path / 'here', synthetic=20, seed=3, forc=True)
  assert cifar10.convert(tmp_path / 'here', synthetic=30, force=True)['examples']['train'] == 120


@pytest.mark.parametrize(
  ('call', 'options', 'says'),
  [
    ('train', {'learning_rat': 1}, 'unrecognized arguments: --learning-rat=1'),
    ('train', {'recipe': 'fast93'}, 'recipe'),
    ('train', {'train_steps': 'ten'}, '--train-steps'),
    ('train', {'network': lambda images, is_training, num_classes: None}, 'network'),
    ('train', {'callbacks': [print]}, 'callbacks'),
    ('train', {'callbacks': 'my:callback'}, "callbacks gives 'my:callback'"),
    ('predict', {'images': [np.zeros([32, 32, 3], np.uint8)]}, 'images'),
    ('predict', {'images': np.zeros([1, 32, 32, 3], np.uint8), 'out': 'answers.csv'}, 'out'),
    ('predict', {'images': 'a.png', 'callbacks': [cifar10.Callback()]}, 'callbacks'),
    ('convert', {'data_dir': None}, 'data_dir'),
  ],
)
def test_what_no_command_line_could_say(call, options, says, job, data_dir, tmp_path):  # noqa: PLR0917
  """One line, which names the option."""
  given = {'convert': [], 'predict': [job[0]], 'train': [tmp_path / 'job', data_dir]}
  with pytest.raises(cifar10.InputError) as error:
    getattr(cifar10, call)(*given[call], **options)
  assert says in str(error.value)
  assert '\n' not in str(error.value)


def test_a_notebook_shows_an_input_error_in_one_line(tmp_path, monkeypatch):
  monkeypatch.setenv('IPYTHONDIR', str(tmp_path))
  code = "import cifar10; cifar10.train('job', 'data', lr=1)"
  ran = checkout.python('-m', 'IPython', '--HistoryManager.enabled=False', '-c', code)
  [line] = (ran.stdout + ran.stderr).splitlines()
  assert line.startswith('InputError: unrecognized arguments: --lr=1; did you mean')


def state():
  """Signals, environment, log, and graphs, open files and temporary files that are left."""
  gc.collect()
  return (
    [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    signal.set_wakeup_fd(-1),
    len(tf.compat.v1.get_default_graph().get_operations()),
    dict(os.environ),
    (log.level, list(log.handlers), log.propagate, list(logging.getLogger().handlers)),
    sum(isinstance(each, tf.Graph) for each in gc.get_objects()),
    sorted(os.listdir('/proc/self/fd'))[:-1],
    sorted(os.listdir(tempfile.gettempdir())),
  )


def test_calls_leave_the_process_as_it_was(job, data_dir, tmp_path, monkeypatch):
  folder, _ = job
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))  # Of no other process.
  cifar10.evaluate(folder, data_dir)  # What is set once is documented.
  before, threads = state(), set(threading.enumerate())
  cifar10.train(tmp_path / 'job', data_dir, **SMALL)
  shutil.rmtree(tmp_path / 'job')
  cifar10.evaluate(folder, data_dir)
  with pytest.raises(cifar10.InputError):
    cifar10.train(tmp_path / 'job', data_dir, learning_rate=-1)
  for thread in set(threading.enumerate()) - threads:
    thread.join(5)
  assert set(threading.enumerate()) <= threads
  assert state() == before


def test_a_call_in_a_callback_leaves_the_training_its_summaries(job, data_dir, tmp_path):
  folder, _ = job

  class Evaluates(cifar10.Callback):
    def on_step_end(self, step):
      if step.step == 1:
        cifar10.evaluate(folder, data_dir)

  trained = tmp_path / 'job'
  cifar10.train(trained, data_dir, mode='train', callbacks=[Evaluates()], **SMALL)
  [path] = trained.glob('events*')
  written = tf.compat.v1.train.summary_iterator(str(path))
  assert max(event.step for event in written if event.summary.value) == 4


class Interrupts(cifar10.Callback):
  def on_step_end(self, step):
    if step.step == 3:
      os.kill(os.getpid(), signal.SIGINT)
      threading.Event().wait(1)  # On a busy machine the thread that hears it may be late by a step.


@pytest.mark.usefixtures('hears_ctrl_c')
def test_ctrl_c_saves_and_is_raised(data_dir, tmp_path):
  job_dir, settings = tmp_path / 'job', {'mode': 'train', **SMALL}
  with pytest.raises(KeyboardInterrupt):
    cifar10.train(job_dir, data_dir, **{**settings, 'train_steps': 10**6}, callbacks=[Interrupts()])
  assert tf.train.latest_checkpoint(str(job_dir)).endswith('-3')
  assert [(end['reason'], end['step']) for end in events(job_dir, 'end')] == [('SIGINT', 3)]
  assert cifar10.train(job_dir, data_dir, **settings)['global_step'] == 4


def test_it_trains_in_a_thread_without_signals(data_dir, tmp_path):
  settings = {'mode': 'train', **SMALL}
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    made = pool.submit(cifar10.train, tmp_path / 'job', data_dir, **settings).result(300)
  assert made['global_step'] == 4


# Each has its own session; they share the job dir that the first one makes.
FIRST_CALLS = """
import concurrent.futures, os, sys, threading
import cifar10
assert 'tensorflow.python' not in sys.modules
start, before = threading.Barrier(3), os.readlink('/proc/self/fd/2')

def call(number):
  start.wait()
  with cifar10.load('resnet20') as network:
    return len(network.classes)

with concurrent.futures.ThreadPoolExecutor(3) as pool:
  print(list(pool.map(call, range(3))), os.readlink('/proc/self/fd/2') == before)
"""


def test_several_threads_may_make_the_first_call():
  """Which loads TensorFlow."""
  done = checkout.python('-c', FIRST_CALLS)
  assert (done.stdout, done.stderr) == ('[10, 10, 10] True\n', '')


def test_the_log_is_shown_unless_it_is_configured(job, data_dir, capfd):
  folder, _ = job
  log.setLevel(logging.NOTSET)
  cifar10.evaluate(folder, data_dir)
  assert 'evaluated at step 4' in capfd.readouterr().err
  log.setLevel(logging.ERROR)
  cifar10.evaluate(folder, data_dir)
  assert 'evaluated at step 4' not in capfd.readouterr().err
