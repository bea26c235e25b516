"""Image augmentation for training: random crop, mirroring and cutout, and a user's own.

In memory an image is a string of the bytes of its padded pixels. A crop of whole padded rows is
then a substring, which one op cuts for the whole batch, with an offset for each image: a copy of
3,840 contiguous bytes, where a gather of pixels would make 1,024 copies of three.
"""

import math

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.core.user_code import called
from cifar10.data.manifest import DEPTH, HEIGHT, WIDTH
from cifar10.options.hparams import Augmentation

_GREY = 128  # The pixel value that input_pipeline.normalise makes 0.
fold_in = tf.random.experimental.stateless_fold_in


def pad(images: tf.Tensor, augmentation: Augmentation) -> tf.Tensor:
  """Pads images: uint8 [n, 32, 32, 3] -> uint8 [n, 32 + 2 padding + 1, 32 + 2 padding, 3].

  The extra row at the bottom is for `crop`, which cuts whole padded rows from any column on, so
  that those of the lowest crop end in it. No crop shows it.
  """
  pixels = augmentation.crop_padding
  mode = {'zeros': 'CONSTANT', 'reflect': 'REFLECT'}[augmentation.padding_mode]
  padded = tf.pad(images, [[0, 0], [pixels, pixels], [pixels, pixels], [0, 0]], mode)
  return tf.pad(padded, [[0, 0], [0, 1], [0, 0], [0, 0]])


def as_strings(padded: tf.Tensor) -> tf.Tensor:
  """Returns each image's bytes, row by row: uint8 [n, height, width, 3] -> string [n]."""
  image_bytes = math.prod(padded.shape[1:])
  whole = tf.io.serialize_tensor(padded)  # Type and shape precede the content.
  start = tf.range(-tf.shape(padded)[0], 0) * image_bytes  # From the end.
  return tf.strings.substr(whole, start, tf.fill(tf.shape(start), image_bytes))


def crop(padded: tf.Tensor, dy: tf.Tensor, dx: tf.Tensor, padding: int) -> tf.Tensor:
  """Cuts uint8 [batch, 32, 32, 3] out of padded images, at row dy and column dx of each.

  `padded`: string [batch], from `as_strings`; `dy`, `dx`: int32 [batch], 0 to 2 * `padding`;
  `padding`: the pixels that `pad` has added on each side.
  """
  width = WIDTH + 2 * padding
  row_bytes = width * DEPTH
  window_bytes = tf.fill(tf.shape(padded), HEIGHT * row_bytes)
  windows = tf.strings.substr(padded, dy * row_bytes + dx * DEPTH, window_bytes)
  rows = tf.io.decode_raw(windows, tf.uint8)
  images = tf.reshape(rows, [-1, HEIGHT, width, DEPTH])[:, :, :WIDTH]
  return tf.ensure_shape(images, [padded.shape[0], *images.shape[1:]])


def augment(
  padded: tf.Tensor,
  seed: tf.Tensor,
  augmentation: Augmentation,
  alternating: tf.Tensor | None = None,
) -> tf.Tensor:
  """Crops and mirrors each image at random, and greys a square: uint8 [batch, 32, 32, 3].

  `padded` is string [batch], from `as_strings`; equal seeds, int32 [2], augment equally. For --flip
  alternating, `alternating` says which images to mirror: int32 [batch] of 0 and 1.
  """
  batch = tf.shape(padded)[0]
  offset_seed, mirror_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
  places = 2 * augmentation.crop_padding + 1
  dy, dx = tf.unstack(tf.random.stateless_uniform([2, batch], offset_seed, 0, places, tf.int32))
  is_mirrored = alternating
  if augmentation.flip == 'random':
    is_mirrored = tf.random.stateless_uniform([batch], mirror_seed, 0, 2, tf.int32)
  cropped = crop(padded, dy, dx, augmentation.crop_padding)
  # A gather copies whole images; tf.where copies bytes, slower than all the rest.
  both = tf.concat([cropped, mirror(cropped)], 0)
  chosen = tf.gather(both, tf.range(batch) + batch * is_mirrored)
  chosen = tf.ensure_shape(chosen, [padded.shape[0], *cropped.shape[1:]])
  if not augmentation.cutout:
    return chosen
  return cutout(chosen, fold_in(seed, 0), augmentation.cutout)


