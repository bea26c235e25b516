"""Converts an exported SavedModel for phones and microcontrollers (LiteRT, once TensorFlow Lite).

  PYTHONPATH=. python docs/to_litert.py job/export/1700000000 data

writes network.tflite in float32 and network_int8.tflite, whose weights and activations are 8-bit
integers, into the SavedModel's folder. The range of each activation comes from training images. The
last line on standard output has the accuracy on the test set and the size of both, and on how many
of these images they agree.
"""

import json
import os
import sys

import numpy as np

from cifar10.core import start_tensorflow

start_tensorflow.start()

import tensorflow as tf  # noqa: E402

from cifar10.data.input_pipeline import Cifar10DataSet  # noqa: E402

NUM_CALIBRATION_IMAGES = 200
BATCH = 100


def converter(saved_model):
  # The other signatures decode image files, which LiteRT cannot.
  return tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=['serving_default'])


def to_int8(saved_model, training_images):
  """The network with 8-bit weights and activations; images uint8 [n, 32, 32, 3] set the ranges."""
  quantizing = converter(saved_model)
  quantizing.optimizations = [tf.lite.Optimize.DEFAULT]
  quantizing.representative_dataset = lambda: (
    ('serving_default', {'images': image[np.newaxis]}) for image in training_images
  )
  return quantizing.convert()


def classify(network, images):
  """The classes of uint8 [n, 32, 32, 3]: int64 [n]."""
  run = tf.lite.Interpreter(model_content=network).get_signature_runner('serving_default')
  batches = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
  return np.concatenate([run(images=batch)['classes'] for batch in batches])


def main(saved_model, data_dir):
  images, labels = Cifar10DataSet(data_dir, 'eval').all_examples()
  training_images = Cifar10DataSet(data_dir, 'train').first_images(NUM_CALIBRATION_IMAGES)
  networks = {
    'network.tflite': converter(saved_model).convert(),
    'network_int8.tflite': to_int8(saved_model, training_images),
  }
  result = {}
  answers = {name: classify(network, images) for name, network in networks.items()}
  for name, network in networks.items():
    with open(os.path.join(saved_model, name), 'wb') as file:
      file.write(network)
    accuracy = float(np.mean(answers[name] == labels))
    result[name] = {'bytes': len(network), 'accuracy': round(accuracy, 4)}
  result['agreement'] = round(float(np.mean(np.equal(*answers.values()))), 4)
  print(json.dumps(result))


if __name__ == '__main__':
  main(*sys.argv[1:])
