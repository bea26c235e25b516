"""Image files of every kind that is promised, as planes and pixels worked out by hand."""

import errno
import os
import struct

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import InputError, StorageError
from cifar10.data import image_files


def write(path, image, encode=tf.io.encode_png):
  with open(path, 'wb') as file:
    file.write(encode(np.asarray(image, np.uint8)).numpy())
  return os.fspath(path)


def noise(*shape):
  return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def test_a_small_png_is_left_as_it_is(tmp_path):
  image = noise(32, 32, 3)
  read, size = image_files.read_image(write(tmp_path / 'a.png', image))
  np.testing.assert_array_equal(read, image)
  assert read.dtype == np.uint8
  assert size == (32, 32)


def test_a_larger_one_is_averaged_by_area(tmp_path):
  image = noise(64, 96, 3)
  read, size = image_files.read_image(write(tmp_path / 'a.png', image))
  # 64 x 96 pixels on 32 x 32: each is the mean of two rows and three columns.
  means = image.reshape(32, 2, 32, 3, 3).mean((1, 3))
  assert np.abs(read - means).max() <= 0.5 + 1e-4  # Rounded.
  assert size == (64, 96)


def test_grey_becomes_three_equal_channels(tmp_path):
  image = noise(32, 32, 1)
  read, _ = image_files.read_image(write(tmp_path / 'a.png', image))
  np.testing.assert_array_equal(read, np.repeat(image, 3, 2))


def test_transparency_is_dropped(tmp_path):
  image = noise(32, 32, 4)
  read, _ = image_files.read_image(write(tmp_path / 'a.png', image))
  np.testing.assert_array_equal(read, image[..., :3])


@pytest.mark.parametrize('target', ['loop.png', 'file/x', 'nowhere'])
def test_a_link_to_nothing_is_no_fault_of_the_storage(tmp_path, target):
  (tmp_path / 'file').touch()
  (tmp_path / 'loop.png').symlink_to(target)
  with pytest.raises(InputError, match=r'loop\.png is no file'):
    image_files.read_image(os.fspath(tmp_path / 'loop.png'))


@pytest.mark.parametrize('channels', [1, 3])
def test_jpeg(tmp_path, channels):
  image = np.full([40, 50, channels], 200)
  path = write(tmp_path / 'a.jpg', image, tf.io.encode_jpeg)
  read, size = image_files.read_image(path)
  assert np.abs(read.astype(int) - 200).max() <= 2
  assert size == (40, 50)


def test_a_name_may_be_no_utf_8(tmp_path):
  path = os.path.join(os.fsencode(tmp_path), b'\xff.png')
  write(os.fsdecode(path), noise(32, 32, 3))
  assert image_files.read_image(os.fsdecode(path))[1] == (32, 32)


def test_reads_without_eager_execution(tmp_path):
  path, bad = write(tmp_path / 'a.png', noise(40, 32, 3)), write(tmp_path / 'b.png', noise(1, 1, 3))
  with open(bad, 'wb') as file:
    file.write(b'no image')
  expected, _ = image_files.read_image(path)
  with tf.Graph().as_default():
    read, size = image_files.read_image(path)
    with pytest.raises(InputError, match=r'b\.png cannot be read as PNG or JPEG'):
      image_files.read_image(bad)
  np.testing.assert_array_equal(read, expected)
  assert size == (40, 32)


def test_refuses_what_is_no_image(tmp_path):
  with pytest.raises(InputError, match=r'none\.png does not exist'):
    image_files.read_image(str(tmp_path / 'none.png'))
  for content in (b'', b'hello', b'\x89PNG\r\n\x1a\n', b'\xff\xd8\xff\xe0'):
    (tmp_path / 'a.png').write_bytes(content)
    with pytest.raises(InputError, match=r'a\.png cannot be read as PNG or JPEG'):
      image_files.read_image(str(tmp_path / 'a.png'))
  os.mkfifo(tmp_path / 'pipe.png')  # Reading it would never end.
  for path, fault in (
    (tmp_path, 'is no file, but a folder'),
    (tmp_path / 'pipe.png', 'is no file$'),
  ):
    with pytest.raises(InputError, match=fault):
      image_files.read_image(str(path))


def failing(number):
  def fail(*arguments, **named):
    raise OSError(number, os.strerror(number))

  return fail


@pytest.mark.parametrize('call', ['os.stat', 'builtins.open'])
@pytest.mark.parametrize('number', [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
def test_a_fault_of_the_storage_is_none_of_the_image(tmp_path, monkeypatch, call, number):
  path = write(tmp_path / 'a.png', noise(32, 32, 3))
  monkeypatch.setattr(call, failing(number))
  with pytest.raises(StorageError) as error:
    image_files.read_image(path)
  monkeypatch.undo()
  said = os.strerror(number)
  assert str(error.value) == f'image {path} cannot be read ({said}); mend that, and run again'


@pytest.mark.parametrize(
  ('start', 'fault'),
  [
    (b'', 'cannot be read as PNG or JPEG; convert it'),
    (b'\x89PNG\r\n\x1a\n', 'has 1,099,511,627,776 bytes, more than 268,435,456; make it smaller'),
  ],
)
def test_a_file_that_can_be_no_image_is_not_read(tmp_path, start, fault):
  """A terabyte, which no memory has."""
  path = tmp_path / 'video.png'
  path.write_bytes(start)
  os.truncate(path, 1 << 40)
  with pytest.raises(InputError) as error:
    image_files.read_image(str(path))
  assert str(error.value) == f'image {path} {fault}'


@pytest.mark.parametrize('name', ['bmp', 'gif'])
def test_what_tensorflow_reads_besides(tmp_path, name):
  header = {  # Of one pixel.
    'bmp': b'BM' + struct.pack('<IHHIIiiHHIIiiII', 58, 0, 0, 54, 40, 1, 1, 1, 24, *[0] * 6),
    'gif': b'GIF89a' + struct.pack('<HHBBB6x', 1, 1, 0x80, 0, 0),
  }[name]
  pixels = {'bmp': bytes(4), 'gif': b',' + struct.pack('<HHHHB', 0, 0, 1, 1, 0) + b'\2\2D\1\0;'}
  (tmp_path / 'a').write_bytes(header + pixels[name])
  read, size = image_files.read_image(str(tmp_path / 'a'))
  assert (read.max(), size) == (0, (1, 1))
