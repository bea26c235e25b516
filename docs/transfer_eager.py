"""Transfer learning in Keras: a new head on the trunk of an exported network (docs/exports.md).

Imports nothing of the project: copy from it what you need.
"""

import glob
import json
import sys

import tensorflow as tf
from tensorflow import keras

exports, data_dir, out = sys.argv[1:]


def read(split):
  """Shuffled batches of images uint8 [n, 32, 32, 3] and labels int64 [n]."""
  strings, number = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.int64)

  def parse(serialized):
    record = tf.io.parse_example(serialized, {'image': strings, 'label': number})
    planes = tf.reshape(tf.io.decode_raw(record['image'], tf.uint8), [-1, 3, 32, 32])
    return tf.transpose(planes, [0, 2, 3, 1]), record['label']

  records = tf.data.TFRecordDataset(f'{data_dir}/{split}.tfrecords')
  return records.shuffle(50_000).batch(64).map(parse).prefetch(tf.data.AUTOTUNE)


def train(model, optimizer):
  """Trains the network -> its accuracy on the test set."""
  model.compile(optimizer, 'sparse_categorical_crossentropy', metrics=['accuracy'])
  model.fit(read('train'), epochs=5, verbose=0)
  return model.evaluate(read('eval'), verbose=0)[1]


network = keras.models.load_model(max(glob.glob(f'{exports}/*.keras')))  # The newest.
features = network.get_layer('features').output
trunk, old_head = keras.Model(network.input, features), keras.Model(features, network.output)
new_head = keras.Sequential([keras.layers.Dense(10, 'softmax')])
images = keras.Input([32, 32, 3], dtype='uint8')
# training=False: batch norm uses its moving averages. With the batch's statistics, which update
# the averages, a trunk would change though none of its weights is trained.
passed = trunk(images, training=False)
trunk.trainable = False
frozen = train(keras.Model(images, new_head(passed)), keras.optimizers.Adam(0.01))
tf.io.gfile.makedirs(out)
two_heads = {'old': old_head(passed), 'new': new_head(passed)}  # Of one pass through the trunk.
keras.Model(images, two_heads).save(f'{out}/two-heads.keras')
trunk.save(f'{out}/trunk.keras')

trunk.trainable = True  # From here on the old head does not fit it any more.
whole = keras.Model(images, new_head(trunk(images)))
thawed = train(whole, keras.optimizers.SGD(0.01, momentum=0.9))
whole.save(f'{out}/network.keras')
print(json.dumps({'accuracy': {'frozen_trunk': frozen, 'whole_network': thawed}}))
