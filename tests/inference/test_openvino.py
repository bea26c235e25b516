"""OpenVINO, where it is installed, reads the program's exports."""

import numpy as np
import pytest
from random_checkpoint import IMAGES, save

from cifar10.data.info import CIFAR10
from cifar10.exporters import export, freeze_graph
from cifar10.options.hparams import from_values

openvino = pytest.importorskip('openvino', reason='OpenVINO is not installed (docs/exports.md)')


@pytest.mark.parametrize('form', ['saved_model', 'onnx'])
def test_it_answers_alike(form, tmp_path):
  hparams = from_values({'num_layers': 8})
  checkpoint, (probabilities, _) = save(hparams)
  path = str(tmp_path / 'exported') + export.FORMATS[form].suffix
  export.FORMATS[form].write(path, freeze_graph.freeze(hparams, CIFAR10, checkpoint), {})
  network = openvino.Core().compile_model(path, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
  found = {name: value for each, value in network([IMAGES]).items() for name in each.names}
  np.testing.assert_allclose(found['probabilities'], probabilities, rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(found['classes'], probabilities.argmax(1))
