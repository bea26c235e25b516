"""Inception v3 for 32x32 images, as a network of one's own:

--network inception_v3:InceptionFamily, with this folder in PYTHONPATH.

Szegedy et al. 2015, 'Rethinking the Inception Architecture for Computer Vision' (arXiv
1512.00567), section 6; branches, widths and names of blocks are those of TF-Slim's `inception_v3`:

  stem: 3x3 32, 3x3 32, 3x3 64, 1x1 80, 3x3 192    32 x 32 x  192
  max pool                                         16 x 16 x  192
  mixed_5b, 5c, 5d        (figure 5)               16 x 16 x  256, 288, 288
  mixed_6a: grid reduction (figure 10)               8 x 8 x  768
  mixed_6b, 6c, 6d, 6e    (figure 6)                 8 x 8 x  768
  mixed_7a: grid reduction (figure 10)               4 x 4 x 1280
  mixed_7b, 7c            (figure 7)                 4 x 4 x 2048
  mean, dropout, dense                                   1 x   10

Differences from the paper, whose images of 299x299 pixels make grids of 35x35, 17x17 and 8x8:

- The stem's first convolution has stride 1 and the pool after its third is left out, as section
  9 does for images of 79x79. The pool before mixed_5b stays: without it all would cost four times
  as much.
- No convolution or pool shrinks the image at its edges, as the paper's stem and reductions do.
- There is no auxiliary classifier with a second loss, which is a regulariser (section 4).
- Batch norm has a scale, as in PyTorch's torchvision; TF-Slim leaves it out.
- As in TF-Slim, and unlike figure 5, one branch of mixed_5 has a 5x5 convolution.
"""

import dataclasses
import zlib
from typing import ClassVar

import tensorflow as tf

import cifar10
from cifar10.core.option import BELOW_ONE, Check, option
from model_base import FamilyNetwork

_FEWEST_CHANNELS = 16  # Least channels of a convolution in a thin network, as in TF-Slim.

# One convolution of a branch: its kernel size (or height and width), and its channels.
Conv = tuple[int | tuple[int, int], int]


