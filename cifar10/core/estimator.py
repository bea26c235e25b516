"""Provides `tf.estimator` for every TensorFlow; no other module checks the version."""

from typing import Any

import tensorflow as tf

from cifar10.core import lazy_tf

lazy_tf.take_names_literally()

if hasattr(tf, 'estimator'):
  tf_estimator: Any = tf.estimator
else:
  from cifar10.core import estimator_package

  tf_estimator = estimator_package.restored()
