"""Batches that data workers make: a real dispatcher and real workers on this host."""

import collections
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import given_sources
import psutil
import pytest
import tensorflow as tf
from checkout import ROOT
from outcome import refused

from cifar10 import data_service
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import SourceError
from cifar10.data import manifest, records
from cifar10.data.info import CIFAR10
from cifar10.data.input_pipeline import RecordDataset
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import feeds

pytestmark = pytest.mark.cluster
SHARDS = 'given_sources:shards'
TESTS = os.path.join(ROOT, 'tests')


class Service:
  """A dispatcher and data workers, each a process of the command."""

  def __init__(self, folder):
    self._folder = folder
    self.processes = {}

  def __enter__(self):
    return self

  def start(self, name, *flags, address=None, until='serves at {}'):
    """Starts one, and waits until it says so -> its address."""
    address = address or f'127.0.0.1:{free_port()}'
    if name == 'dispatcher':
      self.dispatcher, role = address, ['dispatcher']
    else:
      role = ['worker', '--dispatcher', self.dispatcher]
    log = open(self._folder / f'{name}.log', 'a+')  # noqa: SIM115 - it is read at the end.
    self.processes[name] = subprocess.Popen(
      [sys.executable, '-m', 'cifar10.data_service', *role, '--address', address, *flags],
      cwd=ROOT,
      env={**os.environ, 'PYTHONPATH': TESTS, 'GIVEN_LOG': str(self._folder / 'begun')},
      stderr=log,
    )
    self.until(name, until.format(address))
    return address

  def until(self, name, text):
    deadline = time.monotonic() + 120
    while text not in self.said(name):
      assert self.processes[name].poll() is None, self.said(name)
      assert time.monotonic() < deadline, self.said(name)
      time.sleep(0.1)

  def terminate(self, name):
    """SIGTERM, upon which it ends with code 0."""
    self.processes[name].send_signal(signal.SIGTERM)
    assert self.processes[name].wait(60) == 0

  def said(self, name):
    return (self._folder / f'{name}.log').read_text()

  def __exit__(self, *exception):
    for process in self.processes.values():
      process.kill()
      process.wait()


def free_port():
  with socket.create_server(('127.0.0.1', 0)) as server:
    return server.getsockname()[1]


@pytest.fixture(scope='module')
def service(tmp_path_factory):
  """One with two data workers that have a source."""
  with Service(tmp_path_factory.mktemp('service')) as made:
    made.start('dispatcher')
    for index in range(2):
      made.start(f'worker {index}', '--source', SHARDS)
    yield made


@pytest.fixture
def alone(tmp_path):
  """Another, of one test, without data workers."""
  with Service(tmp_path) as made:
    made.start('dispatcher')
    yield made


class Trainer:
  """What a training worker reads, in this process."""

  def __init__(self, service, data_dir, job, first_example=0, **values):
    given = {'train_batch_size': 8, 'use_distortion_for_training': False, **values}
    options = RunOptions(job_dir=job, data_dir=data_dir, data_service=service.dispatcher)
    self._feed = feeds.make(from_values(given), options, Cluster(), CIFAR10)
    with tf.Graph().as_default() as graph:
      iterator = tf.compat.v1.data.make_initializable_iterator(self._feed.batches(1, first_example))
      self._element = iterator.get_next()
    self._session = tf.compat.v1.Session(graph=graph)
    with self._feed.reading():
      self._session.run(iterator.initializer)

  def images(self):
    """The next batch's."""
    with self._feed.reading():
      (images,), (labels,) = self._session.run(self._element)
    self.labels = labels
    return images

  def close(self):
    self._session.close()


