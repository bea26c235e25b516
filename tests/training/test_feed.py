"""Training on a Python source: as the program does it, in this process."""

import json
import logging
import os
import re

import given_sources
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded

from cifar10 import report
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import SourceError
from cifar10.data.info import CIFAR10
from cifar10.job import metrics_log
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import feeds, source_feed

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 64]


@pytest.fixture
def train(run_here, data_dir, tmp_path):
  def run(source, *flags):
    source = ['--source', f'given_sources:{source}'] if source else []
    where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job']
    return run_here(*where, *SMALL, '--mode', 'train', *source, *flags)

  return run


ALONE = Cluster()


def drawn(
  data_dir, source, count, *, batch_size=16, num_examples=96, cluster=ALONE, processes=1, **values
):
  """So many batches, each the images and the labels of two shards."""
  given = {'train_batch_size': batch_size, 'use_distortion_for_training': False, **values}
  said = {'source': f'given_sources:{source}', 'examples_per_epoch': num_examples}
  hparams = from_values({**said, **given})
  options = RunOptions(job_dir='none', data_dir=data_dir, source_processes=processes)
  made = feeds.make(hparams, options, cluster, CIFAR10)
  assert made.num_examples() == num_examples
  with tf.Graph().as_default(), tf.compat.v1.Session() as session, made.reading():
    batches = made.batches(2, 0)
    iterator = tf.compat.v1.data.make_initializable_iterator(batches)
    element = iterator.get_next()
    session.run(iterator.initializer)
    return [session.run(element) for _ in range(count)]


def numbers(batches):
  """In the order of their batches: example i of a batch is in shard i mod 2."""
  return [
    number
    for shards, _ in batches
    for pair in zip(*map(given_sources.numbers, shards))
    for number in pair
  ]


@pytest.mark.timeout(60)
def test_a_worker_whose_shard_is_empty_says_so(data_dir):
  """It would look for an example in one epoch after the other, and the others would wait for it."""
  cluster = Cluster({'chief': ('a:1',), 'worker': ('b:2',)}, 'worker')
  with pytest.raises(SourceError, match='only_in_shard_0: shard 1 of 2 yields no examples'):
    drawn(data_dir, 'only_in_shard_0', 1, cluster=cluster)


def test_the_rest_of_an_epoch_in_processes_may_be_empty(data_dir):
  """As for a session that begins anew exactly at the end of an epoch; the next epoch follows."""
  hparams = from_values({'source': 'given_sources:shards', 'examples_per_epoch': 96})
  options = RunOptions(job_dir='none', data_dir=data_dir, source_processes=2)
  made = feeds.make(hparams, options, ALONE, CIFAR10)
  with made.reading():
    made._processes.epoch = lambda: iter(())
    assert list(made._epoch()) == []


def test_what_a_failed_process_leaves_is_not_told_as_an_epoch(data_dir, caplog):
  """Of three processes the second fails: the others' rest is asked for before the error is told."""
  caplog.set_level(logging.INFO)
  hparams = from_values({'source': 'given_sources:fails_in_shard_1', 'examples_per_epoch': 96})
  options = RunOptions(job_dir='none', data_dir=data_dir, source_processes=3)
  made = feeds.make(hparams, options, ALONE, CIFAR10)
  assert made.num_examples() == 96
  with made.reading():
    with pytest.raises(SourceError, match='RuntimeError: no more'):
      list(made._epoch())
    list(made._epoch())
  assert not caplog.messages


def test_batches_are_shuffled_epochs_in_towers_shards(data_dir):
  """The buffer holds an epoch: three of 96 are 18 batches of 16, of which it keeps 6 back."""
  batches = drawn(data_dir, 'ones', 18)
  images, labels = batches[0]
  assert [shard.shape for shard in images] == [(8, 32, 32, 3)] * 2
  assert [shard.shape for shard in labels] == [(8,)] * 2
  found = numbers(batches)
  assert found[:96] != sorted(found[:96])
  for shards, labels in batches:
    for shard, of_shard in zip(shards, labels):
      assert [n % 10 for n in given_sources.numbers(shard)] == of_shard.tolist()
  counts = np.bincount(found, minlength=96)
  assert counts.sum() == 288
  assert counts.max() <= 4  # Of four epochs that were begun at the most,
  assert found == numbers(drawn(data_dir, 'ones', 18))  # and the same again.
  assert found != numbers(drawn(data_dir, 'ones', 18, seed=1))


def test_a_worker_reads_its_shard(data_dir):
  """Of three workers the second has the numbers 1, 4, 7, ...; without shards it has all."""
  cluster = Cluster({'chief': ('a:1',), 'worker': ('a:2', 'a:3')}, 'worker', 0)
  found = numbers(drawn(data_dir, 'shards', 12, cluster=cluster))
  assert set(found) == set(range(1, 96, 3))
  assert set(numbers(drawn(data_dir, 'ones', 18, cluster=cluster))) == set(range(96))


