"""`import cifar10`: what its calls return, refuse and leave behind."""

import concurrent.futures
import errno
import gc
import json
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading

import checkout
import numpy as np
import pytest
import tensorflow as tf

import cifar10
import generate_cifar10_tfrecords
from cifar10 import api
from cifar10.core import storage_errors, user_code
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import metrics_log

SMALL = {
  'network': 'tiny_network:Tiny',
  'train_batch_size': 16,
  'train_steps': 4,
  'eval_every_steps': 2,
}


@pytest.fixture(scope='module')
def job(data_dir, tmp_path_factory):
  folder = tmp_path_factory.mktemp('api') / 'job'
  return folder, cifar10.train(
    folder, data_dir, lr_values=[1, 0.1], lr_boundaries_epochs=[9], **SMALL
  )


def test_importing_it_loads_no_tensorflow_and_prints_nothing():
  code = (
    "import sys, cifar10; cifar10.train, cifar10.load; sys.exit('tensorflow.python' in sys.modules)"
  )
  done = checkout.python('-c', code)
  assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


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
  with pytest.raises(cifar10.InputError, match='the network is closed; load it again'):
    network(images)
  for answer, predicted in zip(answers.probabilities, cifar10.predict(folder, paths)):
    assert list(predicted['probabilities'].values()) == pytest.approx(answer.tolist(), abs=2e-6)
  assert [each['class'] for each in cifar10.predict(folder, paths)] == [
    network.classes[label] for label in answers.classes
  ]
  [lost] = cifar10.predict(folder, tmp_path / 'none.png')
  assert 'does not exist' in lost['error']


@pytest.mark.parametrize(
  ('options', 'flags'),
  [
    ({'learning_rate': -1.0}, ['--learning-rate', -1]),
    ({'lr_values': (1, 2)}, ['--lr-values', '1,2']),
    ({'vgg_layers': 13}, ['--vgg-layers', 13]),
    ({'use_ema': True}, ['--use-ema']),
    ({'num_cpu_towers': 3}, ['--num-cpu-towers', 3]),
    ({'callback': 'nowhere'}, ['--callback', 'nowhere']),
  ],
)
def test_what_the_command_refuses_is_an_input_error(options, flags, data_dir, tmp_path, run_here):
  job_dir = tmp_path / 'job'
  printed = run_here('--job-dir', job_dir, '--data-dir', data_dir, *flags).stderr.splitlines()[-1]
  with pytest.raises(cifar10.InputError) as error:
    cifar10.train(job_dir, data_dir, **options)
  assert printed == f'error: {error.value}'
  assert not job_dir.exists()


@pytest.mark.parametrize(
  'options',
  [
    {'synthetic': 0},
    {'dataset': 'cifar11'},
    {'dataset': 'cifar100', 'images': 'photos'},
    {'images': 'photos', 'split': (0.5, 0.1)},
  ],
)
def test_what_the_generator_refuses_is_an_input_error(options, tmp_path, run_here):
  words = [
    f'--{name}={",".join(map(str, v)) if name == "split" else v}' for name, v in options.items()
  ]
  flags = ['--data-dir', tmp_path / 'data', *words]
  printed = run_here(*flags, command=generate_cifar10_tfrecords).stderr
  with pytest.raises(cifar10.InputError) as error:
    cifar10.convert(tmp_path / 'data', **options)
  assert printed == f'error: {error.value}\n'


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
  assert cifar10.convert(tmp_path / 'here', synthetic=30, force=True)['examples']['train'] == 120


def test_predictions_refuse_what_they_cannot_use(job, tmp_path):
  folder, _ = job
  images = np.zeros([1, 32, 32, 3], np.uint8)
  with pytest.raises(cifar10.InputError, match='out is for images in files'):
    cifar10.predict(folder, images, out=tmp_path / 'answers.csv')
  with pytest.raises(
    cifar10.InputError, match='images has an item of type ndarray; give one array'
  ):
    cifar10.predict(folder, [images[0]])
  with pytest.raises(
    cifar10.InputError, match='callbacks hear of training and evaluation, not of predict'
  ):
    cifar10.predict(folder, ['a.png'], callbacks=[cifar10.Callback()])


