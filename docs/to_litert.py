"""Converts an exported SavedModel for phones and microcontrollers: docs/exports.md, LiteRT.

PYTHONPATH=. python docs/to_litert.py job/export/1700000000 data
"""

import json
import sys

import numpy as np
import tensorflow as tf

from cifar10 import Cifar10DataSet

saved_model, data_dir = sys.argv[1:]
images, labels = Cifar10DataSet(data_dir, 'eval').all_examples()
training_images = Cifar10DataSet(data_dir, 'train').first_images(200)
result, answers = {}, []
for name in 'network.tflite', 'network_int8.tflite':
  # The other signatures decode image files, which LiteRT cannot.
  converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, ['serving_default'])
  if name == 'network_int8.tflite':  # Training images set the ranges of its activations.
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
      ('serving_default', {'images': image[np.newaxis]}) for image in training_images
    )
  network = converter.convert()
  tf.io.write_file(f'{saved_model}/{name}', network)
  run = tf.lite.Interpreter(model_content=network).get_signature_runner('serving_default')
  batches = np.split(images, range(100, len(images), 100))
  answers += [np.concatenate([run(images=batch)['classes'] for batch in batches])]
  accuracy = float(np.mean(answers[-1] == labels))
  result[name] = {'bytes': len(network), 'accuracy': round(accuracy, 4)}
print(json.dumps({**result, 'agreement': round(float(np.mean(np.equal(*answers))), 4)}))
