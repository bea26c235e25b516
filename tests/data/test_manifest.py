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


def described(tmp_path, content):
  (tmp_path / 'cifar10.json').write_text(json.dumps(content))
  return manifest.describe(str(tmp_path))


def test_no_manifest_and_format_1_are_cifar_10(tmp_path):
  assert manifest.describe(str(tmp_path)) == CIFAR10
  assert manifest.describe(str(tmp_path / 'none')) == CIFAR10
  assert described(tmp_path, {'source': 'published', 'subsets': SPLITS}) == CIFAR10
  classes = list(CIFAR10.classes)
  assert described(tmp_path, {'format': 1, 'classes': classes, 'subsets': SPLITS}) == CIFAR10


@pytest.mark.parametrize('description', [CIFAR10, SHAPES])
def test_reads_what_it_writes(tmp_path, description):
  assert described(tmp_path, {'format': 2, **description.to_json()}) == description


def test_a_name_and_classes_are_enough(tmp_path):
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
  ],
)
def test_refuses_in_one_line_what_cannot_be(tmp_path, wrong, message):
  with pytest.raises(InputError, match=message) as refusal:
    described(tmp_path, {**SHAPES.to_json(), **wrong})
  assert len(str(refusal.value).splitlines()) == 1
  assert 'cifar10.json' in str(refusal.value)


def test_refuses_classes_without_a_name_and_what_is_no_object(tmp_path):
  with pytest.raises(InputError, match='has name None: it must be text in one line'):
    described(tmp_path, {'classes': ['circle', 'square'], 'subsets': SPLITS})
  with pytest.raises(InputError, match=r"config\.json is no JSON object but \['x'\]"):
    DatasetInfo.from_json(['x'], 'config.json')


@pytest.mark.parametrize(
  'content',
  [
    '{',
    '[]',
    json.dumps({'subsets': {split: {**ENTRY, 'bytes': 1.5} for split in manifest.SUBSETS}}),
  ],
)
def test_refuses_a_damaged_manifest(tmp_path, content):
  (tmp_path / manifest.MANIFEST_NAME).write_text(content)
  with pytest.raises(InputError, match=r'cifar10\.json is no manifest .*(restore it, or|run: )'):
    manifest.read_manifest(str(tmp_path))


@pytest.mark.parametrize('written_as', [3, '2'])
def test_refuses_another_format(tmp_path, written_as):
  manifest.write_manifest(str(tmp_path), {'format': written_as, 'subsets': SPLITS})
  with pytest.raises(InputError, match=f'has format {written_as!r} and this program reads 1 to 2'):
    manifest.read_manifest(str(tmp_path))


@pytest.mark.parametrize(
  ('made_by', 'remedy'),
  [
    ({'name': 'pets', 'flags': "--images '/my pets'"}, "run: {} --images '/my pets'"),
    ({'name': 'shapes'}, 'restore it, or correct {folder}/cifar10.json'),
    ({}, 'run: {}'),
  ],
)
def test_the_remedy_has_the_flags_that_made_the_records(tmp_path, made_by, remedy):
  manifest.write_manifest(str(tmp_path), made_by)
  command = f'python generate_cifar10_tfrecords.py --data-dir {tmp_path}'
  said = manifest.remedy(f'{tmp_path}/eval.tfrecords')
  assert said == remedy.format(command, folder=tmp_path)


def test_neither_it_nor_what_refuses_loads_tensorflow():
  """The command line describes a data dir before TensorFlow is there."""
  program = (
    'import sys; import generate_cifar10_tfrecords; '
    "assert not any(name.startswith('tensorflow.') for name in sys.modules)"
  )
  checkout.python('-c', program, must_succeed=True)


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