@tf.autograph.experimental.do_not_convert  # As in input_pipeline.py.
def own_augmentation(
  batches: tf.data.Dataset, name: str, seed: int, worker: int, first_batch: int | tf.Tensor
) -> tf.data.Dataset:
  """Returns training batches as --augmentation NAME changes them; the first is `first_batch`.

  The function is called with images uint8 [n, 32, 32, 3], labels int32 [n], or of a source rows
  float32 [n, classes], and a seed int32 [2], which depends on seed, worker and number alone.
  Raises InputError where it fails, or returns no such images with labels of one of these kinds.
  """
  key = fold_in([seed, worker], 3)  # 0 to 2 are those of `Cifar10DataSet.make_batch`.

  def change(number: tf.Tensor, batch: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    images, labels = batch
    made = called('--augmentation', name)(images, labels, fold_in(key, tf.cast(number, tf.int32)))
    try:
      changed, targets = map(tf.convert_to_tensor, made)
      dtype, row = (tf.float32, [None]) if targets.dtype.is_floating else (tf.int32, [])
      targets = tf.ensure_shape(tf.cast(targets, dtype), [*labels.shape[:1], *row])
      if row:
        sums = tf.reduce_sum(tf.where(targets < 0, math.inf, targets), 1)
        said = 'rows of labels must be probabilities, of sum 1'
        with tf.control_dependencies([tf.debugging.assert_near(sums, 1.0, 0, 0.01, said)]):
          targets = tf.identity(targets)
      return tf.ensure_shape(tf.convert_to_tensor(changed, tf.uint8), images.shape), targets
    except (TypeError, ValueError):
      raise InputError(
        f'--augmentation {name} returns {made!r:.200}; it must return images, uint8 '
        f'{images.shape}, and labels, integers [n] or floats [n, classes]'
      ) from None

  return batches.enumerate(first_batch).map(change, tf.data.AUTOTUNE)


def downsampled(images: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
  """Interpolates bilinearly: uint8 [n, 32, 32, 3], int32 [] -> float32 [n, side, side, 3]."""
  # GPUs have a kernel for floats, not for bytes.
  return tf.image.resize(tf.cast(images, tf.float32), [side, side])


def mirror(images: tf.Tensor) -> tf.Tensor:
  """Exchanges left and right of images [n, height, width, channels]."""
  shape = tf.shape(images)
  # As a stack of rows, the only form of this op with a fast kernel.
  rows = tf.reshape(images, [-1, *images.shape[2:]])
  return tf.ensure_shape(tf.reshape(tf.reverse(rows, [1]), shape), images.shape)


def cutout(images: tf.Tensor, seed: tf.Tensor, side: int) -> tf.Tensor:
  """Makes a square of `side` pixels, wholly within each image uint8 [batch, 32, 32, 3], grey."""
  batch = tf.shape(images)[0]
  corners = tf.random.stateless_uniform([2, batch, 1], seed, 0, HEIGHT - side + 1, tf.int32)
  behind = tf.range(HEIGHT) - corners  # Distance in pixels from the corner: [2, batch, 32].
  in_rows, in_columns = tf.unstack(tf.cast((behind >= 0) & (behind < side), tf.uint8))
  is_cut = (in_rows[:, :, tf.newaxis] * in_columns[:, tf.newaxis, :])[..., tf.newaxis]
  return tf.ensure_shape(images * (1 - is_cut) + _GREY * is_cut, images.shape)
