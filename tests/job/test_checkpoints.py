"""Checkpoints that cannot be read: training goes on from the newest whole one, others name it."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from outcome import events, refused, succeeded

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import checkpoints, variable_files

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--eval-batch-size', 32]
SAVES = ['--mode', 'train', '--save-every-steps', 2, '--eval-every-steps', 2]
DATA = '.data-00000-of-00001'
KERNEL = 'resnet/fully_connected/kernel'


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
  """Every file's content, but for the empty lock's."""
  paths = sorted(folder.rglob('*'))
  return {path: path.read_bytes() for path in paths if path.is_file() and path.name != 'lock'}


def flip(path):
  """Turns one bit of a byte."""
  content = bytearray(path.read_bytes())
  content[100] ^= 4
  path.write_bytes(content)


def cut(path):
  """Leaves a third of a file."""
  os.truncate(path, path.stat().st_size // 3)


def zeros(path):
  """What a power failure leaves."""
  path.write_bytes(bytes(999))


@pytest.mark.parametrize('suffix', [DATA, '.index'])
@pytest.mark.parametrize('damage', [cut, os.remove, flip, zeros])
def test_goes_back_to_the_newest_whole_one(job, suffix, damage, caplog):
  damage(job / f'model.ckpt-6{suffix}')
  before = snapshot(job)
  found = checkpoints.survey(str(job))
  assert found.newest == f'{job}/model.ckpt-4'
  assert list(found.damaged) == [f'{job}/model.ckpt-6']
  for named in (None, f'{job}/model.ckpt-6'):
    with pytest.raises(InputError, match=r'model\.ckpt-6 \(.*newest whole .*model\.ckpt-4') as e:
      checkpoints.find(str(job), named)
    assert '\n' not in str(e.value)
  assert checkpoints.find(str(job), f'{job}/model.ckpt-2') == f'{job}/model.ckpt-2'
  assert snapshot(job) == before  # Looking changes nothing.
  with caplog.at_level('INFO', 'cifar10'):
    checkpoints.set_aside(str(job), found)
  moved = f'moved to {job}/damaged; going on from {job}/model.ckpt-4: 2 steps are made again'
  assert [line.endswith(moved) for line in caplog.messages if 'damaged' in line] == [True]
  assert checkpoints.survey(str(job)) == (f'{job}/model.ckpt-4', {})
  kept = {path.name: content for path, content in before.items()}
  aside = {path.name: content for path, content in snapshot(job / 'damaged').items()}
  assert aside == {name: kept[name] for name in kept if name.startswith('model.ckpt-6.')}
  assert not list(job.glob('model.ckpt-6*'))


def test_what_may_not_be_read_is_not_damaged(job, monkeypatch):
  """root may read everything: so the system's answer to others is given here."""

  def refuse(path):
    raise PermissionError(13, 'Permission denied', path)

  monkeypatch.setattr(files, 'read', refuse)
  assert checkpoints.survey(str(job)).newest == f'{job}/model.ckpt-6'
  cut(job / f'model.ckpt-6{DATA}')  # So it is to TensorFlow.
  with pytest.raises(PermissionError):
    checkpoints.survey(str(job))


@pytest.mark.parametrize('content', [b'', b'\0\xff\xfe', b'model_checkpoint_path: "mod', None])
def test_a_damaged_list_loses_no_step(job, content, caplog):
  if content is None:
    os.remove(job / 'checkpoint')
  else:
    (job / 'checkpoint').write_bytes(content)
  found = checkpoints.survey(str(job))
  assert found == (f'{job}/model.ckpt-6', {f'{job}/checkpoint': 'it names no checkpoint'})
  with pytest.raises(InputError, match=r'/checkpoint \(.*newest whole checkpoint.*model\.ckpt-6'):
    checkpoints.find(str(job), None)
  with caplog.at_level('INFO', 'cifar10'):
    checkpoints.set_aside(str(job), found)
  assert caplog.messages[-1].endswith('model.ckpt-6: 0 steps are made again')
  assert content is None or (job / 'damaged' / 'checkpoint').read_bytes() == content
  state = tf.train.get_checkpoint_state(str(job))
  assert state.model_checkpoint_path == f'{job}/model.ckpt-6'
  assert list(state.all_model_checkpoint_paths) == [f'{job}/model.ckpt-{n}' for n in (0, 2, 4, 6)]