def test_two_training_workers_share_every_epoch(service, data_dir):
  """Of 96 examples in 16 splits: 240 batches of 8 are 20 epochs' worth, each about 20 times.

  A data worker keeps back up to 96 examples in its buffer and some batches; no example comes twice
  an epoch, so none comes more often than there are epochs that were begun.
  """
  flags = {'source': SHARDS, 'examples_per_epoch': 96}
  # The second one joins later; the service looks at a job's name alone.
  trainers = [Trainer(service, data_dir, 'shared', first, **flags) for first in (0, 960)]
  counts = collections.Counter()
  for number in range(240):
    trainer = trainers[number % 2]
    numbers = given_sources.numbers(trainer.images())
    assert trainer.labels.tolist() == [each % 10 for each in numbers]
    counts.update(numbers)
  for trainer in trainers:
    trainer.close()
  assert set(counts) == set(range(96))
  assert max(counts.values()) - min(counts.values()) <= 12, counts


def test_record_files(service, data_dir):
  """Each of the 256 images about as often as any other: 256 batches of 8 are 8 epochs."""
  images, _ = RecordDataset(data_dir).all_examples()
  known = {image.tobytes(): number for number, image in enumerate(images)}
  trainer = Trainer(service, data_dir, 'files')
  counts = collections.Counter()
  for _ in range(256):
    counts.update(known[image.tobytes()] for image in trainer.images())
  trainer.close()
  assert len(counts) == len(known)
  assert max(counts.values()) - min(counts.values()) <= 12, counts


def test_other_data_are_another_job(service, data_dir, tmp_path):
  """By the job dir alone the service would go on with the earlier data."""
  shutil.copytree(data_dir, tmp_path / 'data')
  shutil.copy(tmp_path / 'data' / 'eval.tfrecords', tmp_path / 'data' / 'train.tfrecords')
  content = manifest.read_manifest(str(tmp_path / 'data'))
  content['subsets']['train'] = content['subsets']['eval']
  manifest.write_manifest(str(tmp_path / 'data'), content)
  expected, _ = RecordDataset(str(data_dir), 'eval').all_examples()
  known = {image.tobytes() for image in expected}
  for folder, is_of_eval in ((data_dir, False), (tmp_path / 'data', True)):
    trainer = Trainer(service, str(folder), 'again')
    assert all((image.tobytes() in known) == is_of_eval for image in trainer.images())
    trainer.close()


def test_batches_come_distorted(service, data_dir):
  """With grey squares of 8 x 8."""
  values = {'use_distortion_for_training': True, 'crop_padding': 0, 'cutout': 8}
  given = {'source': SHARDS, 'examples_per_epoch': 96, **values}
  trainer = Trainer(service, data_dir, 'distorted', **given)
  grey = (trainer.images() == 128).all(-1)
  trainer.close()
  assert (grey.sum((1, 2)) == 64).all()
  assert len({each.tobytes() for each in grey}) > 4


@pytest.mark.parametrize(
  ('source', 'flags', 'message'),
  [
    ('given_sources:Flow', ['--source', SHARDS], f'has --source {SHARDS}, and the training has'),
    ('given_sources:Flow', [], 'has no --source, and the training has given_sources:Flow'),
  ],
  ids=['another', 'none'],
)
def test_a_data_worker_with_another_source_is_named(data_dir, alone, source, flags, message):
  address = alone.start('worker', *flags)
  trainer = Trainer(alone, data_dir, 'other', source=source, examples_per_epoch=96)
  with pytest.raises(SourceError, match=f'^the data worker {address} {message}') as raised:
    trainer.images()
  assert str(raised.value).endswith(f'start it with --source {source}')
  trainer.close()


def test_another_programs_data_worker_is_named(data_dir, alone):
  code = (
    'import sys, time, tensorflow as tf\n'
    'service = tf.data.experimental.service\n'
    'server = service.WorkerServer(service.WorkerConfig(sys.argv[1]))\n'
    'time.sleep(600)\n'
  )
  command = [sys.executable, '-c', code, alone.dispatcher]
  alone.processes['other'] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
  trainer = Trainer(alone, data_dir, 'x', source=SHARDS, examples_per_epoch=96)
  with pytest.raises(SourceError, match=r'^the data worker localhost:\d+ was not started by '):
    trainer.images()
  trainer.close()


