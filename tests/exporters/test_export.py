"""How an export takes its place in the job dir, the accuracy that it names, and what reads it."""

import json
import os
import shutil
import signal
import sys

import checkout
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from outcome import succeeded
from random_checkpoint import IMAGES, save

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data.manifest import CIFAR10
from cifar10.exporters import export, freeze_graph
from cifar10.job import metrics_log
from cifar10.options.hparams import from_values

PLAIN = {'subset': 'eval', 'accuracy': 0.94}
VIEWS = {**PLAIN, 'accuracy_without_tta': 0.93, 'tta': 'mirror+shift', 'tta_below': 0.7}
VIEWS_OF_SOME = {'network': 'fastnet', 'widths': (24, 24, 32), 'tta': 'mirror+shift'}
VIEWS_OF_SOME |= {'tta_below': 0.62}


def test_behind_a_url_what_makes_it_a_saved_model_comes_last(tmp_path, monkeypatch):
  copied = []
  copy = files.copy
  monkeypatch.setattr(files, 'copy', lambda path, new: (copied.append(new), copy(path, new)))
  url = f'ram://{tmp_path}'
  for name in ('written/saved_model.pb', 'written/variables/index', 'file'):
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_text(name)
  folder = export._moved(str(tmp_path / 'written'), url, '')
  file = export._moved(str(tmp_path / 'file'), url, '.onnx')
  assert copied == [f'{folder}/variables/index', f'{folder}/saved_model.pb', file]
  assert files.read(f'{folder}/variables/index') == b'written/variables/index'
  assert files.read(file) == b'file'


def test_a_later_export_has_the_highest_number_whatever_the_clock_says(tmp_path, monkeypatch):
  monkeypatch.setattr(export.time, 'time', lambda: 1000.5)
  for name in ('2000', '1500.onnx', 'temp-3000', 'notes'):
    (tmp_path / name).mkdir()
  for number in (2001, 2002):
    (tmp_path / 'written').write_bytes(b'')
    path = export._moved(str(tmp_path / 'written'), str(tmp_path), '')
    assert path == str(tmp_path / str(number))


@pytest.mark.parametrize(
  ('measured', 'flags', 'known'),
  [
    (VIEWS, ['--tta', 'mirror+shift', '--tta-below', 0.7], {'eval': 0.94}),
    (VIEWS, ['--tta', 'none'], {'eval': 0.93}),
    (VIEWS, ['--tta', 'mirror', '--tta-below', 0.7], {}),
    (PLAIN, ['--tta', 'none'], {'eval': 0.94}),
    ({**PLAIN, 'weights': 'ema'}, ['--tta', 'none'], {}),
  ],
)
def test_the_accuracy_is_of_the_same_weights_and_views(measured, flags, known, old_job, run_here):
  """Of the step at which the checkpoint was saved, 8, and no other."""
  for step, more in ((4, {'accuracy': 0.5}), (8, {}), (16, {'accuracy': 0.5})):
    metrics_log.append(str(old_job), 'evaluate', step, 'chief 0', **{**measured, **more})
  made = succeeded(run_here('--job-dir', old_job, '--mode', 'export', *flags))
  assert (made['global_step'], made['accuracy']) == (8, known)


def test_sigterm_leaves_no_half_export(old_job, run_here, monkeypatch):
  def end(*_):
    raise KeyboardInterrupt(signal.SIGTERM)  # As `cli.run_process` lets the signal do.

  monkeypatch.setattr(export, '_moved', end)
  result = run_here('--job-dir', old_job, '--mode', 'export')
  assert (result.returncode, result.stdout) == (143, '')
  assert result.stderr.splitlines()[-1] == 'ended by SIGTERM'
  assert not [name for name in os.listdir(old_job) if name.startswith(('temp', 'export'))]


def written(form, values, tmp_path):
  """-> the path of an export, and what its network says of IMAGES."""
  hparams = from_values(values)
  checkpoint, answers = save(hparams)
  path = str(tmp_path / 'exported') + ('.onnx' if form == 'onnx' else '')
  export._WRITERS[form](path, freeze_graph.freeze(hparams, CIFAR10, checkpoint), {'classes': ['a']})
  return path, *answers[:2]


