"""Generated batches: the same images always, of any number of classes."""

import hashlib

import numpy as np
import pytest

from cifar10.data.build import archive, synthetic


@pytest.mark.parametrize(
  ('published', 'name', 'digest'),
  [
    (archive.CIFAR10, 'data_batch_1', '3a0b374a8aa44003'),
    (archive.CIFAR10, 'test_batch', 'bc4c752d047993e2'),
    (archive.CIFAR100, 'train', 'c738389dee12fde8'),
  ],
)
def test_batches_are_what_they_have_always_been(tmp_path, published, name, digest):
  """Others' record files, and what was measured with them, go back to these images.

  Of CIFAR-10's 3,000 a linear model learns 43 %, ResNet-8 99 %; of CIFAR-100's 20,000 five layers
  of convolutions 97 %.
  """
  folder = synthetic.write_synthetic(str(tmp_path), 4, 0, published)
  examples = archive.read_batches([f'{folder}/{name}'], published.labels['fine'])
  images = b''.join(image.tobytes() for image, _ in examples)
  assert hashlib.sha256(images).hexdigest()[:16] == digest


@pytest.mark.parametrize('num_classes', [2, 125])
def test_every_class_of_any_number_can_be_drawn(num_classes):
  images = synthetic.synthetic_images(np.arange(num_classes), np.random.default_rng(0), num_classes)
  assert (images.shape, images.dtype) == ((num_classes, 3072), np.uint8)
  assert (images.std(1) > 5).all()
