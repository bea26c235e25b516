"""Checkpoints that cannot be read: training goes on from the newest whole one, others name it."""

import errno
import json
import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded
from tensorboard.backend.event_processing import event_accumulator

from cifar10 import report
from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError, MisfitError
from cifar10.job import (
  checkpoint_faults,
  checkpoints,
  damaged_checkpoints,
  metrics_log,
  variable_files,
)
from cifar10.training import checkpoint_saver

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--eval-batch-size', 32]
SAVES = ['--mode', 'train', '--save-every-steps', 2, '--eval-every-steps', 2]
DATA = '.data-00000-of-00001'


@pytest.fixture(scope='module')
def trained(run_shared, data_dir, tmp_path_factory):
  """A job dir with checkpoints of steps 0, 2, 4 and 6."""
  folder = tmp_path_factory.mktemp('trained') / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', folder, *SMALL, *SAVES, '--train-steps', 6]
  succeeded(run_shared(*flags))
  return folder


@pytest.fixture
def job(trained, tmp_path):
  return shutil.copytree(trained, tmp_path / 'job')


def snapshot(folder):
  """Every file's content."""
  return {path: path.read_bytes() for path in sorted(folder.rglob('*')) if path.is_file()}


def flip(path, place):
  """Turns one bit of a byte; from the end where `place` is negative."""
  content = bytearray(path.read_bytes())
  content[place] ^= 4
  path.write_bytes(content)


def cut(path, part):
  content = path.read_bytes()
  path.write_bytes(content[: int(len(content) * part)])


def index(job):
  return job / 'model.ckpt-6.index'


def data(job):
  return job / f'model.ckpt-6{DATA}'


def shards(job):
  os.rename(data(job), job / 'model.ckpt-6.data-00000-of-00002')


DAMAGES = {
  'data truncated': (lambda job: cut(data(job), 0.5), 'data-00000-of-00001 is damaged'),
  'data without its last byte': (
    lambda job: data(job).write_bytes(data(job).read_bytes()[:-1]),
    'data-00000-of-00001 is damaged',
  ),
  'data empty': (lambda job: cut(data(job), 0), 'data-00000-of-00001 is damaged'),
  'data missing': (lambda job: os.remove(data(job)), 'model.ckpt-6.data-... is missing'),
  'a shard missing': (shards, 'model.ckpt-6.data-00001-of-00002 is missing'),
  'a bit of the data': (lambda job: flip(data(job), 1000), 'data-00000-of-00001 is damaged'),
  'the last bit of the data': (lambda job: flip(data(job), -1), 'data-00000-of-00001 is damaged'),
  'the first bit of the data': (lambda job: flip(data(job), 0), 'data-00000-of-00001 is damaged'),
  'index missing': (lambda job: os.remove(index(job)), 'model.ckpt-6.index is missing'),
  'index empty': (lambda job: cut(index(job), 0), 'model.ckpt-6.index is damaged'),
  'index truncated': (lambda job: cut(index(job), 0.5), 'model.ckpt-6.index is damaged'),
  'index garbage': (lambda job: index(job).write_bytes(b'garbage' * 99), 'index is damaged'),
  'a bit of the index': (lambda job: flip(index(job), 100), 'index is damaged'),
  'a folder for an index': (
    lambda job: (os.remove(index(job)), index(job).mkdir()),
    'index is damaged',
  ),
}