def test_a_list_of_another_place_is_damaged_and_one_that_goes_back_is_obeyed(job):
  """Of a job dir that was moved; and by somebody who wants to train from step 2 again."""
  (job / 'checkpoint').write_text('model_checkpoint_path: "/nowhere/model.ckpt-6"\n')
  found = checkpoints.survey(str(job))
  assert found == (f'{job}/model.ckpt-6', {'/nowhere/model.ckpt-6': 'its index is missing'})
  checkpoints.set_aside(str(job), found)
  assert tf.train.latest_checkpoint(str(job)) == f'{job}/model.ckpt-6'
  (job / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"\n')
  os.remove(job / 'model.ckpt-6.index')
  assert checkpoints.survey(str(job)) == (f'{job}/model.ckpt-2', {})


def test_a_process_killed_in_its_first_save_leaves_a_new_job(tmp_path, job):
  """Also where the checkpoint is whole, and the list of checkpoints not yet written."""
  for path in job.glob('model.ckpt-[1-9]*'):
    path.unlink()
  (job / 'checkpoint').unlink()
  assert not checkpoints.fault_of(f'{job}/model.ckpt-0')
  assert checkpoints.survey(str(job)) == (None, {})
  for name in (f'model.ckpt-0{DATA}', 'model.ckpt-0.index'):
    (tmp_path / name).touch()
    assert checkpoints.survey(str(tmp_path)) == (None, {})
  assert checkpoints.survey(str(tmp_path / 'nothing')) == (None, {})


def test_nothing_whole_is_refused_and_nothing_changed(job, run_here, data_dir):
  for path in job.glob('model.ckpt-*.index'):
    cut(path)
  before = snapshot(job)
  flags = ['--data-dir', data_dir, '--job-dir', job]
  train = [*flags, *SMALL, '--train-steps', 8]
  for command in (train, [*train, '--dry-run'], [*flags, '--mode', 'evaluate']):
    line = refused(run_here(*command))
    assert line.startswith(f'error: damaged: {job}/model.ckpt-6 (')
    assert 'no checkpoint in ' in line
  assert snapshot(job) == before


def write(path, job, change):
  """A checkpoint of the job's values, of which `change` has changed some."""
  source = variable_files.open_source(f'{job}/model.ckpt-4')
  values = {name: array for name, array in source.arrays.items() if name != 'global_step'}
  change(values)
  variable_files.write(str(path), values, 6)


@pytest.mark.parametrize(
  ('change', 'says'),
  [
    (lambda values: values.update({KERNEL: np.zeros([3, 3], np.float32)}), 'of [3, 3], not'),
    (lambda values: values.pop(f'{KERNEL}/Momentum'), f'Key {KERNEL}/Momentum not found'),
  ],
)
def test_other_variables_are_refused_and_nothing_is_moved(job, run_here, data_dir, change, says):
  """As after a change of a user's network or callback."""
  write(job / 'model.ckpt-6', job, change)
  before = sorted(job.glob('model*'))
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--mode', 'train', '--train-steps', 8]
  said = refused(run_here(*flags))
  assert f'{job}/model.ckpt-6 does not fit the network (' in said
  assert says in said
  assert sorted(job.glob('model*')) == before


def test_a_deeper_checkpoint_and_what_is_none_are_refused(job, run_here, data_dir, tmp_path):
  """It has every variable of this one, and would be taken in part."""
  more = 'resnet/stage1/block1/conv1/kernel'
  write(tmp_path / 'deeper', job, lambda values: values.update({more: np.zeros([3], np.float32)}))
  flags = ['--job-dir', job, '--mode', 'evaluate', '--data-dir', data_dir, '--checkpoint']
  said = refused(run_here(*flags, tmp_path / 'deeper'))
  assert f'deeper is of another network: {more} is [3] there, and missing here' in said
  assert f'{job} is no checkpoint; name one like job/model' in refused(run_here(*flags, job))


def test_a_checkpoint_is_on_the_disk_before_an_older_one_goes(tmp_path, monkeypatch):
  done, fsync = [], os.fsync

  def flushed(number):
    done.append(os.path.basename(os.readlink(f'/proc/self/fd/{number}')))
    fsync(number)

  monkeypatch.setattr(os, 'fsync', flushed)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variable = tf.compat.v1.get_variable('v', initializer=1.0)
    saver = checkpoints.Saver([variable], max_to_keep=1)
    session.run(variable.initializer)
    for step in (1, 2):
      saver.save(session, str(tmp_path / 'model.ckpt'), step, write_meta_graph=False)
      assert sorted(done) == [f'model.ckpt-{step}{DATA}', f'model.ckpt-{step}.index']
      done.clear()
  assert not os.path.exists(tmp_path / 'model.ckpt-1.index')


@pytest.mark.slow
def test_resumes_and_every_step_stands_once(job, run_here, data_dir):
  """Of 6 steps the last two are lost; then eight stand, in the metrics and for TensorBoard."""
  data = job / f'model.ckpt-6{DATA}'
  cut(data)
  damaged = data.read_bytes()
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, *SAVES, '--train-steps', 8]
  before = snapshot(job)
  assert succeeded(run_here(*flags, '--dry-run'))['global_step'] == 4
  assert snapshot(job) == before
  result = run_here(*flags)
  assert succeeded(result)['global_step'] == 8
  [line] = [line for line in result.stderr.splitlines() if ' damaged: ' in line]
  assert line.endswith(f'going on from {job}/model.ckpt-4: 2 steps are made again')
  assert 'resuming at step 4 of 8' in result.stderr
  assert (job / 'damaged' / f'model.ckpt-6{DATA}').read_bytes() == damaged
  assert data.stat().st_size > len(damaged)  # Step 6, saved again.
  assert [event['step'] for event in events(job, 'save')] == [0, 2, 4, 6, 8]
  assert events(job, 'start')[-1]['steps_lost'] == 2
  steps = [event['step'] for event in events(job, 'train')]
  assert steps == sorted(set(steps))


