"""The program's networks as Keras networks, for further training in plain TensorFlow.

A layer with variables is named like their scope, with _ for /: resnet_stage1_block0_conv1. All
layers are Keras's own, and none is a Lambda, which Keras 3 refuses to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow import keras  # Loaded with its first use: training has none.

from cifar10.data.info import DatasetInfo
from cifar10.networks.fastnet import SHARPNESS, standardisation
from cifar10.networks.vgg import Vgg
from cifar10.options.families import (
  VGG_CONVS_PER_GROUP,
  FastNetFamily,
  ResNetFamily,
  VggFamily,
  WideResNetFamily,
)
from cifar10.options.hparams import HParams
from cifar10.training.inference import FEATURES, IMAGES, PROBABILITIES

FAMILIES = (ResNetFamily, WideResNetFamily, VggFamily, FastNetFamily)
_FILTERS = (16, 32, 64)  # Of a ResNet's stages.
_KERAS_NAMES = {'scale': 'gamma', 'offset': 'beta'}  # The others are the program's.


def build(hparams: HParams, data: DatasetInfo, values: Mapping[str, np.ndarray]) -> keras.Model:
  """Returns the network from uint8 images [batch, 32, 32, 3] to probabilities.

  Args:
    hparams: the network's, which is of one of FAMILIES.
    data: the data set that it classifies.
    values: float32 values of its variables, by name.
  """
  layers = _Layers(hparams, data)
  images = keras.Input([32, 32, 3], dtype='uint8', name=IMAGES)
  x = keras.layers.Rescaling(1 / 128, -1)(images)
  match hparams.family:
    case ResNetFamily() as family:
      logits = _resnet(layers, x, family)
    case WideResNetFamily() as family:
      logits = _wide_resnet(layers, x, family)
    case VggFamily() as family:
      logits = _vgg(layers, x, family)
    case FastNetFamily() as family:
      logits = _fastnet(layers, x, family)
      values = _folded(values, data)
  model = keras.Model(images, keras.layers.Softmax(name=PROBABILITIES)(logits), name='network')
  for name, value in values.items():
    scope, _, leaf = name.rpartition('/')
    layer = model.get_layer(scope.replace('/', '_'))
    getattr(layer, _KERAS_NAMES.get(leaf, leaf)).assign(value)
  return model


class _Layers:
  """The layers of model_base.py; `scope` names their variables."""

  def __init__(self, hparams: HParams, data: DatasetInfo):
    self._hparams, self._num_classes = hparams, data.num_classes

  def name(self, scope: str) -> str:
    return f'{self._hparams.family.NAME}/{scope}'.replace('/', '_')

  def conv(self, x: tf.Tensor, scope: str, size: int, filters: int, stride: int = 1) -> tf.Tensor:
    padding = 'same'
    if stride > 1:  # 'same' would centre a 3x3 kernel on pixels 1, 3, 5, ..., not on 0, 2, 4, ...
      x, padding = keras.layers.ZeroPadding2D(size // 2)(x), 'valid'
    name = self.name(scope)
    return keras.layers.Conv2D(filters, size, stride, padding, use_bias=False, name=name)(x)

  def batch_norm(self, x: tf.Tensor, scope: str, factor: float | None = None) -> tf.Tensor:
    """With a fixed `factor` f, f x + offset is f (x + offset / f)."""
    decay, epsilon = self._hparams.batch_norm_decay, self._hparams.batch_norm_epsilon
    name, has_scale = self.name(scope), factor is None
    x = keras.layers.BatchNormalization(-1, decay, epsilon, scale=has_scale, name=name)(x)
    return x if has_scale else keras.layers.Rescaling(factor, name=f'{name}_scale')(x)

  def bn_relu(self, x: tf.Tensor, scope: str) -> tf.Tensor:
    return keras.layers.ReLU()(self.batch_norm(x, scope))

  def fully_connected(self, x: tf.Tensor, *, has_bias: bool = True) -> tf.Tensor:
    x = keras.layers.Activation('linear', name=FEATURES)(x)
    name = self.name('fully_connected')
    return keras.layers.Dense(self._num_classes, use_bias=has_bias, name=name)(x)


def _resnet(layers: _Layers, x: tf.Tensor, family: ResNetFamily) -> tf.Tensor:
  is_version_1 = family.resnet_version == 1
  x = layers.conv(x, 'init/conv', 3, 16)
  if is_version_1:
    x = layers.bn_relu(x, 'init/batch_norm')
  for stage, width in enumerate(_FILTERS, 1):
    for block in range((family.num_layers - 2) // (9 if family.bottleneck else 6)):
      scope, stride = f'stage{stage}/block{block}', 2 if stage > 1 and block == 0 else 1
      if is_version_1:
        x = _residual_v1(layers, x, scope, width, stride)
      elif family.bottleneck:
        convs = [(1, width), (3, width), (1, 4 * width)]
        x = _residual_v2(layers, x, scope, convs, stride, projects=True)
      else:
        x = _residual_v2(layers, x, scope, [(3, width)] * 2, stride)
  if not is_version_1:
    x = layers.bn_relu(x, 'final/batch_norm')
  return layers.fully_connected(keras.layers.GlobalAveragePooling2D()(x))


def _wide_resnet(layers: _Layers, x: tf.Tensor, family: WideResNetFamily) -> tf.Tensor:
  x = layers.conv(x, 'init/conv', 3, 16)
  for stage, filters in enumerate(_FILTERS, 1):
    convs = [(3, filters * family.wrn_widen_factor)] * 2
    for block in range((family.wrn_depth - 4) // 6):
      scope, stride = f'stage{stage}/block{block}', 2 if stage > 1 and block == 0 else 1
      x = _residual_v2(layers, x, scope, convs, stride, projects=True)
  x = layers.bn_relu(x, 'final/batch_norm')
  return layers.fully_connected(keras.layers.GlobalAveragePooling2D()(x))


def _residual_v1(layers: _Layers, x: tf.Tensor, scope: str, filters: int, stride: int) -> tf.Tensor:
  shortcut = _parameter_free_shortcut(x, filters, stride)
  x = layers.bn_relu(layers.conv(x, f'{scope}/conv1', 3, filters, stride), f'{scope}/bn1')
  x = layers.batch_norm(layers.conv(x, f'{scope}/conv2', 3, filters), f'{scope}/bn2')
  return keras.layers.ReLU()(keras.layers.Add()([x, shortcut]))


def _residual_v2(
  layers: _Layers,
  x: tf.Tensor,
  scope: str,
  convs: Sequence[tuple[int, int]],
  stride: int,
  *,
  projects: bool = False,
) -> tf.Tensor:
  """Applies bn, relu and a convolution (of a size and filters) several times, + shortcut.

  The shortcut of a block that changes the shape is a convolution if the network `projects`.
  """
  filters = convs[-1][1]
  activated = layers.bn_relu(x, f'{scope}/bn1')
  if not projects:  # The first block's starts after the first relu.
    source = activated if scope == 'stage1/block0' else x
    shortcut = _parameter_free_shortcut(source, filters, stride)
  elif stride > 1 or x.shape[-1] != filters:
    shortcut = layers.conv(activated, f'{scope}/shortcut', 1, filters, stride)
  else:
    shortcut = x
  x = layers.conv(activated, f'{scope}/conv1', *convs[0], stride)
  for number, conv in enumerate(convs[1:], 2):
    x = layers.bn_relu(x, f'{scope}/bn{number}')
    x = layers.conv(x, f'{scope}/conv{number}', *conv)
  return keras.layers.Add()([x, shortcut])


def _parameter_free_shortcut(x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
  if stride > 1:
    x = keras.layers.AveragePooling2D(stride)(x)
  if added := filters - x.shape[-1]:
    # Of [batch, height, width, channels] the last two axes are what channels first calls pixels.
    padding = ((0, 0), (added // 2, added - added // 2))
    x = keras.layers.ZeroPadding2D(padding, data_format='channels_first')(x)
  return x


def _vgg(layers: _Layers, x: tf.Tensor, family: VggFamily) -> tf.Tensor:
  groups = zip(VGG_CONVS_PER_GROUP[family.vgg_layers], Vgg.WIDTHS)
  for group, (num_convs, width) in enumerate(groups, 1):
    for number in range(1, num_convs + 1):
      x = layers.conv(x, f'group{group}/conv{number}', 3, width)
      x = layers.bn_relu(x, f'group{group}/bn{number}')
    x = keras.layers.MaxPooling2D(2)(x)
  return layers.fully_connected(keras.layers.GlobalAveragePooling2D()(x))


def _fastnet(layers: _Layers, x: tf.Tensor, family: FastNetFamily) -> tf.Tensor:
  x = keras.layers.Conv2D(24, 2, trainable=False, name=layers.name('whitening'))(x)
  x = keras.layers.Activation('swish')(x)
  for group, width in enumerate(family.widths, 1):
    x = keras.layers.MaxPooling2D(2)(layers.conv(x, f'group{group}/conv1', 3, width))
    x = layers.batch_norm(x, f'group{group}/bn1', SHARPNESS)
    x = shortcut = keras.layers.Activation('swish')(x)
    for number in range(2, family.convs_per_group + 1):
      x = layers.conv(x, f'group{group}/conv{number}', 3, width)
      x = layers.batch_norm(x, f'group{group}/bn{number}', SHARPNESS)
      if number == family.convs_per_group > 2:
        x = keras.layers.Add()([x, shortcut])
      x = keras.layers.Activation('swish')(x)
  x = keras.layers.Flatten()(keras.layers.MaxPooling2D(3)(x))
  logits = layers.fully_connected(x, has_bias=False)
  return keras.layers.Rescaling(1 / (family.widths[-1] * SHARPNESS))(logits)


def _folded(values: Mapping[str, np.ndarray], data: DatasetInfo) -> dict[str, np.ndarray]:
  """A fast network's variables with the constants that its layers do not have.

  `fastnet.unfolded` undoes it, and for the offsets --warm-start-from.
  """
  scale, shift = (value[:, np.newaxis] for value in standardisation(data))
  kernel, bias = (values[f'{FastNetFamily.NAME}/whitening/{leaf}'] for leaf in ('kernel', 'bias'))
  folded = {name: value / SHARPNESS for name, value in values.items() if name.endswith('/offset')}
  folded[f'{FastNetFamily.NAME}/whitening/kernel'] = SHARPNESS * kernel * scale
  shifted = bias + np.sum(kernel * shift, (0, 1, 2))
  folded[f'{FastNetFamily.NAME}/whitening/bias'] = SHARPNESS * shifted
  return {**values, **folded}