@pytest.mark.parametrize('name', DAMAGES)
def test_goes_back_to_the_newest_whole_one(job, name):
  damage, fault = DAMAGES[name]
  damage(job)
  before = snapshot(job)
  found = checkpoints.survey(str(job))
  assert found.newest == f'{job}/model.ckpt-4'
  assert list(found.damaged) == [f'{job}/model.ckpt-6']
  assert found.damaged[f'{job}/model.ckpt-6'].endswith(fault)
  with pytest.raises(DamagedError) as error:
    checkpoints.find(str(job), None)
  said = str(error.value)
  assert f'{job}/model.ckpt-6 (' in said
  assert fault in said
  assert f'the newest whole checkpoint is {job}/model.ckpt-4' in said
  assert '\n' not in said
  with pytest.raises(DamagedError, match=r'model\.ckpt-6 \(.*newest whole .*model\.ckpt-4'):
    checkpoints.find(str(job), f'{job}/model.ckpt-6')
  assert checkpoints.find(str(job), f'{job}/model.ckpt-2') == f'{job}/model.ckpt-2'
  assert snapshot(job) == before  # Looking changes nothing.
  damaged_checkpoints.set_aside(str(job), found)
  assert tf.train.latest_checkpoint(str(job)) == f'{job}/model.ckpt-4'
  assert checkpoints.survey(str(job)) == (f'{job}/model.ckpt-4', {})
  kept = {path.name: content for path, content in before.items()}
  for path, content in snapshot(job / 'damaged').items():
    assert kept[path.name] == content
    assert path.name.startswith('model.ckpt-6.')
  assert not any(path.name.startswith('model.ckpt-6') for path in job.glob('model.*'))


@pytest.mark.parametrize('name', [f'model.ckpt-6{DATA}', 'model.ckpt-6.index', 'checkpoint'])
def test_what_may_not_be_read_is_not_damaged(job, monkeypatch, name):
  """root may read everything: so the system's answer to others is given here."""
  opened, reader = files.opened, tf.compat.v1.train.NewCheckpointReader

  def refuse(path):
    if path == str(job / name):
      raise PermissionError(errno.EACCES, 'Permission denied', path)
    return opened(path)

  def refused(prefix):
    if name.startswith('model.ckpt-6.data') and prefix.endswith('-6'):
      text = f'{prefix}{DATA}; Permission denied'  # Its type is none of TensorFlow's own.
      raise tf.errors.OpError(None, None, text, tf.errors.UNKNOWN)
    return reader(prefix)

  monkeypatch.setattr(files, 'opened', refuse)
  monkeypatch.setattr(tf.compat.v1.train, 'NewCheckpointReader', refused)
  with pytest.raises(InputError, match=r'cannot be read \(Permission denied\); allow it') as error:
    checkpoints.to_resume_from(str(job))
  assert str(job / name.partition('.data')[0]) in str(error.value)


LISTS = {
  'empty': (b'', 'it is empty'),
  'garbage': (b'garbage \x00\xff\xfe', 'it is no list of checkpoints'),
  'text': (b'model.ckpt-6\n', 'it is no list of checkpoints'),
  'half a line': (b'model_checkpoint_path: "mod', 'it is no list of checkpoints'),
  'without the latest': (b'all_model_checkpoint_paths: "model.ckpt-6"', 'it is no list of'),
}


@pytest.mark.parametrize('name', LISTS)
def test_a_damaged_list_loses_no_step(job, name, caplog):
  content, fault = LISTS[name]
  (job / 'checkpoint').write_bytes(content)
  found = checkpoints.survey(str(job))
  assert found == (f'{job}/model.ckpt-6', {f'{job}/checkpoint': found.damaged[f'{job}/checkpoint']})
  assert fault in found.damaged[f'{job}/checkpoint']
  with pytest.raises(DamagedError, match=r'/checkpoint \(.*newest whole checkpoint.*model\.ckpt-6'):
    checkpoints.find(str(job), None)
  with caplog.at_level('INFO', 'cifar10'):
    damaged_checkpoints.set_aside(str(job), found)
  assert 'going on from' in caplog.messages[-1]
  assert caplog.messages[-1].endswith('model.ckpt-6: no step is lost')
  assert (job / 'damaged' / 'checkpoint').read_bytes() == content
  state = tf.train.get_checkpoint_state(str(job))
  assert state.model_checkpoint_path == f'{job}/model.ckpt-6'
  assert list(state.all_model_checkpoint_paths) == [f'{job}/model.ckpt-{n}' for n in (0, 2, 4, 6)]


