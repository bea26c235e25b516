"""How an export takes its place in the job dir."""

import os
import signal
import tempfile

import pytest
from outcome import succeeded

from cifar10.core import files
from cifar10.exporters import export
from cifar10.job import metrics_log
from cifar10.options.hparams import from_values

MEASURED = {'subset': 'eval', 'accuracy': 0.94, 'accuracy_without_tta': 0.93}


@pytest.fixture(params=['local', 'ram://'])
def folder(request, tmp_path):
  """A folder that is there and empty, and no other test's."""
  path = {'local': '', 'ram://': 'ram:/'}[request.param] + str(tmp_path)
  files.make_folder(path)
  return path


def test_a_folder_that_was_made_elsewhere_comes_in_whole(folder):
  with tempfile.TemporaryDirectory() as made:
    for name in ('written/saved_model.pb', 'written/variables/index', 'file'):
      os.makedirs(os.path.dirname(os.path.join(made, name)), exist_ok=True)
      files.write_text(os.path.join(made, name), name)
    export._move_in(os.path.join(made, 'written'), os.path.join(folder, 'export'))
    export._move_in(os.path.join(made, 'file'), os.path.join(folder, 'file.onnx'))
  assert [os.path.basename(path) for path in files.matching(folder, '*')] == ['export', 'file.onnx']
  assert (
    files.read_text(os.path.join(folder, 'export', 'variables', 'index'))
    == 'written/variables/index'
  )
  assert (
    files.read_text(os.path.join(folder, 'export', 'saved_model.pb')) == 'written/saved_model.pb'
  )


def test_the_file_that_makes_a_folder_whole_comes_last(tmp_path, monkeypatch):
  copied = []
  monkeypatch.setattr(files, 'copy', lambda path, new: copied.append(new))
  for name in ('a', 'saved_model.pb', 'z'):
    (tmp_path / name).touch()
  export._move_in(str(tmp_path), 'ram://last')
  assert copied == ['ram://last/a', 'ram://last/z', 'ram://last/saved_model.pb']


def test_a_later_export_has_the_highest_number_whatever_the_clock_says(tmp_path, monkeypatch):
  monkeypatch.setattr(export.time, 'time', lambda: 1000.5)
  for name in ('2000', '1500.onnx', 'temp-3000', 'notes'):
    (tmp_path / name).mkdir()
  for number in (2001, 2002):
    (tmp_path / 'written').mkdir()
    path = export._moved(str(tmp_path / 'written'), str(tmp_path), '')
    assert path == str(tmp_path / str(number))


def record(job, tta, tta_below=1.0, measured=MEASURED, step=8):
  """A run with these views, and what it evaluated."""
  views = {'tta': tta, 'tta_below': tta_below}
  metrics_log.append(str(job), {'event': 'start', 'step': 0, 'options': views})
  metrics_log.append(str(job), {'event': 'evaluate', 'step': step, **measured})


def accuracies(job, tta, tta_below=1.0, name='model.ckpt-8'):
  """Of an export with these views."""
  hparams = from_values({'tta': tta, 'tta_below': tta_below})
  return export._accuracies(str(job), hparams, str(job / name), 8, 'last')


@pytest.mark.parametrize(
  ('tta', 'tta_below', 'known'),
  [
    ('mirror+shift', 0.7, {'eval': 0.94}),
    ('none', 0.7, {'eval': 0.93}),
    ('mirror+shift', 1.0, {}),  # As with --export-batch.
    ('mirror', 0.7, {}),
  ],
)
def test_the_accuracy_is_with_the_views_that_it_has(tta, tta_below, known, tmp_path):
  """A job with --tta mirror+shift --tta-below 0.7."""
  record(tmp_path, 'mirror+shift', 0.7)
  assert accuracies(tmp_path, tta, tta_below) == known


