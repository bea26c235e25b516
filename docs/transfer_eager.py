"""Transfer learning: a new head on the trunk of an exported network, in TensorFlow 2 and Keras.

  python cifar10_main.py --job-dir job-cifar100 --mode export --format keras
  python docs/transfer_eager.py --model job-cifar100/export/1795362711.keras --data-dir data

This file imports nothing of the project: copy from it what you need.
"""

import argparse
import glob
import json
import os

import tensorflow as tf

keras = tf.keras


def read(data_dir, split, batch_size, *, shuffle=False):
  """Returns batches of images uint8 [n, 32, 32, 3] and labels int64 [n] of DIR/SPLIT.tfrecords."""
  description = {
    'image': tf.io.FixedLenFeature([], tf.string),  # 3,072 bytes: planes R, G, B, rows of 32.
    'label': tf.io.FixedLenFeature([], tf.int64),
  }

  def parse(serialized):
    record = tf.io.parse_example(serialized, description)
    planes = tf.reshape(tf.io.decode_raw(record['image'], tf.uint8), [-1, 3, 32, 32])
    return tf.transpose(planes, [0, 2, 3, 1]), record['label']

  records = tf.data.TFRecordDataset(os.path.join(data_dir, f'{split}.tfrecords'))
  if shuffle:
    records = records.shuffle(50_000)
  return records.batch(batch_size).map(parse).prefetch(tf.data.AUTOTUNE)


def split_network(path):
  """Returns the network's trunk, images to features, and its head, features to classes."""
  network = keras.models.load_model(path)
  features = network.get_layer('features').output
  return keras.Model(network.input, features), keras.Model(features, network.output)


def train_head(trunk, head, data, epochs):
  """Trains the head with `fit` on a frozen trunk; returns the whole network."""
  trunk.trainable = False
  images = keras.Input([32, 32, 3], dtype='uint8')
  # training=False: batch norm uses its moving averages. With the batch's statistics, which update
  # the averages, a trunk would change though none of its weights is trained.
  model = keras.Model(images, head(trunk(images, training=False)))
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(keras.optimizers.Adam(0.01), loss, metrics=['accuracy'])
  model.fit(data, epochs=epochs, verbose=0)
  return model


def train_all(trunk, head, data, epochs):
  """Trains trunk and head in a custom loop, with batch norm in training mode."""
  trunk.trainable = True
  variables = trunk.trainable_variables + head.trainable_variables
  optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
  optimizer.build(variables)
  loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

  @tf.function
  def step(images, labels):
    with tf.GradientTape() as tape:
      loss = loss_of(labels, head(trunk(images, training=True), training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss

  for _ in range(epochs):
    for images, labels in data:
      step(images, labels)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--model', required=True, help='exported .keras file, or a folder of them')
  parser.add_argument('--data-dir', required=True, help='record files of the new classes')
  parser.add_argument('--out', default='transfer', help='folder to write to')
  parser.add_argument('--classes', type=int, default=10)
  parser.add_argument('--batch-size', type=int, default=128)
  parser.add_argument('--epochs', type=int, default=5, help='epochs of each of the two trainings')
  flags = parser.parse_args()
  path = flags.model
  if os.path.isdir(path):
    path = max(glob.glob(os.path.join(path, '*.keras')))
  training = read(flags.data_dir, 'train', flags.batch_size, shuffle=True)
  test = read(flags.data_dir, 'eval', flags.batch_size)

  trunk, old_head = split_network(path)
  new_head = keras.Sequential([keras.layers.Dense(flags.classes)])  # Returns logits.
  model = train_head(trunk, new_head, training, flags.epochs)
  results = {'frozen_trunk': model.evaluate(test, verbose=0)[1]}

  # One trunk, two heads: the images pass through the trunk once. The trunk is also saved alone, for
  # other heads.
  images = keras.Input([32, 32, 3], dtype='uint8')
  features = trunk(images, training=False)
  two_heads = keras.Model(images, {'old': old_head(features), 'new': new_head(features)})
  os.makedirs(flags.out, exist_ok=True)
  two_heads.save(os.path.join(flags.out, 'two-heads.keras'))
  trunk.save(os.path.join(flags.out, 'trunk.keras'))

  # The trunk is trained with the new head from here on: the old head does not fit it any more.
  train_all(trunk, new_head, training, flags.epochs)
  results['whole_network'] = model.evaluate(test, verbose=0)[1]
  model.save(os.path.join(flags.out, 'network.keras'))
  print(json.dumps({'model': path, 'accuracy': results, 'out': flags.out}))


if __name__ == '__main__':
  main()
