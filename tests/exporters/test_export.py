"""How an export takes its place in the job dir, and the accuracy that it names."""

import os
import signal

import pytest
from outcome import succeeded

from cifar10.core import files
from cifar10.exporters import export
from cifar10.job import metrics_log

PLAIN = {'subset': 'eval', 'accuracy': 0.94}
VIEWS = {**PLAIN, 'accuracy_without_tta': 0.93, 'tta': 'mirror+shift', 'tta_below': 0.7}


def test_behind_a_url_what_makes_it_a_saved_model_comes_last(tmp_path, monkeypatch):
  copied = []
  copy = files.copy
  monkeypatch.setattr(files, 'copy', lambda path, new: (copied.append(new), copy(path, new)))
  url = f'ram://{tmp_path}'
  for name in ('written/saved_model.pb', 'written/variables/index', 'file'):
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_text(name)
  folder = export._moved(str(tmp_path / 'written'), url, '')
  file = export._moved(str(tmp_path / 'file'), url, '.onnx')
  assert copied == [f'{folder}/variables/index', f'{folder}/saved_model.pb', file]
  assert files.read_text(f'{folder}/variables/index') == 'written/variables/index'
  assert files.read_text(file) == 'file'


def test_a_later_export_has_the_highest_number_whatever_the_clock_says(tmp_path, monkeypatch):
  monkeypatch.setattr(export.time, 'time', lambda: 1000.5)
  for name in ('2000', '1500.onnx', 'temp-3000', 'notes'):
    (tmp_path / name).mkdir()
  for number in (2001, 2002):
    (tmp_path / 'written').mkdir()
    path = export._moved(str(tmp_path / 'written'), str(tmp_path), '')
    assert path == str(tmp_path / str(number))


@pytest.mark.parametrize(
  ('measured', 'flags', 'known'),
  [
    (VIEWS, ['--tta', 'mirror+shift', '--tta-below', 0.7], {'eval': 0.94}),
    (VIEWS, ['--tta', 'none'], {'eval': 0.93}),
    (VIEWS, ['--tta', 'mirror', '--tta-below', 0.7], {}),
    (PLAIN, ['--tta', 'none'], {'eval': 0.94}),
    (PLAIN, ['--tta', 'mirror'], {}),
    ({**PLAIN, 'weights': 'ema'}, ['--tta', 'none'], {}),
    ({'subset': 'eval', 'accuracy': None}, ['--tta', 'none'], {}),  # Another program's line.
  ],
)
def test_the_accuracy_is_of_the_same_weights_and_views(measured, flags, known, old_job, run_here):
  """Of the step at which the checkpoint was saved, 8, and no other."""
  for step, more in ((4, {'accuracy': 0.5}), (8, {}), (16, {'accuracy': 0.5})):
    event = {'event': 'evaluate', 'step': step, **measured, **more}
    metrics_log.append(str(old_job), event)
  made = succeeded(run_here('--job-dir', old_job, '--mode', 'export', *flags))
  assert (made['global_step'], made['accuracy']) == (8, known)


def test_a_checkpoint_that_the_training_did_not_save_was_not_measured(old_job, run_here, tmp_path):
  metrics_log.append(str(old_job), {'event': 'evaluate', 'step': 8, **PLAIN})
  for path in old_job.glob('model.ckpt-8.*'):
    (tmp_path / path.name).write_bytes(path.read_bytes())
  flags = ['--job-dir', old_job, '--mode', 'export', '--checkpoint', tmp_path / 'model.ckpt-8']
  assert succeeded(run_here(*flags))['accuracy'] == {}


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
