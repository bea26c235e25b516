"""Builds the network that a family's options describe."""

from __future__ import annotations

import dataclasses

import model_base
from cifar10.data.manifest import DatasetInfo
from cifar10.networks import fastnet, own_network
from cifar10.networks.fastnet import FastNet, Prepared
from cifar10.networks.resnet import ResNetCifar10
from cifar10.networks.vgg import Vgg
from cifar10.networks.wrn import WideResNet
from cifar10.options.families import (
  Family,
  FastNetFamily,
  ResNetFamily,
  VggFamily,
  WideResNetFamily,
)


def build(
  family: Family,
  settings: model_base.LayerSettings,
  data: DatasetInfo,
  prepared: Prepared | None = None,
) -> model_base.Layers:
  """Returns the network for a data set's classes, whose `forward_pass` makes its layers.

  `prepared` is what `prepare` returned, in training; else None (a checkpoint has the values).

  Raises:
    InputError: the code of a user's own network fails.
  """
  match family:
    case ResNetFamily():
      return ResNetCifar10.of(family, settings, data)
    case FastNetFamily():
      return FastNet(family, settings, data, prepared)
    case WideResNetFamily():
      return WideResNet(family, settings, data)
    case VggFamily():
      return Vgg(family, settings, data)
  return own_network.build(family, settings, data)


def build_proxy(
  family: Family,
  settings: model_base.LayerSettings,
  data: DatasetInfo,
  prepared: Prepared | None,
) -> FastNet | None:
  """Returns the small network that picks the hard examples, if the options have one.

  It has two convolutions a group, and the main network's divisor and rates.
  """
  if not (isinstance(family, FastNetFamily) and family.proxy_widths):
    return None
  small = dataclasses.replace(family, widths=family.proxy_widths, convs_per_group=2)
  return FastNet(small, settings, data, prepared, divisor=family.widths[-1])


def prepare(family: Family, start: fastnet.Start) -> Prepared | None:
  """Returns what `build` must know of data and processor before a training begins."""
  return fastnet.prepare(start) if isinstance(family, FastNetFamily) else None