def test_a_data_worker_with_another_file_is_named(data_dir, alone, tmp_path, monkeypatch):
  """As if the training had its own at this path, on another host: it does not look at this one."""
  address = alone.start('worker')
  folder = shutil.copytree(data_dir, tmp_path / 'data')
  count = records.num_examples(data_dir, 'train')
  monkeypatch.setattr(records, 'num_examples', lambda *arguments: count)
  path = folder / 'train.tfrecords'
  shutil.copy(folder / 'eval.tfrecords', path)
  trainer = Trainer(alone, str(folder), 'elsewhere')
  message = f'^the data worker {address} has another {path} than the training '
  with pytest.raises(SourceError, match=message):
    trainer.images()
  trainer.close()
  shutil.copy(f'{data_dir}/train.tfrecords', path)
  alone.terminate('worker')
  alone.start('worker', address=address)
  trainer = Trainer(alone, str(folder), 'elsewhere')
  trainer.images()
  trainer.close()


def test_a_source_that_fails_is_named(service, data_dir):
  """Labels up to 9 where there are 5 classes: the first wrong one of some split."""
  options = RunOptions(job_dir='fails', data_dir=data_dir, data_service=service.dispatcher)
  hparams = from_values({'source': SHARDS, 'examples_per_epoch': 96, 'train_batch_size': 8})
  five = dataclasses.replace(CIFAR10, classes=CIFAR10.classes[:5])
  made = feeds.make(hparams, options, Cluster(), five)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    element = tf.compat.v1.data.make_one_shot_iterator(made.batches(1, 0)).get_next()
    with (
      pytest.raises(
        SourceError,
        match=rf'^--source {SHARDS}, shard \d+ of 16: example \d .*label is [5-9], not 0',
      ),
      made.reading(),
    ):
      session.run(element)


def test_a_killed_data_worker_loses_what_it_had(data_dir, alone, tmp_path):
  """Each call of the source is noted, and each example has the number of its call in its pixels.

  Of what the other worker has read nothing is lost; no example of a call comes twice, ever.
  """
  name = 'given_sources:noted'
  addresses = [alone.start(f'worker {index}', '--source', name) for index in range(2)]
  trainer = Trainer(alone, data_dir, 'killed', source=name, examples_per_epoch=96)
  seen = collections.Counter()

  def read(batches):
    for _ in range(batches):
      seen.update(given_sources.calls(trainer.images()))

  read(60)
  victim = alone.processes['worker 1']
  victim.kill()
  victim.wait()
  read(60)  # Training goes on.
  alone.start('worker 1', '--source', name, address=addresses[1])
  again = alone.processes['worker 1'].pid
  deadline = time.monotonic() + 120
  while not any(pid == again for pid, *_ in seen):  # It works again.
    assert time.monotonic() < deadline
    read(1)
  read(60)
  trainer.close()
  assert set(seen.values()) == {1}
  begun = [json.loads(line) for line in (tmp_path / 'begun').read_text().splitlines()]
  # No split of an epoch was given to two workers: of the k-th epoch each split was begun once.
  splits = collections.Counter(split for _, _, split in begun)
  assert max(splits.values()) - min(splits.values()) <= 2
  # What was lost of calls before the last ones was the killed worker's, and lies within its buffer.
  lost = collections.Counter()
  for pid, call, split in begun:
    missing = [n for n in range(split, 96, 16) if (pid, call, n) not in seen]
    lost[pid] += len(missing)
  # A buffer of 96, the split that is read, 6, and what was on its way: 2 batches for each of three.
  assert lost[victim.pid] <= 96 + 6 + 3 * 2 * 8


