"""What a test makes in a graph, and the values that it has there."""

import tensorflow as tf


def untrained(name, initial):
  """A variable of the network that no gradient moves."""
  keys = tf.compat.v1.GraphKeys
  kept = [keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES]
  return tf.compat.v1.get_variable(name, initializer=initial, trainable=False, collections=kept)


def run(tensors):
  """Their values, where all variables have their initial ones."""
  return after_steps([], tensors, 1)[0]


def after_steps(apply, tensors, steps):
  """The values after each of so many updates."""
  values = []
  with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(steps):
      session.run(apply)
      values.append(session.run(tensors))
  return values