def test_processes_read_a_shard_each(data_dir):
  """Each the half of an epoch: 288 examples come from four epochs at the most."""
  found = numbers(drawn(data_dir, 'shards', 18, processes=2))
  counts = np.bincount(found, minlength=96)
  assert (counts.sum(), len(counts)) == (288, 96)
  assert counts.max() <= 4
  assert found == numbers(drawn(data_dir, 'shards', 18, processes=2))


def test_a_process_of_the_source_that_fails_is_one_line(train):
  flags = ['--examples-per-epoch', 96, '--source-processes', 2, '--train-steps', 10**6]
  result = train('fails_in_shard_1', *flags)
  assert result.returncode == 1
  said = 'shard 1 of 2: example 4 (counted from 1): RuntimeError: no more ('
  assert f'error: --source given_sources:fails_in_shard_1, {said}' in result.stderr.splitlines()[-1]


def test_who_begins_anew_leaves_no_reading_behind(data_dir):
  """As after the loss of a parameter server; a `Flow` takes one reader at a time."""
  said = {'source': 'given_sources:long_flow', 'examples_per_epoch': 600}
  hparams = from_values({**said, 'train_batch_size': 8})
  made = feeds.make(hparams, RunOptions(job_dir='none', data_dir=data_dir), Cluster(), CIFAR10)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session, made.reading():
    iterator = tf.compat.v1.data.make_initializable_iterator(made.batches(1, 0))
    element = iterator.get_next()
    for _ in range(3):
      session.run(iterator.initializer)
      for _ in range(5):
        session.run(element)


def test_distortions_are_those_of_the_options(data_dir):
  """Cut-outs of 8 x 8 in grey, 128; another one of the same image in another epoch."""
  augmented = {'use_distortion_for_training': True, 'crop_padding': 0, 'cutout': 8}
  batches = drawn(data_dir, 'ones', 12, **augmented)
  images = np.concatenate([shard for shards, _ in batches for shard in shards])
  grey = (images == 128).all(-1)
  assert (grey.sum((1, 2)) == 64).all()  # No class is grey.
  assert len({each.tobytes() for each in grey}) > 50


def test_alternating_flips(data_dir):
  """What is mirrored in one epoch is not in the next. A buffer of one example keeps the order."""
  augmented = {'use_distortion_for_training': True, 'crop_padding': 0, 'flip': 'alternating'}
  others = np.arange(96) % 10 > 0

  def flips(**given):
    found = []
    values = {'batch_size': 96, 'num_examples': 1, **augmented, **given}
    for shards, _ in drawn(data_dir, 'ones', 3, **values):
      images = np.stack(shards, 1).reshape([96, 32, 32, 3])
      # The second pixel is 0, and the last but one only of a mirrored image, or of class 0.
      found.append(images[:, 0, 30, 0] == 0)
    return found

  mirrored = flips()
  assert 20 < mirrored[0][others].sum() < 66
  assert (mirrored[0] ^ mirrored[1])[others].all()
  assert (mirrored[1] ^ mirrored[2])[others].all()
  for given in (
    {'seed': 1},
    {'cluster': Cluster({'chief': ('a:1',), 'worker': ('a:2',)}, 'worker')},
  ):
    assert 20 < (mirrored[0] ^ flips(**given)[0])[others].sum() < 66, given


@pytest.mark.slow
def test_a_job_trains_resumes_and_remembers(train, run_here, data_dir, tmp_path):
  flags = ['--examples-per-epoch', 96, '--eval-every-steps', 3]
  result = train('ones', '--train-steps', 6, *flags)
  assert succeeded(result)['global_step'] == 6
  assert 'on 96 examples' in result.stderr
  config = json.loads((tmp_path / 'job' / 'config.json').read_text())
  assert (config['source'], config['examples_per_epoch']) == ('given_sources:ones', 96)
  [start] = [e for e in metrics_log.read(str(tmp_path / 'job')) if e['event'] == 'start']
  assert start['options']['source'] == 'given_sources:ones'
  assert start['examples_per_epoch'] == 96
  # A job dir belongs to its source, which need not be said again.
  said = refused(train('listed', '--train-steps', 8, *flags))
  assert 'source is given_sources:ones there and given_sources:listed here' in said
  again = train(None, '--train-steps', 8, *flags)
  assert again.returncode == 0, again.stderr
  assert 'resuming at step 6' in again.stderr
  where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', '--mode', 'evaluate']
  evaluated = run_here(*where)
  assert json.loads(evaluated.stdout)['examples'] == 70


def test_an_epoch_of_another_length_is_told(train):
  result = train('Flow', '--examples-per-epoch', 80, '--train-steps', 20)
  assert result.returncode == 0, result.stderr
  assert 'Flow: an epoch has 96 examples, and training counts 80 as one' in result.stderr
  assert result.stderr.count('an epoch has 96 examples') == 1


def test_what_is_wrong_before_training_leaves_the_job_dir_alone(train, tmp_path):
  for source, message in [
    ('missing', 'there is no missing in'),
    ('raises_first', "KeyError: 'no such thing'"),
    ('wrong_dtype', 'its image is float32'),
    ('ones', 'add --examples-per-epoch'),
  ]:
    line = refused(train(source), at_once=True)
    assert line.startswith(f'error: --source given_sources:{source}')
    assert message in line
  assert not (tmp_path / 'job').exists()


