"""Image files of every kind that is promised, as planes and pixels worked out by hand."""

import errno
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cifar10.core.errors import InputError, StorageError
from cifar10.data import image_files


def write(path, image, encode=tf.io.encode_png):
  with open(path, 'wb') as file:
    file.write(encode(np.asarray(image, np.uint8)).numpy())
  return os.fspath(path)


def noise(*shape):
  return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


KINDS = [('png', 1), ('png', 3), ('png', 4), ('webp', 1), ('webp', 4)]


@pytest.mark.parametrize(('kind', 'channels'), KINDS)
def test_a_small_image_is_left_as_it_is_but_for_transparency(tmp_path, kind, channels):
  image = noise(32, 32, channels)
  pixels = image[..., 0] if channels == 1 else image
  Image.fromarray(pixels).save(tmp_path / f'a.{kind}', lossless=True, exact=True)
  read = image_files.read_image(str(tmp_path / f'a.{kind}'))
  np.testing.assert_array_equal(read, np.repeat(image, 3, 2) if channels == 1 else image[..., :3])
  assert read.dtype == np.uint8


def test_a_larger_one_is_averaged_by_area(tmp_path):
  image = noise(64, 96, 3)
  path = write(tmp_path / 'a.png', image)
  read = image_files.read_image(path)
  # 64 x 96 pixels on 32 x 32: each is the mean of two rows and three columns.
  assert np.abs(read - image.reshape(32, 2, 32, 3, 3).mean((1, 3))).max() <= 0.5 + 1e-4  # Rounded.
  with tf.Graph().as_default():  # Without eager execution, too.
    np.testing.assert_array_equal(image_files.read_image(path), read)


def test_jpeg(tmp_path):
  path = write(tmp_path / 'a.jpg', np.full([40, 50, 1], 200), tf.io.encode_jpeg)
  assert np.abs(image_files.read_image(path).astype(int) - 200).max() <= 2


def test_refuses_what_is_no_image(tmp_path):
  os.mkfifo(tmp_path / 'pipe.png')  # Reading it would never end.
  for path in (tmp_path, tmp_path / 'pipe.png', tmp_path / 'none.png'):
    with pytest.raises(InputError, match=r'is no file$|does not exist$'):
      image_files.read_image(str(path))
  webp = b'RIFF\x1a\0\0\0WEBPVP8L' + bytes(20)
  for content in (b'', b'hello', b'\x89PNG\r\n\x1a\n', b'\xff\xd8\xff\xe0', webp, webp[:12]):
    (tmp_path / 'a.png').write_bytes(content)
    with pytest.raises(InputError, match=r'a\.png cannot be read as PNG, JPEG or WebP; convert it'):
      image_files.read_image(str(tmp_path / 'a.png'))


def test_a_fault_of_the_storage_is_none_of_the_image(tmp_path, monkeypatch):
  path = write(tmp_path / 'a.png', noise(32, 32, 3))
  stale = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
  monkeypatch.setattr('builtins.open', mock.Mock(side_effect=stale))
  with pytest.raises(StorageError, match=r'a.png cannot be read \(Stale file handle\)'):
    image_files.read_image(path)
