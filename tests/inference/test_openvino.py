"""OpenVINO, where it is installed, reads the program's exports."""

import numpy as np
import pytest
from random_checkpoint import IMAGES, save

from cifar10.data.info import CIFAR10
from cifar10.exporters import freeze_graph, onnx_file, saved_model
from cifar10.options.hparams import from_values

openvino = pytest.importorskip('openvino', reason='OpenVINO is not installed (docs/exports.md)')


@pytest.mark.parametrize(
  'values',
  [
    {'num_layers': 8},
    pytest.param({'network': 'vgg', 'vgg_layers': 11}, marks=pytest.mark.slow),
  ],
  ids=['resnet', 'vgg'],
)
def test_it_reads_the_folder_of_a_saved_model(values, tmp_path):
  hparams = from_values(values)
  checkpoint, (probabilities, _) = save(hparams)
  path = str(tmp_path / 'exported')
  saved_model.write(path, freeze_graph.freeze(hparams, CIFAR10, checkpoint), {})
  _check(path, probabilities)


def test_it_reads_an_onnx_file(tmp_path):
  hparams = from_values({'num_layers': 8})
  checkpoint, (probabilities, _) = save(hparams)
  path = str(tmp_path / 'network.onnx')
  onnx_file.write(path, freeze_graph.freeze(hparams, CIFAR10, checkpoint), {})
  _check(path, probabilities)


def _check(path, probabilities):
  network = openvino.Core().compile_model(path, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
  found = {name: value for each, value in network([IMAGES]).items() for name in each.names}
  np.testing.assert_allclose(found['probabilities'], probabilities, rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(found['classes'], probabilities.argmax(1))