@pytest.mark.parametrize(
  ('source', 'message'),
  [
    ('late_label', 'example 46 (counted from 1): its label is 10, not 0 to 9'),
    ('raises_late', "example 97 (counted from 1): KeyError: 'no such thing' ("),
  ],
)
def test_what_goes_wrong_while_training_is_one_line(train, source, message, tmp_path):
  """Of 96 examples 6 batches are made; the steps that were saved stay."""
  result = train(source, '--train-steps', 10**6, '--examples-per-epoch', 96)
  assert result.returncode == 1
  lines = result.stderr.splitlines()
  assert lines[-1].startswith(f'error: --source given_sources:{source}: {message}')
  assert 'Traceback' not in result.stderr
  [end] = [e for e in metrics_log.read(str(tmp_path / 'job')) if e['event'] == 'end']
  assert end['reason'] == 'error'
  assert end['message'].startswith('SourceError: --source given_sources:')


@pytest.mark.slow
def test_a_dry_run_looks_at_the_source(train, tmp_path):
  found = succeeded(train('Flow', '--dry-run'))
  assert (found['examples_per_epoch'], found['timed_steps']) == (96, 20)
  assert not (tmp_path / 'job').exists()


def test_flags_that_belong_to_a_source(train):
  for flags, message in [
    (['--source', 'no function'], 'it must be package.module:function'),
    (
      ['--source', 'given_sources:ones', '--source-processes', 2],
      '--source given_sources:ones takes no shards, which --source-processes 2 needs',
    ),
    (
      ['--source', 'given_sources:ones', '--data-service', '127.0.0.1:9'],
      '--source given_sources:ones takes no shards, which --data-service needs',
    ),
    (['--data-service', 'a:9', '--mode', 'evaluate'], '--data-service a:9 belongs to training'),
    (['--data-service', 'a'], 'it must be HOST:PORT'),
  ]:
    assert message in refused(train(None, *flags))


def test_a_source_in_place_of_the_validation_split(run_here, data_dir, tmp_path):
  """Its 96 examples choose best/ and end training; evaluations and reports of the job read it."""
  job = tmp_path / 'job'
  where = ['--data-dir', data_dir, '--job-dir', job]
  source = ['--validation-source', 'given_sources:shuffled', '--source', 'given_sources:Flow']
  steps = ['--train-steps', 6, '--eval-every-steps', 2, '--stop-at-accuracy', 0]
  assert succeeded(run_here(*where, *SMALL, *source, *steps))['ended_by'] == 'stop_at_accuracy'
  events = [each for each in metrics_log.read(str(job)) if each['event'] == 'evaluate']
  assert [(each['subset'], each['examples']) for each in events] == [
    ('validation', 96),
    ('eval', 70),
  ]
  assert os.listdir(job / 'best')
  evaluate = ['--mode', 'evaluate', '--subset', 'validation', '--checkpoint', 'best']
  evaluated = json.loads(run_here(*where, *evaluate).stdout)
  assert evaluated['accuracy'] == events[0]['accuracy']
  table = run_here(job, '--data-dir', data_dir, '--subset', 'validation', '--table', command=report)
  [said] = succeeded(table)['jobs']
  assert said['evaluation']['examples'] == 96
  for name in ('accuracy', 'cross_entropy'):  # Each image has its own label.
    found = said['evaluation'][name]['value']
    assert found == pytest.approx(evaluated[name], rel=1e-5)


def test_how_far_a_long_one_is_read_is_told(monkeypatch, caplog):
  """So that an endless one shows. 1,056 single examples come in chunks of 512."""
  monkeypatch.setattr(source_feed, '_TOLD_AT', 500)
  caplog.set_level(logging.INFO)
  held_out = source_feed.HeldOut('given_sources:long_flow', 10)
  assert len(held_out.all_examples()[1]) == sum(len(y) for _, y in held_out.one_pass(64)) == 1056
  assert [re.search('[0-9,]+ examples', line)[0] for line in caplog.messages] == [
    '512 examples',
    '1,024 examples',
  ] * 2


@pytest.mark.parametrize(
  ('source', 'ends'),
  [
    ('no_pair', (2, 'example 1 (counted from 1): it is a dict')),
    ('late_label', (1, 'example 46 (counted from 1): its label is 10, not 0 to 9')),
    ('missing', (2, 'there is no missing in')),
  ],
)
def test_what_is_wrong_with_it_is_one_line(source, ends, run_here, data_dir, tmp_path):
  name, (code, says) = f'given_sources:{source}', ends
  where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', '--train-steps', 2]
  result = run_here(*where, *SMALL, '--validation-source', name)
  assert result.returncode == code, result.stderr
  assert result.stderr.splitlines()[-1].startswith(f'error: --validation-source {name}')
  assert says in result.stderr.splitlines()[-1]
  assert (tmp_path / 'job').exists() == (code == 1)