def test_a_list_of_nothing_that_is_there(job):
  """As after the job dir was moved by something that wrote whole paths."""
  (job / 'checkpoint').write_text('model_checkpoint_path: "/nowhere/model.ckpt-6"\n')
  found = checkpoints.survey(str(job))
  assert found.newest == f'{job}/model.ckpt-6'
  assert found.damaged == {'/nowhere/model.ckpt-6': 'model.ckpt-6.index is missing'}
  damaged_checkpoints.set_aside(str(job), found)
  assert tf.train.latest_checkpoint(str(job)) == f'{job}/model.ckpt-6'
  assert not (job / 'damaged').exists()  # There is nothing to move.


def test_a_missing_list_is_made_again(job):
  os.remove(job / 'checkpoint')
  found = checkpoints.survey(str(job))
  assert found == (f'{job}/model.ckpt-6', {f'{job}/checkpoint': 'it is missing'})
  damaged_checkpoints.set_aside(str(job), found)
  assert tf.train.latest_checkpoint(str(job)) == f'{job}/model.ckpt-6'


def test_several_damaged_ones_are_passed_over(job, caplog):
  for step, place in ((6, 50), (4, 5000)):
    flip(job / f'model.ckpt-{step}{DATA}', place)
  with caplog.at_level('INFO', 'cifar10'):
    damaged_checkpoints.set_aside(str(job), checkpoints.survey(str(job)))
  [line] = caplog.messages
  assert f'{job}/model.ckpt-6 (' in line
  assert f'{job}/model.ckpt-4 (' in line
  assert f'moved to {job}/damaged; ' in line
  assert line.endswith(f'going on from {job}/model.ckpt-2: 4 steps are made again')