@pytest.mark.parametrize('values', [{'num_layers': 8}, VIEWS_OF_SOME], ids=['resnet', 'fastnet'])
def test_onnxruntime_answers_alike(values, tmp_path):
  path, probabilities, features = written('onnx', values, tmp_path)
  session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
  assert [given.name for given in session.get_inputs()] == ['images']
  names = [output.name for output in session.get_outputs()]
  found = dict(zip(names, session.run(None, {'images': IMAGES})))
  np.testing.assert_allclose(found['probabilities'], probabilities, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(found['features'], features, rtol=1e-3, atol=1e-4)
  np.testing.assert_array_equal(found['classes'], probabilities.argmax(1))
  assert json.loads(session.get_modelmeta().custom_metadata_map['made_from']) == {'classes': ['a']}


def test_without_tf2onnx_one_line_says_so(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tf2onnx', None)  # An import of it fails.
  with pytest.raises(InputError, match=r'needs tf2onnx.*; run: pip install .tf2onnx>='):
    export.write_onnx('path', None, {})


@pytest.mark.parametrize('form', ['saved_model', 'onnx'])
def test_openvino_answers_alike(form, tmp_path):
  openvino = pytest.importorskip('openvino', reason='OpenVINO is not installed (docs/exports.md)')
  path, probabilities, _ = written(form, {'num_layers': 8}, tmp_path)
  network = openvino.Core().compile_model(path, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
  found = {name: value for each, value in network([IMAGES]).items() for name in each.names}
  np.testing.assert_allclose(found['probabilities'], probabilities, rtol=1e-4, atol=1e-6)


# A SavedModel, as servers meet it.


ACCURACIES = {'validation': 0.5, 'eval': 0.25}


@pytest.fixture(scope='module')
def job(tmp_path_factory):
  """A ResNet-8's job of eight steps, with two evaluations."""
  folder = tmp_path_factory.mktemp('jobs') / 'job'
  job = str(shutil.copytree(f'{checkout.OLD_JOBS}/resnet8', folder))
  for subset, accuracy in ACCURACIES.items():
    metrics_log.append(job, 'evaluate', 8, 'chief 0', subset=subset, accuracy=accuracy)
  return job


@pytest.fixture(scope='module')
def exported(job, run_shared):
  return succeeded(run_shared('--job-dir', job, '--mode', 'export'))


@pytest.mark.slow
def test_encoded_images_are_decoded_and_resized_as_predict_does(exported, job, run_here, tmp_path):
  """A grey PNG of 40x50 pixels, a JPEG of 32x32 and an RGBA PNG of 7x5."""
  pixels = np.random.default_rng(0).integers(0, 256, [50, 40, 4]).astype(np.uint8)
  contents = {
    'grey.png': tf.io.encode_png(pixels[..., :1]),
    'same.jpg': tf.io.encode_jpeg(pixels[:32, :32, :3]),
    'alpha.png': tf.io.encode_png(pixels[:5, :7]),
  }
  for name, content in contents.items():
    tf.io.write_file(str(tmp_path / name), content)
  paths = [tmp_path / name for name in contents]
  said = run_here('--job-dir', job, '--mode', 'predict', '--images', *paths)
  expected = [json.loads(line)['probabilities'] for line in said.stdout.splitlines()]
  served = tf.saved_model.load(exported['saved_model']).signatures['encoded']
  found = served(encoded=tf.stack([*contents.values()]))['probabilities']
  for theirs, ours in zip(expected, found.numpy(), strict=True):
    np.testing.assert_allclose(ours, list(theirs.values()), rtol=1e-4, atol=2e-6)


@pytest.mark.slow
def test_features_make_the_probabilities(exported):
  """softmax(features kernel + bias), by the checkpoint's head."""
  signatures = tf.saved_model.load(exported['saved_model']).signatures
  images = tf.constant(np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8))
  features = signatures['features'](images=images)['features']
  head = tf.train.load_checkpoint(exported['checkpoint'])
  logits = features @ head.get_tensor('resnet/fully_connected/kernel')
  logits += head.get_tensor('resnet/fully_connected/bias')
  expected = signatures['serving_default'](images=images)
  np.testing.assert_allclose(tf.nn.softmax(logits), expected['probabilities'], rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(tf.argmax(logits, 1), expected['classes'])


@pytest.mark.slow
def test_it_says_what_it_was_made_from(exported, job, run_here):
  made_from = files.read_object(f'{exported["saved_model"]}/assets.extra/made_from.json')
  assert {**made_from, 'saved_model': exported['saved_model']} == exported
  assert (made_from['network'], made_from['global_step']) == ('ResNet-8', 8)
  assert (made_from['weights'], made_from['classes'][9]) == ('last', 'truck')
  assert made_from['accuracy'] == ACCURACIES
  again = succeeded(run_here('--job-dir', job, '--mode', 'export'))
  assert again['saved_model'] != exported['saved_model']
  assert again['sha256_of_variables'] == exported['sha256_of_variables']
