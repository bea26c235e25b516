"""Starts the PyTorch twins and the other loaders in their own environment, on arrays in files."""

import os
from collections.abc import Sequence
from typing import Any

import commands
import numpy as np

from cifar10.data import dataset
from cifar10.platform import room

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def export_arrays(data_dir: str, folder: str) -> None:
  """Writes train_images.npy (train and validation), test_images.npy and their labels."""
  for subset, name in ((dataset.TRAIN_AND_VALIDATION, 'train'), ('eval', 'test')):
    batches = list(dataset.Cifar10DataSet(data_dir, subset).one_pass(10_000))
    for kind, index in (('images', 0), ('labels', 1)):
      whole = np.concatenate([batch[index].numpy() for batch in batches])
      np.save(os.path.join(folder, f'{name}_{kind}.npy'), whole)


def run_torch(python: str, twin: str, folder: str, settings: Sequence[Any]) -> dict[str, Any]:
  """What torch_resnet.py or torch_fastnet.py prints, with these flags, on the folder's arrays."""
  threads = ['--threads', room.cores()]  # As many as the program has.
  return _run(python, f'torch_{twin}.py', folder, [*threads, *settings])


def run_loader(python: str, folder: str, settings: Sequence[Any]) -> dict[str, Any]:
  """The same of loader_peer.py."""
  return _run(python, 'loader_peer.py', folder, settings)


def _run(python: str, script: str, folder: str, settings: Sequence[Any]) -> dict[str, Any]:
  images = os.path.join(folder, 'train_images.npy')
  return commands.last_line([python, os.path.join(_FOLDER, script), '--images', images, *settings])