NUL = 'has a character NUL; take it out'


@pytest.mark.parametrize(
  ('options', 'says'),
  [
    ({'learning_rat': 1}, 'there is no option learning_rat; the nearest is learning_rate'),
    ({'recipe': 'fast93'}, "--recipe is 'fast93': it must be one of classic, "),
    ({'train_steps': 'ten'}, '--train-steps is "ten": it must be a whole number'),
    ({'network': lambda images, is_training, num_classes: None}, 'at the top of a module'),
    ({'mode': 'evaluate'}, "mode is 'evaluate': it must be train_and_evaluate or train"),
    ({'recipe': ['fast94']}, r"recipe is \('fast94',\): it must be text"),
    ({'recipe': {'fast94': 1}}, "recipe is {'fast94': 1}: it must be text"),
    ({'dry_run': 'x'}, "dry_run is 'x': it must be True or False"),
    ({'dry_run': np.array([1, 2])}, r'dry_run is \(1, 2\): it must be True or False'),
    ({'job_dir': np.array([1, 2])}, '--job-dir is 1,2: it must be text'),
    ({'resnet_version': np.array([1, 2])}, '--resnet-version is 1,2: it must be '),
    ({'callbacks': 3}, 'callbacks has 3; give instances of cifar10.Callback'),
    (
      {'callbacks': [print]},
      'callbacks has <built-in function print>; give instances of cifar10.Callback',
    ),
  ],
)
def test_what_no_command_line_could_say(options, says, data_dir, tmp_path):
  with pytest.raises(cifar10.InputError, match=says):
    cifar10.train(**{'job_dir': tmp_path / 'job', 'data_dir': data_dir, **options})


@pytest.mark.parametrize(
  ('images', 'options', 'says'),
  [
    (None, {}, 'images has an item of type NoneType; give one array'),
    (3.5, {}, 'images has an item of type float; give one array'),
    ('a.png', {'out': 5}, 'out is 5: it must be text'),
    ('a.png', {'out': ['x']}, r"out is \('x',\): it must be text"),
    ('a.png', {'out': True}, 'out is True: it must be text'),
    ('a.png', {'out': 'no\0file.csv'}, NUL),
    (['a\0.png'], {}, NUL),
    ('a.png', {'num_layers': np.array([1, 2])}, '--num-layers 1,2 belongs to --network resnet'),
  ],
)
def test_nor_of_predictions(images, options, says, job):
  with pytest.raises(cifar10.InputError, match=says):
    cifar10.predict(job[0], images, **options)


@pytest.mark.parametrize(
  ('options', 'says'),
  [
    ({'images': 'a\0b'}, NUL),
    ({'help': True}, 'there is no option help; the nearest is '),
    ({'h': True}, 'there is no option h; the nearest is '),
    ({'forc': None}, 'there is no option forc; the nearest is force'),
    ({'forc': True}, 'there is no option forc; the nearest is force'),
    ({'data_dir': None}, 'data_dir is None; name a folder'),
  ],
)
def test_nor_of_records(options, says, tmp_path):
  with pytest.raises(cifar10.InputError, match=says):
    cifar10.convert(**{'data_dir': tmp_path / 'data', **options})


