"""docs/data.md: its data set by a manifest alone is one, and its table has every key."""

import json
import re

import checkout

from cifar10.data import info, input_pipeline
from cifar10.data.build import writer
from cifar10.data.build.sources import ArchiveSource


def blocks(language):
  return re.findall(rf'```{language}\n(.*?)```', checkout.read('docs/data.md'), re.S)


def test_the_documented_program_makes_a_data_set(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  [program] = [block for block in blocks('python') if 'data-shapes' in block]
  exec(program, {})
  described = info.describe('data-shapes')
  assert described.name == 'shapes'
  assert described.classes == ('circle', 'square')
  made = input_pipeline.Cifar10DataSet('data-shapes', 'train')
  assert made.num_examples_per_epoch() == 80
  first = made.first_images(2)
  assert (first[0] == 0).all()
  assert (first[1] == 255).all()


def test_the_documented_manifest_is_one(tmp_path):
  [content] = blocks('json')
  (tmp_path / 'cifar10.json').write_text(content)
  assert info.describe(str(tmp_path)).num_classes == 2


def test_every_key_of_a_manifest_is_documented(tmp_path):
  writer.convert(str(tmp_path), ArchiveSource(synthetic_images=2))
  keys = set(json.loads((tmp_path / 'cifar10.json').read_text()))
  documented = set(re.findall(r'^\| `(\w+)` \|', checkout.read('docs/data.md'), re.M))
  # What decides what synthetic images are: of `source`.
  assert keys - documented == {'images_per_batch', 'seed'}