def test_a_resumed_job_goes_on(data_dir, alone, tmp_path):
  """With the next batches of its dispatcher, or in the middle of epoch 5 with a new one.

  A dispatcher forgets no job whose splits it has shared out, even with these short times.
  """
  service = tf.data.experimental.service
  short = {'job_gc_timeout_ms': 1, 'job_gc_check_interval_ms': 100}
  taken = []

  def train(first_example):
    flags = {'source': 'given_sources:noted', 'examples_per_epoch': 96}
    trainer = Trainer(alone, data_dir, 'resumed', first_example, **flags)
    for _ in range(18):
      taken.append(tuple(number for *_, number in given_sources.calls(trainer.images())))
    trainer.close()

  for number, first_example in enumerate((0, 5 * 96 + 41)):
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0, **short))
    alone.dispatcher = dispatcher.target.partition('//')[2]
    alone.start(f'worker {number}', '--source', 'given_sources:noted')
    (tmp_path / 'begun').unlink(missing_ok=True)
    train(first_example)
    time.sleep(1)
    train(0)
    splits = [json.loads(line)[2] for line in (tmp_path / 'begun').read_text().splitlines()]
    rest = 9 if number else 16  # Of 16 splits, of 6 examples, 7 have been begun.
    assert len(set(splits[:rest])) == rest
    for start in range(rest, len(splits) - 15, 16):
      assert sorted(splits[start : start + 16]) == list(range(16))
    assert len(splits) > 48
  assert len(set(taken)) == len(taken) == 72


def test_sigterm_ends_each_with_code_0(alone):
  alone.start('worker')
  for name in ('dispatcher', 'worker'):  # The worker's dispatcher is gone.
    alone.terminate(name)
    assert 'Traceback' not in alone.said(name)


def test_a_worker_waits_for_its_dispatcher_and_hears_sigterm(alone):
  alone.terminate('dispatcher')
  waits = f'waiting for the dispatcher ({alone.dispatcher})'
  alone.start('worker', until=waits)
  alone.terminate('worker')
  address = alone.start('another worker', until=waits)
  alone.start('dispatcher', address=alone.dispatcher)
  alone.until('another worker', f'serves at {address}')


@pytest.fixture
def sigterm():
  """The command leaves its handler in this process."""
  before = signal.getsignal(signal.SIGTERM)
  yield
  signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures('sigterm')
def test_an_address_is_one_servers(service, run_here):
  """TensorFlow would let two servers share it, and each client find one of them."""
  said = refused(run_here('dispatcher', '--address', service.dispatcher, command=data_service))
  assert f'--address {service.dispatcher}: another process serves there' in said


def test_ports_are_closed_to_other_hosts(service):
  """The kernel drops what does not come from this host: as a cluster's own, with its filter."""
  for process in service.processes.values():
    listening = [c for c in psutil.Process(process.pid).net_connections() if c.status == 'LISTEN']
    assert listening
  with socket.create_connection(('127.0.0.1', int(service.dispatcher.rpartition(':')[2])), 5):
    pass
  every = [a for addresses in psutil.net_if_addrs().values() for a in addresses]
  own = [a.address for a in every if a.family == socket.AF_INET]
  own = [address for address in own if not address.startswith('127.')]
  if not own:
    pytest.skip('this host has only loopback addresses')
  for address in own:
    with pytest.raises(OSError, match=r'timed out|refused'):
      socket.create_connection((address, int(service.dispatcher.rpartition(':')[2])), 2)


@pytest.mark.usefixtures('sigterm')
@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['worker', '--address', '127.0.0.1:5'], 'a worker needs --dispatcher HOST:PORT'),
    (['dispatcher', '--address', 'here'], "'here' must be HOST:PORT"),
    (
      ['dispatcher', '--address', '127.0.0.1:5', '--source', SHARDS],
      '--dispatcher and --source belong to a worker',
    ),
    (
      ['worker', '--address', 'a:1', '--dispatcher', 'a:2', '--source', 'given_sources:ones'],
      '--source given_sources:ones takes no shards, which a data worker needs',
    ),
  ],
)
def test_flags_that_are_refused(run_here, flags, message):
  assert message in refused(run_here(*flags, command=data_service), at_once=True)
