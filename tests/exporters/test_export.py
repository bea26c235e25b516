"""How an export takes its place in the job dir."""

import os
import tempfile

import pytest

from cifar10.core import files, remote_files
from cifar10.exporters import export
from cifar10.job import metrics_log


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
    export._move_in(
      os.path.join(made, 'written'), os.path.join(folder, 'export'), last='saved_model.pb'
    )
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
  monkeypatch.setattr(remote_files, 'copy', lambda path, new: copied.append(new))
  for name in ('a', 'marker', 'z'):
    (tmp_path / name).touch()
  export._move_in(str(tmp_path), 'ram://last', last='marker')
  assert copied == ['ram://last/a', 'ram://last/z', 'ram://last/marker']


@pytest.mark.parametrize(('tta', 'accuracy'), [('mirror+shift', 0.94), ('none', 0.93)])
def test_the_accuracy_is_with_the_views_that_it_has(tta, accuracy, tmp_path):
  """A job with --tta mirror+shift, exported with and without."""
  measured = {'subset': 'eval', 'accuracy': 0.94, 'accuracy_without_tta': 0.93}
  metrics_log.append(str(tmp_path), {'event': 'evaluate', 'step': 8, **measured})
  checkpoint = str(tmp_path / 'model.ckpt-8')
  assert export._accuracies(str(tmp_path), checkpoint, 8, 'last', tta) == {'eval': accuracy}


@pytest.mark.parametrize(('tta', 'known'), [('mirror', {}), ('none', {'eval': 0.94})])
def test_views_that_were_not_evaluated_have_no_accuracy(tta, known, tmp_path):
  """A job without --tta."""
  metrics_log.append(
    str(tmp_path), {'event': 'evaluate', 'step': 8, 'subset': 'eval', 'accuracy': 0.94}
  )
  checkpoint = str(tmp_path / 'model.ckpt-8')
  assert export._accuracies(str(tmp_path), checkpoint, 8, 'last', tta) == known