@pytest.mark.parametrize(('tta', 'known'), [('mirror', {}), ('none', {'eval': 0.94})])
def test_views_that_were_not_evaluated_have_no_accuracy(tta, known, tmp_path):
  """A job without --tta."""
  record(tmp_path, 'none', measured={'subset': 'eval', 'accuracy': 0.94})
  assert accuracies(tmp_path, tta) == known


def test_an_evaluation_that_says_its_views_needs_no_run(tmp_path):
  """As of a finished job whose command was given again with --tta mirror."""
  record(tmp_path, 'none', measured={'subset': 'eval', 'accuracy': 0.93})
  views = {'tta': 'mirror', 'tta_below': 1.0}
  metrics_log.append(str(tmp_path), {'event': 'evaluate', 'step': 8, **MEASURED, **views})
  assert accuracies(tmp_path, 'mirror') == {'eval': 0.94}
  assert accuracies(tmp_path, 'mirror+shift') == {}


def test_a_run_of_before_there_was_tta_below_had_all_images_in_all_views(tmp_path):
  metrics_log.append(str(tmp_path), {'event': 'start', 'step': 0, 'options': {'tta': 'mirror'}})
  metrics_log.append(str(tmp_path), {'event': 'evaluate', 'step': 8, **MEASURED})
  assert accuracies(tmp_path, 'mirror') == {'eval': 0.94}
  assert accuracies(tmp_path, 'mirror', 0.7) == {}


def test_lines_of_another_program_say_no_accuracy(tmp_path):
  record(tmp_path, 'none')
  metrics_log.append(str(tmp_path), {'event': 'start', 'step': 8, 'options': 'none'})
  for more in ({}, {'subset': 'eval'}, {'subset': 'eval', 'accuracy': None}, {'subset': ['eval']}):
    metrics_log.append(str(tmp_path), {'event': 'evaluate', 'step': 8, **more})
  assert accuracies(tmp_path, 'none') == {'eval': 0.93}


def test_a_run_with_other_views_does_not_change_what_was_measured(tmp_path):
  record(tmp_path, 'mirror')
  record(tmp_path, 'mirror+shift', step=16)
  assert accuracies(tmp_path, 'mirror') == {'eval': 0.94}
  assert accuracies(tmp_path, 'mirror+shift') == {}


@pytest.mark.parametrize(
  ('name', 'known'),
  [
    ('model.ckpt-8', True),
    ('best/model.ckpt-8', True),
    ('model.ckpt-6', True),  # Asynchronous workers made two steps between its naming and the save.
    ('mean', False),  # Of an average, whose global step is the last checkpoint's.
    ('model.ckpt-16', False),
    ('mean/model.ckpt-8', False),
    ('../model.ckpt-8', False),
  ],
)
def test_only_what_the_training_saved_was_measured(name, known, tmp_path):
  record(tmp_path, 'none')
  assert accuracies(tmp_path, 'none', name=name) == ({'eval': 0.93} if known else {})


def test_all_images_in_all_views_is_another_network(old_job, run_here):
  record(old_job, 'mirror', 0.7)
  flags = ['--job-dir', old_job, '--mode', 'export', '--tta', 'mirror', '--tta-below', 0.7]
  assert succeeded(run_here(*flags))['accuracy'] == {'eval': 0.94}
  made = succeeded(run_here(*flags, '--export-batch', 2))
  assert (made['tta'], made['tta_below'], made['accuracy']) == ('mirror', 1.0, {})


def test_sigterm_leaves_no_half_export(old_job, run_here, monkeypatch):
  monkeypatch.setattr(export, '_moved', lambda *_: signal.raise_signal(signal.SIGTERM))
  own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
  try:
    result = run_here('--job-dir', old_job, '--mode', 'export')
  finally:
    signal.signal(signal.SIGTERM, own)
  assert (result.returncode, result.stdout) == (143, '')
  assert result.stderr.splitlines()[-1] == 'ended by SIGTERM'
  assert os.listdir(old_job / 'export') == []
