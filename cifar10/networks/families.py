"""Builds a job's network from its hyper-parameters."""

import dataclasses
import functools

import numpy as np

from cifar10.data.manifest import DatasetInfo
from cifar10.networks import own_network
from cifar10.networks.fastnet import FastNet
from cifar10.networks.resnet import FamilyResNet, WideResNet
from cifar10.networks.vgg import Vgg
from cifar10.options import families
from cifar10.options.families import Family, FastNetFamily
from cifar10.options.hparams import HParams
from model_base import FamilyNetwork, Layers, LayerSettings

NETWORKS: dict[type[Family], type[FamilyNetwork]] = {
  families.ResNetFamily: FamilyResNet,
  FastNetFamily: FastNet,
  families.WideResNetFamily: WideResNet,
  families.VggFamily: Vgg,
}


def layer_settings(
  hparams: HParams, is_training: bool, data_format: str = 'channels_last', compiles: bool = False
) -> LayerSettings:
  """Returns what all layers share; of `hparams` the `dtype` is one of TensorFlow's, not 'auto'."""
  decay, epsilon = hparams.batch_norm_decay, hparams.batch_norm_epsilon
  return LayerSettings(is_training, data_format, decay, epsilon, hparams.dtype, compiles)


def build(
  hparams: HParams, settings: LayerSettings, data: DatasetInfo, whitening: np.ndarray | None = None
) -> Layers:
  """Returns the network for a data set's classes, whose `forward_pass` makes its layers.

  `whitening` is a new fastnet's first kernel; None: a checkpoint has it. Raises InputError if the
  code of a user's own network fails.
  """
  family = hparams.family
  make = NETWORKS.get(type(family), own_network.build)
  if isinstance(family, FastNetFamily):
    make = functools.partial(FastNet, whitening=whitening)
  network = make(family, settings, data)
  network.freeze(hparams.freeze)
  return network


def build_proxy(
  family: Family, settings: LayerSettings, data: DatasetInfo, whitening: np.ndarray | None
) -> FastNet | None:
  """Returns the small network that picks the hard examples, if the options have one.

  It has two convolutions a group, and the main network's divisor and rates.
  """
  if not (isinstance(family, FastNetFamily) and family.proxy_widths):
    return None
  small = dataclasses.replace(family, widths=family.proxy_widths, convs_per_group=2)
  return FastNet(small, settings, data, whitening, divisor=family.widths[-1])