@pytest.mark.slow
def test_an_end_holds_no_more_without_its_last_checkpoint(train, tmp_path):
  """It would name that one for ever, and say that to train on helps."""
  flags = ['--eval-every-steps', 2, '--stop-at-accuracy', 0.01]
  assert json.loads(train(*flags).stdout)['ended_by'] == 'stop_at_accuracy'
  cut(tmp_path / 'job' / f'model.ckpt-2{DATA}')
  result = train(*flags)
  assert succeeded(result)['global_step'] == 2
  assert 'the job ended at step 2' in result.stderr
  assert (tmp_path / 'job' / 'damaged').exists()


# best/: which checkpoints it holds, and that best.json never names one that is not there.


@pytest.fixture
def keep(tmp_path):
  """Makes the files of a checkpoint, and keeps them if they are among the best."""

  def run(step, accuracy, count=1):
    path = tmp_path / f'model.ckpt-{step}'
    for suffix in ('.index', '.meta', DATA):
      path.with_name(path.name + suffix).write_text(f'{suffix} of {step}')
    evaluation = {'accuracy': accuracy, 'global_step': step}
    return checkpoints.keep_best(str(tmp_path), str(path), evaluation, count)

  return run


def kept(tmp_path):
  """The steps whose checkpoints are in the folder."""
  names = os.listdir(tmp_path / 'best')
  return {int(re.search(r'-(\d+)', name)[1]) for name in names if name != 'best.json'}


def test_the_best_stays(tmp_path, keep):
  with pytest.raises(InputError, match=r'--checkpoint best: .* has none'):
    checkpoints.best(str(tmp_path))
  assert [keep(1, 0.5), keep(2, 0.7), keep(3, 0.6)] == [True, True, False]
  assert kept(tmp_path) == {2}
  content = json.loads((tmp_path / 'best' / 'best.json').read_text())
  assert content == {'accuracy': 0.7, 'global_step': 2, 'checkpoint': 'model.ckpt-2', 'others': []}
  assert checkpoints.best(str(tmp_path)) == str(tmp_path / 'best' / 'model.ckpt-2')


def test_several_are_ranked(tmp_path, keep):
  """Of equals the earlier one comes first; one that is evaluated again takes its own place."""
  for step, accuracy in [(1, 0.1), (2, 0.3), (3, 0.3), (4, 0.2), (2, 0.3)]:
    keep(step, accuracy, count=2)
  assert [entry['global_step'] for entry in checkpoints.read_best(str(tmp_path))] == [3, 2]
  assert kept(tmp_path) == {2, 3}


@pytest.mark.parametrize('call', range(5))
def test_death_at_any_file_leaves_a_whole_best(tmp_path, keep, monkeypatch, call):
  """The copy's files, the index twice, and then best.json take their places: it dies at each."""
  keep(1, 0.5)
  move, calls = files.move, []

  def dying(*names):
    calls.append(names)
    if len(calls) > call:
      raise KeyboardInterrupt
    move(*names)

  monkeypatch.setattr(files, 'move', dying)
  with pytest.raises(KeyboardInterrupt):
    keep(2, 0.6)
  monkeypatch.undo()
  assert checkpoints.best(str(tmp_path)).endswith('model.ckpt-1')
  assert 1 in kept(tmp_path)
  assert keep(2, 0.6)
  assert kept(tmp_path) == {2}