class InceptionV3(FamilyNetwork):
  """Inception v3: blocks of several parallel branches, on three grid sizes."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    x = self._stem(self._input(x, input_data_format))
    for name, pool_filters in (('mixed_5b', 32), ('mixed_5c', 64), ('mixed_5d', 64)):
      x = self._mixed_5(x, pool_filters, name)
    x = self._mixed_6a(x)
    for name, inner in (('mixed_6b', 128), ('mixed_6c', 160), ('mixed_6d', 160), ('mixed_6e', 192)):
      x = self._mixed_6(x, inner, name)
    x = self._mixed_7a(x)
    for name in ('mixed_7b', 'mixed_7c'):
      x = self._mixed_7(x, name)
    x = self._global_avg_pool(x)  # [batch, channels] float32
    x = self._dropout(x, self._options.inception_dropout)
    return self._fully_connected(x, self._num_classes)

  def _stem(self, x: tf.Tensor) -> tf.Tensor:
    """Applies the stem: [batch, 32, 32, 3] -> [batch, 16, 16, 192]."""
    x = self._branch(x, 'stem', (3, 32), (3, 32), (3, 64), (1, 80), (3, 192))
    return self._max_pool_3(x)

  def _mixed_5(self, x: tf.Tensor, pool_filters: int, name: str) -> tf.Tensor:
    """Concatenates 1x1; 5x5; two 3x3 (they see as much as a 5x5); a 3x3 mean pool (figure 5)."""
    with tf.compat.v1.variable_scope(name):
      return self._concat(
        self._branch(x, 'branch1x1', (1, 64)),
        self._branch(x, 'branch5x5', (1, 48), (5, 64)),
        self._branch(x, 'branch3x3', (1, 64), (3, 96), (3, 96)),
        self._branch(self._avg_pool(x, 3, 1), 'branch_pool', (1, pool_filters)),
      )

  def _mixed_6a(self, x: tf.Tensor) -> tf.Tensor:
    """Reduces the grid with stride 2: [batch, 16, 16, 288] -> [batch, 8, 8, 768]."""
    with tf.compat.v1.variable_scope('mixed_6a'):
      return self._concat(
        self._branch(x, 'branch3x3', (3, 384), stride=2),
        self._branch(x, 'branch3x3_twice', (1, 64), (3, 96), (3, 96), stride=2),
        self._max_pool_3(x),
      )

  def _mixed_6(self, x: tf.Tensor, inner: int, name: str) -> tf.Tensor:
    """Concatenates 1x1; one and two 7x7, each as a row and a column; a 3x3 mean pool (figure 6)."""
    row, column = (1, 7), (7, 1)
    twice: list[Conv] = [(column, inner), (row, inner), (column, inner), (row, 192)]
    with tf.compat.v1.variable_scope(name):
      return self._concat(
        self._branch(x, 'branch1x1', (1, 192)),
        self._branch(x, 'branch7x7', (1, inner), (row, inner), (column, 192)),
        self._branch(x, 'branch7x7_twice', (1, inner), *twice),
        self._branch(self._avg_pool(x, 3, 1), 'branch_pool', (1, 192)),
      )

  def _mixed_7a(self, x: tf.Tensor) -> tf.Tensor:
    """Reduces the grid with stride 2: [batch, 8, 8, 768] -> [batch, 4, 4, 1280]."""
    wide: list[Conv] = [((1, 7), 192), ((7, 1), 192), (3, 192)]
    with tf.compat.v1.variable_scope('mixed_7a'):
      return self._concat(
        self._branch(x, 'branch3x3', (1, 192), (3, 320), stride=2),
        self._branch(x, 'branch7x7', (1, 192), *wide, stride=2),
        self._max_pool_3(x),
      )

  def _mixed_7(self, x: tf.Tensor, name: str) -> tf.Tensor:
    """Concatenates 1x1; 1x3 and 3x1, directly and after a 3x3; a 3x3 mean pool (figure 7)."""
    with tf.compat.v1.variable_scope(name):
      direct = self._branch(x, 'branch3x3', (1, 384))
      after_another = self._branch(x, 'branch3x3_twice', (1, 448), (3, 384))
      return self._concat(
        self._branch(x, 'branch1x1', (1, 320)),
        *self._row_and_column(direct, 'branch3x3'),
        *self._row_and_column(after_another, 'branch3x3_twice'),
        self._branch(self._avg_pool(x, 3, 1), 'branch_pool', (1, 192)),
      )

  def _row_and_column(self, x: tf.Tensor, name: str) -> list[tf.Tensor]:
    """Applies a 1x3 and a 3x1 convolution to the same activations."""
    return [
      self._branch(x, f'{name}/row', ((1, 3), 384)),
      self._branch(x, f'{name}/column', ((3, 1), 384)),
    ]

  def _branch(self, x: tf.Tensor, name: str, *convs: Conv, stride: int = 1) -> tf.Tensor:
    """Applies convolutions in sequence, each with bn and relu; the last one has the stride."""
    with tf.compat.v1.variable_scope(name):
      for number, (kernel_size, filters) in enumerate(convs, 1):
        strides = stride if number == len(convs) else 1
        width = max(int(filters * self._options.inception_width), _FEWEST_CHANNELS)
        x = self._conv_bn_relu(x, kernel_size, width, number, strides)
      return x

  def _dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
    """Sets each element to 0 with probability `rate`, divides the others by 1 - rate, in training.

    Srivastava et al. 2014, 'Dropout: A Simple Way to Prevent Neural Networks from Overfitting'.
    """
    if rate == 0 or not self._is_training:
      return x
    # The seed depends on the step, so that a resumed job drops the same elements, and on the name,
    # which layers and towers do not share. TensorFlow's own seed would count the random operations
    # before, of which a resumed warm start has more.
    step = tf.compat.v1.train.get_or_create_global_step()
    seeds = list(tf.compat.v1.random.get_seed(zlib.crc32(x.op.name.encode()) & 0x7FFFFFFF))
    seed = tf.random.experimental.stateless_fold_in(seeds, tf.cast(step, tf.int32))
    # bfloat16 has 128 random numbers from 0 to 1: a rate of 0.3 would drop 39 of 128, 30.5 %.
    dropped = tf.nn.experimental.stateless_dropout(tf.cast(x, tf.float32), rate, seed)
    return tf.cast(dropped, x.dtype)

  def _max_pool_3(self, x: tf.Tensor) -> tf.Tensor:
    """Halves height and width, rounded up, by windows over the same 3x3 pixels as a convolution."""
    paddings = [[1, 1] if axis in self._spatial_axes else [0, 0] for axis in range(4)]
    x = tf.pad(x, paddings, constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, 3, 2, 'VALID', data_format=self._op_data_format)

  def _concat(self, *branches: tf.Tensor) -> tf.Tensor:
    """Concatenates activations of the same height and width along the channels."""
    return tf.concat(branches, self._channel_axis)


@dataclasses.dataclass(frozen=True)
class InceptionFamily(cifar10.Family):
  """The options of an Inception network. No recipe for CIFAR-10 is published for it."""

  NAME: ClassVar[str] = 'inception'
  TITLE: ClassVar[str] = 'Inception v3 (Szegedy et al. 2015)'
  NETWORK: ClassVar[type] = InceptionV3

  inception_width: float = option(
    1.0,
    "factor of the paper's numbers of channels; each convolution keeps at least 16",
    check=Check(lambda width: 0 < width <= 16, 'must be above 0 and at most 16'),
    fixed=True,
  )
  inception_dropout: float = option(0.2, 'dropout rate before the dense layer', check=BELOW_ONE)
