"""An exported network as an ONNX file, in onnxruntime."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
from outcome import succeeded
from random_checkpoint import IMAGES, save

from cifar10.core.errors import InputError
from cifar10.data.info import CIFAR10
from cifar10.exporters import freeze_graph, onnx_file
from cifar10.options.hparams import from_values


@pytest.mark.parametrize(
  'values',
  [
    {'num_layers': 8},
    {'num_layers': 8, 'resnet_version': 2},
    pytest.param({'network': 'vgg', 'vgg_layers': 11}, marks=pytest.mark.long),
    pytest.param(
      {'network': 'fastnet', 'widths': (24, 24, 32), 'tta': 'mirror+shift'}, marks=pytest.mark.slow
    ),
    {'network': 'fastnet', 'widths': (24, 24, 32), 'tta': 'mirror+shift', 'tta_below': 0.62},
  ],
  ids=['resnet', 'resnet v2', 'vgg', 'fastnet with views', 'fastnet with views of some'],
)
def test_onnxruntime_answers_alike(values, tmp_path):
  hparams = from_values(values)
  checkpoint, (probabilities, features) = save(hparams)
  made = freeze_graph.freeze(hparams, CIFAR10, checkpoint)
  path = str(tmp_path / 'network.onnx')
  onnx_file.write(path, made, {'classes': ['a', 'b']})
  session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
  assert [given.name for given in session.get_inputs()] == ['images']
  found = dict(
    zip([output.name for output in session.get_outputs()], session.run(None, {'images': IMAGES}))
  )
  np.testing.assert_allclose(found['probabilities'], probabilities, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(found['features'], features, rtol=1e-3, atol=1e-4)
  np.testing.assert_array_equal(found['classes'], probabilities.argmax(1))
  metadata = session.get_modelmeta().custom_metadata_map
  assert json.loads(metadata['made_from']) == {'classes': ['a', 'b']}


@pytest.mark.long
def test_a_job_in_bfloat16_is_exported_in_float32(run_main, data_dir, tmp_path):
  flags = ['--num-layers', 8, '--train-batch-size', 16, '--train-steps', 1, '--dtype', 'bfloat16']
  job = ['--job-dir', tmp_path]
  assert run_main('--data-dir', data_dir, *job, *flags, '--mode', 'train').returncode == 0
  result = run_main(*job, '--mode', 'export', '--format', 'onnx')
  exported = succeeded(result)
  assert exported['dtype'] == 'float32'
  # Processors without AVX-512 BF16 have a line more, on the job's dtype.
  lines = [line for line in result.stderr.splitlines() if 'bfloat16 is slow here' not in line]
  assert len(lines) == 1, result.stderr


def test_without_tf2onnx_one_line_says_so(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tf2onnx', None)  # An import of it fails.
  with pytest.raises(InputError, match=r'needs tf2onnx.*; run: pip install .tf2onnx>='):
    onnx_file.check(from_values({}))