def test_the_same_step_damaged_twice_keeps_both(job):
  for byte in (10, 20):
    shutil.copy(job / f'model.ckpt-4{DATA}', data(job))
    shutil.copy(job / 'model.ckpt-4.index', index(job))
    (job / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-6"\n')
    flip(data(job), byte)
    damaged_checkpoints.set_aside(str(job), checkpoints.survey(str(job)))
  first, second = (job / name / f'model.ckpt-6{DATA}' for name in ('damaged', 'damaged-2'))
  assert first.read_bytes() != second.read_bytes()


def test_a_file_that_vanishes_while_it_is_looked_at_is_missing(job, monkeypatch):
  """As in an evaluator, whose chief deletes old checkpoints."""
  newest = checkpoints.listed(job)
  there = checkpoints.files_of(newest)
  monkeypatch.setattr(checkpoints, 'files_of', lambda checkpoint: there)
  os.remove(newest + '.index')
  assert checkpoints.fault_of(newest) == f'{os.path.basename(newest)}.index is missing'


def test_a_list_that_goes_back_is_obeyed(job):
  """Somebody wants to train from step 2 again: what is newer is none of it."""
  (job / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"\n')
  os.remove(index(job))
  assert checkpoints.survey(str(job)) == (f'{job}/model.ckpt-2', {})


def test_a_process_killed_in_its_first_save_leaves_a_new_job(tmp_path):
  (tmp_path / f'model.ckpt-0{DATA}').write_bytes(b'half')
  assert checkpoints.survey(str(tmp_path)).is_new
  (tmp_path / 'model.ckpt-0.index').write_bytes(b'')
  assert checkpoints.survey(str(tmp_path)).is_new
  assert checkpoints.survey(str(tmp_path / 'nothing')).is_new


@pytest.mark.parametrize('seed', range(8))
def test_any_bit_and_any_length(job, seed):
  """Twenty at random of each file: whole is only what all tensors can be read from.

  Some bits of an index mean nothing: those that pad its last part.
  """
  rng = random.Random(seed)
  wanted = values_at_6(job)
  original = {path: path.read_bytes() for path in (index(job), data(job))}
  for _ in range(20):
    path = rng.choice(list(original))
    content = bytearray(original[path])
    if rng.random() < 0.5:
      content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    else:
      content = content[: rng.randrange(len(content))]
    path.write_bytes(content)
    if checkpoints.fault_of(f'{job}/model.ckpt-6'):
      assert checkpoints.survey(str(job)).newest == f'{job}/model.ckpt-4'
    else:
      assert values_at_6(job) == wanted
      assert path == index(job)
    path.write_bytes(original[path])


def values_at_6(job):
  reader = tf.train.load_checkpoint(f'{job}/model.ckpt-6')
  return {name: reader.get_tensor(name).tobytes() for name in reader.get_variable_to_shape_map()}


def test_nothing_whole_is_refused_and_nothing_changed(job, run_here, data_dir):
  for path in job.glob('model.ckpt-*.index'):
    cut(path, 0.3)
  before = snapshot(job)
  flags = ['--data-dir', data_dir, '--job-dir', job]
  train = [*flags, *SMALL, '--train-steps', 8]
  for command in (train, [*train, '--dry-run'], [*flags, '--mode', 'evaluate']):
    line = refused(run_here(*command))
    assert line.startswith(f'error: damaged: {job}/model.ckpt-6 (model.ckpt-6.index is damaged), ')
    assert 'no checkpoint of ' in line
  assert {path: snapshot(job)[path] for path in before} == before


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.get_variable('x', initializer=1.0)
    session.run(tf.compat.v1.global_variables_initializer())
    tf.compat.v1.train.Saver().save(session, str(tmp_path / 'model.ckpt-3'))
  with pytest.raises(InputError, match='it has no global_step'):
    checkpoints.find(str(tmp_path), None)


@pytest.mark.parametrize('mode', ['evaluate', 'export'])
def test_a_checkpoint_of_a_deeper_network_is_refused(job, run_here, data_dir, tmp_path, mode):
  """It has every variable of this one, and would be taken in part."""
  source = variable_files.open_source(str(job))
  values = {name: source.value(name) for name in source.shapes}
  more = 'resnet/stage1/block1/conv1/kernel'
  variable_files.write(str(tmp_path / 'same'), values, 6)
  values[more] = values['resnet/stage1/block0/conv1/kernel']
  variable_files.write(str(tmp_path / 'deeper'), values, 6)
  flags = ['--job-dir', job, '--mode', mode]
  if mode == 'evaluate':
    flags += ['--data-dir', data_dir]
  assert run_here(*flags, '--checkpoint', tmp_path / 'same').returncode == 0
  before = snapshot(job)
  said = refused(run_here(*flags, '--checkpoint', tmp_path / 'deeper'))
  assert f'deeper is of another network: it has {more}, which is not in this one' in said
  assert snapshot(job) == before


@pytest.mark.parametrize('mode', ['evaluate', 'predict', 'export', 'report'])
def test_other_modes_name_it_and_the_newest_whole_one(job, run_here, data_dir, tmp_path, mode):
  flip(data(job), 3000)
  before = snapshot(job)
  (tmp_path / 'image.png').write_bytes(tf.io.encode_png(tf.zeros([32, 32, 3], tf.uint8)).numpy())
  if mode == 'report':
    result = run_here(job, '--table', command=report)
  else:
    more = {'evaluate': ['--data-dir', data_dir], 'predict': ['--images', tmp_path / 'image.png']}
    result = run_here('--job-dir', job, '--mode', mode, *more.get(mode, []))
  line = refused(result)
  assert line.startswith(f'error: damaged: {job}/model.ckpt-6 (model.ckpt-6.data-00000-of-00001 is')
  assert f'the newest whole checkpoint is {job}/model.ckpt-4' in line
  assert snapshot(job) == before


def test_the_best_one_damaged(job, run_here, data_dir):
  best = job / 'best'
  best.mkdir()
  for path in job.glob('model.ckpt-4.*'):
    shutil.copy(path, best / path.name)
  entry = {'accuracy': 0.5, 'global_step': 4, 'checkpoint': 'model.ckpt-4'}
  (best / 'best.json').write_text(json.dumps({**entry, 'others': []}))
  cut(best / f'model.ckpt-4{DATA}', 0.9)
  where = ['--data-dir', data_dir, '--job-dir', job]
  line = refused(run_here(*where, '--mode', 'evaluate', '--checkpoint', 'best'))
  assert line.startswith(f'error: damaged: {best}/model.ckpt-4 (model.ckpt-4.data-00000-of-00001')
  assert f'the newest whole checkpoint is {job}/model.ckpt-6' in line


@pytest.mark.slow
def test_resumes_and_every_step_stands_once(job, run_here, data_dir):
  """Of 6 steps the last two are lost; then eight stand, in the metrics and for TensorBoard."""
  cut(data(job), 0.5)
  damaged = data(job).read_bytes()
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, *SAVES, '--train-steps', 8]
  result = run_here(*flags)
  assert succeeded(result)['global_step'] == 8
  [line] = [line for line in result.stderr.splitlines() if ' damaged: ' in line]
  assert line.endswith(
    f'{job}/model.ckpt-6 (model.ckpt-6.data-00000-of-00001 is damaged); moved to {job}/damaged; '
    f'going on from {job}/model.ckpt-4: 2 steps are made again'
  )
  assert 'resuming at step 4 of 8' in result.stderr
  assert (job / 'damaged' / f'model.ckpt-6{DATA}').read_bytes() == damaged
  assert data(job).stat().st_size > len(damaged)  # Step 6, saved again.
  events = metrics_log.read(str(job))
  saved = [event['step'] for event in events if event['event'] == 'save']
  assert saved == [0, 2, 4, 6, 8]
  assert [event for event in events if event['event'] == 'start'][-1]['steps_lost'] == 2
  steps = [event['step'] for event in events if event['event'] == 'train']
  assert steps == sorted(set(steps))


def test_what_the_storage_fails_at_once_is_not_damaged(job, monkeypatch):
  """An error that passes moves no checkpoint away; one that says nothing of it is raised."""
  path, read = str(job / 'model.ckpt-6'), files.read
  errors = [errno.EIO]

  def fails(name):
    if errors:
      number = errors.pop()
      raise OSError(number, os.strerror(number))
    return read(name)

  monkeypatch.setattr(files, 'read', fails)
  os.utime(path + '.index')  # Another file to the memory of this process.
  assert checkpoints.fault_of(path) == ''
  os.utime(path + '.index')
  errors[:] = [errno.EIO] * 2
  assert checkpoints.fault_of(path) == 'model.ckpt-6.index is damaged'
  os.utime(path + '.index')
  errors[:] = [errno.ESTALE] * 2
  with pytest.raises(OSError, match='Stale file handle'):
    checkpoints.fault_of(path)


@pytest.mark.parametrize(
  ('last', 'is_moved'),
  [
    ({'net/w': [3]}, False),  # Without what a callback had at the step before,
    ({'net/w': [3], 'own/a': [2], 'own/b': [1]}, False),  # or with more:
    ({'net/w': [4], 'own/a': [2]}, True),  # only one of other shapes,
    ({'net/v': [3], 'own/a': [2]}, True),  # or names, is of another network.
  ],
)
def test_a_misfit_is_moved_if_an_older_checkpoint_is_of_another_kind(tmp_path, last, is_moved):
  paths = [str(tmp_path / f'model.ckpt-{step}') for step in (2, 4)]
  for step, path, shapes in ((2, paths[0], {'net/w': [3], 'own/a': [2]}), (4, paths[1], last)):
    values = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    variable_files.write(path, values, step)
  before = snapshot(tmp_path)
  misfit = MisfitError(paths[1], 'it has other ones')
  if is_moved:
    assert damaged_checkpoints.without(str(tmp_path), misfit) == paths[0]
    assert (tmp_path / 'damaged' / 'model.ckpt-4.index').exists()
    return
  with pytest.raises(InputError, match=r'was trained with other variables: .*ckpt-4 does not fit'):
    damaged_checkpoints.without(str(tmp_path), misfit)
  assert snapshot(tmp_path) == before
  assert checkpoints.fault_of(paths[1]) == ''


def test_a_checkpoint_is_on_the_disk_before_an_older_one_goes(tmp_path, monkeypatch):
  done, fsync = [], os.fsync

  def flushed(number):
    done.append(os.path.basename(os.readlink(f'/proc/self/fd/{number}')))
    fsync(number)

  monkeypatch.setattr(os, 'fsync', flushed)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variable = tf.compat.v1.get_variable('v', initializer=1.0)
    saver = checkpoint_saver.Saver([variable], max_to_keep=1)
    session.run(variable.initializer)
    for step in (1, 2):
      saver.save(session, str(tmp_path / 'model.ckpt'), step, write_meta_graph=False)
      assert sorted(done) == [f'model.ckpt-{step}{DATA}', f'model.ckpt-{step}.index']
      done.clear()
  assert not os.path.exists(tmp_path / 'model.ckpt-1.index')


@pytest.mark.slow
def test_a_job_that_goes_back_is_one_curve(run_here, data_dir, tmp_path):
  """As docs/failures.md has it: in JOB/checkpoint another step is the latest."""
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--eval-every-steps', 2]
  for last in (6, 4):
    result = run_here(*flags, '--train-steps', last)
    assert result.returncode == 0, result.stderr
    (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"\n')
  assert 'resuming at step 2 of 4' in result.stderr
  for folder, steps in [('.', [4]), ('validation', [2, 4])]:
    curves = event_accumulator.EventAccumulator(str(tmp_path / folder)).Reload()
    assert [point.step for point in curves.Scalars('accuracy')] == steps


@pytest.mark.slow
def test_an_end_holds_no_more_without_its_last_checkpoint(run_here, data_dir, tmp_path):
  """It would name that one for ever, and say that to train on helps."""
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--eval-every-steps', 2]
  flags += ['--train-steps', 4, '--stop-at-accuracy', 0.01]
  assert json.loads(run_here(*flags).stdout)['ended_by'] == 'stop_at_accuracy'
  cut(tmp_path / f'model.ckpt-2{DATA}', 0.5)
  result = run_here(*flags)
  assert succeeded(result)['global_step'] == 2
  assert 'the job ended at step 2' in result.stderr
  assert (tmp_path / 'damaged').exists()


@pytest.mark.long
def test_a_dry_run_says_where_training_would_go_on(job, run_here, data_dir):
  cut(data(job), 0.5)
  before = snapshot(job)
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--mode', 'train', '--dry-run']
  planned = run_here(*flags)
  assert json.loads(planned.stdout)['global_step'] == 4
  assert f'training would go on from {job}/model.ckpt-4' in planned.stderr
  assert snapshot(job) == before


@pytest.mark.parametrize(
  ('path', 'error'),
  [
    ('gs://bucket/model.ckpt-8.index', OSError(errno.EIO, 'Unavailable')),
    ('gs://bucket/model.ckpt-8.data-...', tf.errors.UnavailableError(None, None, 'away')),
    ('model.ckpt-8.index', OSError(errno.ESTALE, 'Stale file handle')),
  ],
)
def test_an_outage_is_no_damage(path, error):
  with pytest.raises(type(error)):
    checkpoint_faults._check_allowed(error, path)


@pytest.mark.parametrize(
  ('path', 'error'),
  [
    ('gs://bucket/model.ckpt-8.data-...', tf.errors.DataLossError(None, None, 'checksum')),
    ('gs://bucket/model.ckpt-8.index', ValueError('it is no index of a checkpoint')),
    ('model.ckpt-8.index', OSError(errno.EIO, 'Input/output error')),  # A local disk's bad sector.
  ],
)
def test_damage_is_no_outage(path, error):
  checkpoint_faults._check_allowed(error, path)
