"""What a manifest says of a data set, and what it must not say; the manifests of docs/data.md."""

import json
import re

import checkout
import pytest

import generate_cifar10_tfrecords
from cifar10.core.errors import InputError
from cifar10.data import input_pipeline, manifest
from cifar10.data.manifest import CIFAR10, DatasetInfo

SHAPES = DatasetInfo('shapes', ('circle', 'square'), (0.5, 0.25, 0.125), (0.5, 0.25, 0.3))
ENTRY = {'examples': 1, 'bytes': 2, 'file': 'f', 'sha256': 's'}
SPLITS = {split: ENTRY for split in manifest.SUBSETS}
HALF_A_BYTE = {**SPLITS, 'eval': {**ENTRY, 'bytes': 1.5}}


def described(tmp_path, content):
  (tmp_path / 'cifar10.json').write_text(json.dumps(content))
  return manifest.describe(str(tmp_path))


def test_no_manifest_and_format_1_are_cifar_10(tmp_path):
  assert manifest.describe(str(tmp_path)) == CIFAR10
  assert manifest.describe(str(tmp_path / 'none')) == CIFAR10
  assert described(tmp_path, {'source': 'published', 'subsets': SPLITS}) == CIFAR10
  classes = list(CIFAR10.classes)
  assert described(tmp_path, {'format': 1, 'classes': classes, 'subsets': SPLITS}) == CIFAR10


def test_reads_what_it_writes_and_a_name_and_classes_are_enough(tmp_path):
  for description in (CIFAR10, SHAPES):
    assert described(tmp_path, {'format': 2, **description.to_json()}) == description
  description = described(tmp_path, {'name': 'shapes', 'classes': ['circle', 'square']})
  assert description == DatasetInfo('shapes', ('circle', 'square'), CIFAR10.means, CIFAR10.stds)
  assert manifest.digests(str(tmp_path)) is None


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'name': 'a\nb'}, r"has name 'a\\nb'"),
    ({'classes': 'circle'}, "has classes 'circle': it must be 2 to 2000 different names"),
    ({'classes': ['circle', 'circle']}, "has classes .'circle', 'circle'."),
    ({'classes': ['circle', '\ud800']}, 'has classes'),
    ({'channel_means': [125.3, 123.0, 113.9]}, 'from 0 to 1'),
    ({'channel_deviations': [0, 0.2, 0.2]}, 'has channel_deviations'),
    ({'name': None}, 'has name None: it must be text in one line'),
    ({'format': 3}, 'has format 3 and this program reads 1 to 2'),
    ({'format': '2'}, "has format '2'"),
    ({'subsets': HALF_A_BYTE}, r'is no manifest .*restore it, or correct'),
  ],
)
def test_refuses_in_one_line_what_cannot_be(tmp_path, wrong, message):
  with pytest.raises(InputError, match=message) as refusal:
    described(tmp_path, {**SHAPES.to_json(), **wrong})
  assert len(str(refusal.value).splitlines()) == 1
  assert 'cifar10.json' in str(refusal.value)


def test_refuses_what_is_no_object(tmp_path):
  with pytest.raises(InputError, match=r"config\.json is no JSON object but \['x'\]"):
    DatasetInfo.from_json(['x'], 'config.json')
  for content in ('{', '[]', 100_000 * '['):
    (tmp_path / 'cifar10.json').write_text(content)
    with pytest.raises(InputError, match=r'cifar10\.json is no manifest .*restore it, or run: '):
      manifest.read_manifest(str(tmp_path))


def test_the_remedy_has_the_flags_that_made_the_records(tmp_path):
  command = f'run: python generate_cifar10_tfrecords.py --data-dir {tmp_path}'
  path = tmp_path / 'eval.tfrecords'
  for made_by, remedy in [
    ({'name': 'shapes'}, f'restore it, or correct {tmp_path}/cifar10.json'),
    ({}, command),
    ({'name': 'pets', 'flags': "--images '/my pets'"}, f"{command} --images '/my pets'"),
  ]:
    manifest.write_manifest(str(tmp_path), made_by)
    assert manifest.remedy(str(path)) == remedy
  path.touch()
  assert manifest.remedy(str(path)) == f'restore it, or {remedy} --force'


def test_neither_it_nor_what_refuses_loads_tensorflow(tmp_path):
  """The command line describes a data dir before TensorFlow is there."""
  program = (
    'import sys; import generate_cifar10_tfrecords; from cifar10.core import files; '
    'files.write_text(sys.argv[1], ""); assert files.read_object("none") is None; '
    "assert not any(name.startswith('tensorflow.') for name in sys.modules)"
  )
  checkout.python('-c', program, tmp_path / 'x', must_succeed=True)


def blocks(language):
  return re.findall(rf'```{language}\n(.*?)```', checkout.read('docs/data.md'), re.S)


def test_the_documented_program_makes_a_data_set(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  [program] = [block for block in blocks('python') if 'data-shapes' in block]
  exec(program, {})
  described = manifest.describe('data-shapes')
  assert (described.name, described.classes) == ('shapes', ('circle', 'square'))
  made = input_pipeline.Cifar10DataSet('data-shapes', 'train')
  assert made.num_examples_per_epoch() == 80
  first = made.first_images(2)
  assert (first[0] == 0).all()
  assert (first[1] == 255).all()


def test_the_documented_manifest_has_every_key(tmp_path):
  [content] = blocks('json')
  assert described(tmp_path, json.loads(content)).num_classes == 2
  flags = ['--data-dir', str(tmp_path), '--synthetic', '2', '--force']
  generate_cifar10_tfrecords.generate(generate_cifar10_tfrecords.parse(flags))
  keys = set(json.loads((tmp_path / 'cifar10.json').read_text()))
  documented = set(re.findall(r'^\| `(\w+)` \|', checkout.read('docs/data.md'), re.M))
  # What decides what synthetic images are: of `source`.
  assert keys - documented == {'images_per_batch', 'seed'}
