"""The tables of parts: what they name is there, and is loaded when it is looked up."""

import checkout
import pytest

from cifar10.core import parts
from cifar10.core.errors import InputError


def test_a_part_that_was_taken_out_is_named(monkeypatch):
  monkeypatch.delitem(parts.PARTS, 'tf_config')
  with pytest.raises(InputError, match="this program has no part 'tf_config'"):
    parts.load('tf_config')


@pytest.mark.parametrize('name', parts.PARTS)
def test_every_part_is_there(name):
  assert parts.load(name).__name__ == parts.PARTS[name]


def test_every_export_format_can_be_written():
  for form in parts.EXPORT_FORMATS.values():
    assert callable(form.write)


def test_a_place_outside_of_the_program_is_found(tmp_path, monkeypatch):
  (tmp_path / 'my_module.py').write_text('LIMIT = 3\n')
  monkeypatch.syspath_prepend(tmp_path)
  assert parts.find('my_module:LIMIT') == 3
  with pytest.raises(AttributeError):
    parts.find('my_module:OTHER')
  with pytest.raises(ImportError):
    parts.find('my_other_module:LIMIT')


def test_one_export_format_loads_no_other():
  code = (
    'import sys\n'
    'from cifar10.core import parts\n'
    "assert 'onnx' in parts.EXPORT_FORMATS and len(parts.EXPORT_FORMATS) == 3\n"
    "parts.EXPORT_FORMATS['saved_model']\n"
    "print(*(name for name in sys.modules if name.startswith('cifar10.exporters.')))"
  )
  loaded = checkout.python('-c', code, must_succeed=True).stdout.split()
  modules = ['fold_batch_norm', 'freeze_graph', 'saved_model']
  assert sorted(loaded) == [f'cifar10.exporters.{name}' for name in modules]