def state():
  return (
    [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    signal.set_wakeup_fd(-1),
    len(tf.compat.v1.get_default_graph().get_operations()),
    dict(os.environ),
    (log.level, list(log.handlers), log.propagate, list(logging.getLogger().handlers)),
  )


def leftovers():
  """Graphs, open files and temporary files."""
  gc.collect()
  graphs = sum(isinstance(each, tf.Graph) for each in gc.get_objects())
  return graphs, sorted(os.listdir('/proc/self/fd'))[:-1], sorted(os.listdir(tempfile.gettempdir()))


def test_calls_leave_the_process_as_it_was(job, data_dir, tmp_path, monkeypatch):
  folder, _ = job
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))  # Of no other process.
  cifar10.evaluate(folder, data_dir)  # What is set once is documented.
  before, threads, left = state(), set(threading.enumerate()), leftovers()
  for _ in range(3):
    cifar10.train(tmp_path / 'job', data_dir, **SMALL)
    shutil.rmtree(tmp_path / 'job')
  cifar10.evaluate(folder, data_dir)
  with pytest.raises(cifar10.InputError):
    cifar10.train(tmp_path / 'job', data_dir, learning_rate=-1)
  for thread in set(threading.enumerate()) - threads:
    thread.join(5)
  assert set(threading.enumerate()) <= threads
  assert state() == before
  assert leftovers() == left


def test_a_call_in_a_callback_leaves_the_training_its_summaries(job, data_dir, tmp_path):
  folder, _ = job

  class Evaluates(cifar10.Callback):
    def on_step_end(self, step):
      if step.step == 1:
        cifar10.evaluate(folder, data_dir)

  trained = tmp_path / 'job'
  cifar10.train(trained, data_dir, mode='train', callbacks=[Evaluates()], **SMALL)
  [path] = trained.glob('events*')
  events = tf.compat.v1.train.summary_iterator(str(path))
  assert max(event.step for event in events if event.summary.value) == 4


class Interrupts(cifar10.Callback):
  def on_step_end(self, step):
    if step.step == 3:
      os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures('hears_ctrl_c')
def test_ctrl_c_saves_and_is_raised(data_dir, tmp_path):
  job_dir = tmp_path / 'job'
  with pytest.raises(KeyboardInterrupt):
    cifar10.train(job_dir, data_dir, **{**SMALL, 'train_steps': 10**6}, callbacks=[Interrupts()])
  assert tf.train.latest_checkpoint(str(job_dir)).endswith('-3')
  [end] = [event for event in metrics_log.read(str(job_dir)) if event['event'] == 'end']
  assert (end['reason'], end['step']) == ('SIGINT', 3)
  assert cifar10.train(job_dir, data_dir, **SMALL)['global_step'] == 4


@pytest.mark.usefixtures('hears_ctrl_c')
def test_ctrl_c_in_a_task_of_a_cluster_saves_and_is_raised(data_dir, tmp_path, monkeypatch):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  tasks = {'chief': [f'127.0.0.1:{port}'], 'evaluator': ['127.0.0.1:1']}
  task = {'type': 'chief', 'index': 0}
  monkeypatch.setenv('TF_CONFIG', json.dumps({'cluster': tasks, 'task': task}))
  options = {**SMALL, 'train_steps': 10**6, 'callbacks': [Interrupts()]}
  with pytest.raises(KeyboardInterrupt):
    cifar10.train(tmp_path / 'job', data_dir, **options)
  assert tf.train.latest_checkpoint(str(tmp_path / 'job')).endswith('-3')


def test_it_trains_in_a_thread_without_signals(data_dir, tmp_path):
  results = []
  thread = threading.Thread(
    target=lambda: results.append(cifar10.train(tmp_path / 'job', data_dir, mode='train', **SMALL))
  )
  thread.start()
  thread.join(300)
  assert results[0]['global_step'] == 4


class Leaves(logging.Handler):
  """Goes to another folder when training begins, as the main thread may."""

  def emit(self, record):
    os.chdir('/')


