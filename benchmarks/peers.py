"""Starts the PyTorch twins in their own environment, on arrays in files."""

import os
from collections.abc import Sequence
from typing import Any

import commands
import numpy as np

from cifar10.core import limits
from cifar10.data import input_pipeline

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def export_arrays(data_dir: str, folder: str) -> None:
  """Writes train_images.npy (train and validation), test_images.npy and their labels."""
  for split, name in ((input_pipeline.TRAIN_AND_VALIDATION, 'train'), ('eval', 'test')):
    batches = list(input_pipeline.Cifar10DataSet(data_dir, split).one_pass(10_000))
    for kind, index in (('images', 0), ('labels', 1)):
      whole = np.concatenate([batch[index].numpy() for batch in batches])
      np.save(os.path.join(folder, f'{name}_{kind}.npy'), whole)


def torch_command(python: str, twin: str, folder: str) -> list[Any]:
  """Of torch_resnet.py or torch_fastnet.py, on the folder's arrays, with the program's threads."""
  script = os.path.join(_FOLDER, f'torch_{twin}.py')
  images = os.path.join(folder, 'train_images.npy')
  return [python, script, '--images', images, '--threads', limits.cores()]


def run_torch(python: str, twin: str, folder: str, settings: Sequence[Any]) -> dict[str, Any]:
  """What that command prints last, with these flags."""
  return commands.last_line([*torch_command(python, twin, folder), *settings])


def torch_version(python: str) -> str:
  """Of the PyTorch in that environment."""
  return commands.last_line([python, '-c', 'import torch; print(f\'"{torch.__version__}"\')'])
