"""An exported network, as servers and other programs meet it."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from outcome import refused, succeeded

from cifar10.job import metrics_log

pytestmark = pytest.mark.slow

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--eval-batch-size', 64]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job of four steps with an evaluation."""
  folder = str(tmp_path_factory.mktemp('jobs') / 'job')
  flags = [*SMALL, '--train-steps', 4, '--eval-every-steps', 4]
  succeeded(run_main('--data-dir', data_dir, '--job-dir', folder, *flags))
  return folder


@pytest.fixture(scope='module')
def exported(job, run_main):
  return succeeded(run_main('--job-dir', job, '--mode', 'export'))


@pytest.fixture
def files(tmp_path):
  """A grey PNG of 40x50 pixels, a JPEG of 32x32 and an RGBA PNG of 7x5."""
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, [50, 40, 4]).astype(np.uint8)
  contents = {
    'grey.png': tf.io.encode_png(pixels[..., :1]),
    'same.jpg': tf.io.encode_jpeg(pixels[:32, :32, :3]),
    'alpha.png': tf.io.encode_png(pixels[:5, :7]),
  }
  for name, content in contents.items():
    tf.io.write_file(str(tmp_path / name), content)
  return [tmp_path / name for name in contents]


def test_encoded_images_are_decoded_and_resized_as_predict_does(exported, job, files, run_here):
  said = run_here('--job-dir', job, '--mode', 'predict', '--images', *files)
  expected = [json.loads(line)['probabilities'] for line in said.stdout.splitlines()]
  served = tf.saved_model.load(exported['saved_model']).signatures['encoded']
  found = served(encoded=tf.constant([file.read_bytes() for file in files]))['probabilities']
  for theirs, ours in zip(expected, found.numpy(), strict=True):
    np.testing.assert_allclose(ours, list(theirs.values()), rtol=1e-4, atol=2e-6)


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


def test_it_says_what_it_was_made_from(exported, job, run_here):
  path = os.path.join(exported['saved_model'], 'assets.extra', 'made_from.json')
  with open(path, encoding='utf-8') as file:
    made_from = json.load(file)
  assert {**made_from, 'saved_model': exported['saved_model']} == exported
  assert (made_from['network'], made_from['global_step']) == ('ResNet-8', 4)
  assert (made_from['weights'], made_from['classes'][9]) == ('last', 'truck')
  evaluations = [each for each in metrics_log.read(job) if each['event'] == 'evaluate']
  expected = {each['subset']: each['accuracy'] for each in evaluations}
  assert made_from['accuracy'] == expected
  assert set(expected) == {'validation', 'eval'}
  again = succeeded(run_here('--job-dir', job, '--mode', 'export'))
  assert again['saved_model'] != exported['saved_model']
  assert again['sha256_of_variables'] == exported['sha256_of_variables']


def prediction_logs(path):
  """By the numbers in tensorflow_serving/apis: prediction_log, predict and model.proto."""
  kinds = descriptor_pb2.FieldDescriptorProto
  file = descriptor_pb2.FileDescriptorProto(name='logs.proto', package='logs', syntax='proto3')
  file.dependency.append('tensorflow/core/framework/tensor.proto')
  tensor = '.tensorflow.TensorProto'
  messages = {
    'ModelSpec': [('signature_name', 3, None)],
    'Input': [('key', 1, None), ('value', 2, tensor)],
    'PredictRequest': [('model_spec', 1, '.logs.ModelSpec'), ('inputs', 2, '.logs.Input')],
    'PredictLog': [('request', 1, '.logs.PredictRequest')],
    'PredictionLog': [('predict_log', 6, '.logs.PredictLog')],
  }
  for name, fields in messages.items():
    message = file.message_type.add(name=name)
    for field, number, kind in fields:
      label = kinds.LABEL_REPEATED if field == 'inputs' else kinds.LABEL_OPTIONAL
      made = message.field.add(name=field, number=number, label=label, type=kinds.TYPE_STRING)
      if kind:
        made.type, made.type_name = kinds.TYPE_MESSAGE, kind
  pool = descriptor_pool.Default()
  pool.Add(file)
  log = message_factory.GetMessageClass(pool.FindMessageTypeByName('logs.PredictionLog'))
  return [log.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]


def test_every_signature_has_a_request_that_warms_it_up(exported):
  folder = exported['saved_model']
  signatures = tf.saved_model.load(folder).signatures
  logs = prediction_logs(os.path.join(folder, 'assets.extra', 'tf_serving_warmup_requests'))
  warmed = set()
  for request in (log.predict_log.request for log in logs):
    [given] = request.inputs
    name = request.model_spec.signature_name
    answer = signatures[name](**{given.key: tf.constant(tf.make_ndarray(given.value))})
    assert {value.shape[0] for value in answer.values()} == {1}
    warmed.add(name)
  assert warmed == set(signatures) == {'serving_default', 'features', 'encoded'}


def test_a_batch_size_of_its_own(job, run_here):
  """With it every shape is fixed, so that each image is seen in every view."""
  export = ['--job-dir', job, '--mode', 'export', '--tta', 'mirror', '--tta-below', 0.5]
  said = refused(run_here(*export, '--export-batch', 2_000_000_000))
  assert '--export-batch 2000000000: its images alone take' in said
  path = succeeded(run_here(*export, '--export-batch', 3))
  assert path['tta_below'] == 1
  for signature in tf.saved_model.load(path['saved_model']).signatures.values():
    _, given = signature.structured_input_signature
    assert [spec.shape[0] for spec in given.values()] == [3]
  assert succeeded(run_here(*export))['tta_below'] == 0.5