def test_a_training_in_a_thread_stays_where_it_was(data_dir, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(log, 'handlers', [Leaves()])
  monkeypatch.setattr(log, 'level', logging.INFO)
  settings = {'mode': 'train', **SMALL}
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    made = pool.submit(cifar10.train, 'job', os.path.relpath(data_dir), **settings).result(300)
  assert os.getcwd() == '/'
  assert made['checkpoint'] == str(tmp_path / 'job' / 'model.ckpt-4')


def test_code_of_the_user_s_takes_no_program_back_to_a_folder(tmp_path, monkeypatch):
  """In a thread: the program's main thread may go to another one meanwhile."""
  monkeypatch.chdir('/')

  def go():
    with user_code.others_code(InputError, None):
      os.chdir(tmp_path)

  go()
  assert os.getcwd() == '/'
  thread = threading.Thread(target=go)
  thread.start()
  thread.join()
  assert os.getcwd() == str(tmp_path)


def test_calls_that_overlap_hide_no_thread_s_error(monkeypatch):
  """Only TensorFlow's own thread repeats what the main thread says."""
  heard = []
  monkeypatch.setattr(threading, 'excepthook', heard.append)
  first, second = storage_errors.named('--a', 'a'), storage_errors.named('--b', 'b')
  first.__enter__()
  second.__enter__()
  for name in ('EventLoggerThread', 'mine'):
    thread = threading.Thread(target=lambda: os.mkdir('/proc/none'), name=name)
    monkeypatch.setattr(os, 'mkdir', denied)
    thread.start()
    thread.join()
  first.__exit__(None, None, None)
  second.__exit__(None, None, None)
  assert threading.excepthook == heard.append
  assert [each.thread.name for each in heard] == ['mine']


def denied(path):
  raise PermissionError(errno.EACCES, 'Permission denied', path)


FIRST_CALLS = """
import os, sys, threading
import cifar10
start, found = threading.Barrier(3), []

def call():
  start.wait()
  with cifar10.load('resnet20') as network:
    found.append(len(network.classes))

before = os.readlink('/proc/self/fd/2')
threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found, os.readlink('/proc/self/fd/2') == before)
"""


def test_several_threads_may_make_the_first_call():
  done = checkout.python('-c', FIRST_CALLS)
  assert done.stdout == '[10, 10, 10] True\n', done.stderr


def test_the_log_is_shown_unless_it_is_configured(job, data_dir, capfd, monkeypatch):
  folder, _ = job
  monkeypatch.setattr(log, 'level', logging.NOTSET)
  cifar10.evaluate(folder, data_dir)
  assert 'evaluated at step 4' in capfd.readouterr().err
  monkeypatch.setattr(log, 'level', logging.ERROR)
  cifar10.evaluate(folder, data_dir)
  assert 'evaluated at step 4' not in capfd.readouterr().err


def test_the_log_of_calls_that_overlap_ends_with_the_last(monkeypatch):
  monkeypatch.setattr(log, 'level', logging.NOTSET)
  before = log.level, log.propagate, list(log.handlers)
  first, second = api._log_shown(), api._log_shown()
  first.__enter__()
  second.__enter__()
  first.__exit__(None, None, None)
  assert (log.level, len(log.handlers)) == (logging.INFO, len(before[2]) + 1)
  second.__exit__(None, None, None)
  assert (log.level, log.propagate, log.handlers) == before


def test_an_included_network_loads_in_several_threads():
  """Each has its own session; they share the job dir that the first one makes."""
  networks = []
  threads = [
    threading.Thread(target=lambda: networks.append(cifar10.load('resnet20'))) for _ in range(3)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(300)
  assert len(networks) == 3
  tensor = tf.zeros([1, 32, 32, 3], tf.uint8)
  answers = {int(network(tensor).classes[0]) for network in networks}
  assert len(answers) == 1
  for network in networks:
    network.close()


class Counted(cifar10.Callback):
  steps = 0

  def on_step_end(self, step):
    self.steps += 1


@pytest.mark.parametrize('made', [lambda each: each, lambda each: iter([each])])
def test_callbacks_are_one_or_any_iterable(made, data_dir, tmp_path):
  callback = Counted()
  cifar10.train(tmp_path / 'job', data_dir, mode='train', callbacks=made(callback), **SMALL)
  assert callback.steps == 4
