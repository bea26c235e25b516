"""What a data set is, as a manifest or a job dir says it; and what such a file must not say."""

import json

import checkout
import pytest

from cifar10.core.errors import InputError
from cifar10.data import info, manifest
from cifar10.data.info import CIFAR10, DatasetInfo

SHAPES = DatasetInfo('shapes', ('circle', 'square'), (0.5, 0.25, 0.125), (0.5, 0.25, 0.3))
ENTRY = {'examples': 1, 'bytes': 2, 'file': 'f', 'sha256': 's'}
SPLITS = {split: ENTRY for split in manifest.SUBSETS}


def described(tmp_path, content):
  (tmp_path / 'cifar10.json').write_text(json.dumps(content))
  return info.describe(str(tmp_path))


def test_cifar_10_has_the_published_constants():
  assert CIFAR10.num_classes == 10
  assert CIFAR10.classes[3] == 'cat'
  assert CIFAR10.means == (0.4914, 0.4822, 0.4465)
  assert CIFAR10.stds == (0.2470, 0.2435, 0.2616)


def test_no_manifest_and_format_1_are_cifar_10(tmp_path):
  assert info.describe(str(tmp_path)) == CIFAR10
  assert info.describe(str(tmp_path / 'none')) == CIFAR10
  assert described(tmp_path, {'source': 'published', 'subsets': SPLITS}) == CIFAR10
  classes = list(CIFAR10.classes)
  assert described(tmp_path, {'format': 1, 'classes': classes, 'subsets': SPLITS}) == CIFAR10


@pytest.mark.parametrize('description', [CIFAR10, SHAPES])
def test_reads_what_it_writes(tmp_path, description):
  assert described(tmp_path, {'format': 2, **description.to_json()}) == description


def test_a_name_and_classes_are_enough(tmp_path):
  description = described(tmp_path, {'name': 'shapes', 'classes': ['circle', 'square']})
  assert description == DatasetInfo('shapes', ('circle', 'square'), CIFAR10.means, CIFAR10.stds)


@pytest.mark.parametrize('name', ['<b>&', 'two words', "it's", '"', '../up', 'a/b', '猫', '%s {}'])
def test_a_class_may_have_any_name_of_one_line(tmp_path, name):
  content = {'name': name, 'classes': ['circle', name]}
  assert described(tmp_path, content).classes == ('circle', name)


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'name': 3}, 'has name 3: it must be text in one line'),
    ({'name': ''}, "has name ''"),
    ({'name': 'a\nb'}, r"has name 'a\\nb'"),
    ({'classes': 'circle'}, "has classes 'circle': they must be a list of 2 names or more"),
    ({'classes': ['circle']}, '2 names or more'),
    ({'classes': ['circle', 'circle']}, "has the class 'circle' more than once"),
    ({'classes': ['circle', ' ']}, "has a class ' '"),
    ({'classes': ['circle', 5]}, 'has a class 5'),
    ({'classes': ['circle', 'a\nb']}, r"has a class 'a\\nb'"),
    ({'classes': ['circle', '\ud800']}, 'has a class'),
    ({'channel_means': 0.5}, 'has channel_means 0.5: they must be three numbers from 0 to 1'),
    ({'channel_means': [0.5, 0.5]}, 'three numbers'),
    ({'channel_means': [125.3, 123.0, 113.9]}, 'from 0 to 1'),
    ({'channel_means': [float('nan')] * 3}, 'from 0 to 1'),
    ({'channel_means': [True, True, True]}, 'three numbers'),
    ({'channel_deviations': [0, 0.2, 0.2]}, 'has channel_deviations'),
    ({'channel_deviations': [0.9, 0.2, 0.2]}, 'from 1e-06 to 0.5'),
  ],
)
def test_refuses_in_one_line_what_cannot_be(tmp_path, wrong, message):
  with pytest.raises(InputError, match=message) as refusal:
    described(tmp_path, {**SHAPES.to_json(), **wrong})
  assert len(str(refusal.value).splitlines()) == 1
  assert 'cifar10.json' in str(refusal.value)


def test_refuses_classes_without_a_name(tmp_path):
  with pytest.raises(InputError, match='has classes of its own but no name'):
    described(tmp_path, {'classes': ['circle', 'square'], 'subsets': SPLITS})


def test_refuses_what_is_no_object():
  with pytest.raises(InputError, match=r"config\.json is no JSON object but \['x'\]"):
    DatasetInfo.from_json(['x'], 'config.json')


def test_neither_it_nor_what_refuses_loads_tensorflow():
  """The command line describes a data dir before TensorFlow is there."""
  program = (
    'import sys; from cifar10.data import info, manifest; '
    'from cifar10.data.build import image_folder, writer; '
    "assert not any(name.startswith('tensorflow.') for name in sys.modules)"
  )
  checkout.python('-c', program, must_succeed=True)
