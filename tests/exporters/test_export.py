"""How an export takes its place in the job dir."""

import os
import tempfile

import pytest

from cifar10.core import files, remote_files
from cifar10.exporters import export


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
