"""The import of TensorFlow, and what it says of checkpoints that do not fit."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import MisfitError


def test_what_the_import_made_is_not_searched_again():
  """conftest.py has imported TensorFlow so. Objects made later are looked through as ever."""
  assert gc.isenabled()
  assert gc.get_freeze_count() > 100_000


def test_a_users_saver_restores_as_ever(tmp_path):
  """By the names of TensorFlow's arguments, and what is no variable too."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    weight = tf.compat.v1.get_variable('weight', [2], initializer=tf.ones_initializer())
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    one, insert = tf.constant([1], tf.int64), table.insert([1], [3.0])
    saver = tf.compat.v1.train.Saver()
    session.run([weight.initializer, insert])
    path = saver.save(session, str(tmp_path / 'saved'))
    session.run([weight.assign([5, 5]), table.insert([1], [4.0])])
    saver.restore(sess=session, save_path=path)
    np.testing.assert_array_equal(session.run(weight), [1, 1])
    assert session.run(table.lookup(one)) == [3]


@pytest.mark.parametrize(
  ('lacks', 'says'),
  [
    ({'name': 'b'}, 'Key b not found in checkpoint'),
    ({'name': 'a', 'dtype': tf.int32}, 'tensor_name = a; expected dtype int32 does not equal'),
    ({'name': 'a', 'shape': [2]}, r'it has a of \[1\], not \[2\]'),
  ],
)
def test_what_a_checkpoint_lacks_is_named(tmp_path, lacks, says):
  def variable(**settings):
    return tf.compat.v1.get_variable(**{'shape': [1], 'dtype': tf.float32, **settings})

  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    saved = variable(name='a')
    session.run(saved.initializer)
    path = tf.compat.v1.train.Saver([saved]).save(session, str(tmp_path / 'model.ckpt'))
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    saver = tf.compat.v1.train.Saver([variable(**lacks)])
    with pytest.raises(MisfitError, match=rf'model\.ckpt does not fit the network \({says}'):
      saver.restore(session, path)
