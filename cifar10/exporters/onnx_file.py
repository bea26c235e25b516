"""Writes a network as an ONNX file, for runtimes other than TensorFlow. Needs tf2onnx."""

import logging
from collections.abc import Mapping
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.exporters.freeze_graph import Format, Frozen
from cifar10.options.hparams import HParams
from cifar10.training.inference import CLASSES, FEATURES, IMAGES, PROBABILITIES

_OPSET = 17  # Of 2022; runtimes of the last years support it.
_INSTALLED_BY = (  # In any folder.
  "pip install 'tf2onnx>=1.16,<2' 'onnx<1.18; python_version < \"3.12\"' 'onnxruntime>=1.17,<2'"
)


def check(hparams: HParams) -> None:
  """Raises InputError if tf2onnx cannot be imported."""
  del hparams
  try:
    import tf2onnx  # noqa: F401, PLC0415 - an extra
  except ImportError as error:
    raise InputError(
      f'--format onnx needs tf2onnx, which cannot be imported ({error}); run: {_INSTALLED_BY}'
    ) from None


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes a file from `images` uint8 [n, 32, 32, 3] to classes, probabilities, features.

  `network` is in float32, and `made_from`, what it was made from, becomes metadata.
  """
  import onnx  # noqa: PLC0415
  from tf2onnx import convert  # noqa: PLC0415

  logging.getLogger('tf2onnx').setLevel(logging.ERROR)
  # 'images:0' is TensorFlow's name of a tensor, not an ONNX one.
  names = {f'{name}:0': name for name in (IMAGES, CLASSES, PROBABILITIES, FEATURES)}
  images, *outputs = names
  try:
    model, _ = convert.from_graph_def(
      network.graph,
      input_names=[images],
      output_names=outputs,
      opset=_OPSET,
      tensors_to_rename=names,
    )
    onnx.helper.set_model_props(model, {'made_from': files.json_text(made_from)})
    onnx.checker.check_model(model)
  except Exception as error:  # An operation that tf2onnx does not know, in a user's own network.
    said = str(error).partition('\n')[0]
    raise InputError(
      f'--format onnx cannot hold this network ({type(error).__name__}: {said}); use --format '
      'saved_model'
    ) from None
  onnx.save(model, path)


# onnxruntime has no bfloat16 convolutions; the variables are always float32.
FORMAT = Format(write, check, suffix='.onnx', dtype='float32')
