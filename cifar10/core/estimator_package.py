"""Imports `tf.estimator` from its own package, for a TensorFlow without it.

TensorFlow 2.16 dropped it, but the package is still published, and TensorFlow still has what it
builds on: v1 sessions, hooks and savers. Three things that the package needs on import are restored
here. The package's `__init__` is not run: it would import the whole API, with canned estimators,
Keras and TPU parts, which need more that is gone.
"""

import importlib
import importlib.util
import sys
import types
from typing import Any

import tensorflow as tf

from cifar10.core.errors import InputError

_PACKAGE = 'tensorflow_estimator'
_TRAINING = 'tensorflow.python.distribute.estimator_training'
# The tested releases: others may import, and then fail in the middle of a training.
_TESTED = '2.21'


def restored() -> Any:
  """Returns the part of `tf.estimator` that the program uses; raises InputError if untested."""
  package = importlib.util.find_spec(_PACKAGE)
  if package is None or not tf.__version__.startswith(f'{_TESTED}.'):
    installed = f'TensorFlow {tf.__version__} with{"" if package else "out"} tensorflow-estimator'
    raise InputError(
      f'{installed} was not tested; install 2.15.1, or {_TESTED} with tensorflow-estimator 2.15.0, '
      'as requirements.txt has them'
    )
  _put_back()
  bare = types.ModuleType(_PACKAGE)
  bare.__spec__, bare.__path__ = package, list(package.submodule_search_locations or ())
  sys.modules[_PACKAGE] = bare
  names = ('estimator', 'run_config', 'model_fn', 'mode_keys')
  modules = [importlib.import_module(f'{_PACKAGE}.python.estimator.{name}') for name in names]
  estimator, run_config, model_fn, mode_keys = modules
  return types.SimpleNamespace(
    Estimator=estimator.EstimatorV2,
    RunConfig=run_config.RunConfig,
    EstimatorSpec=model_fn.EstimatorSpec,
    ModeKeys=mode_keys.ModeKeys,
  )


def _put_back() -> None:
  """Restores what TensorFlow had for tf.estimator alone."""
  from tensorflow.python.util import tf_export  # noqa: PLC0415

  # The name under which its symbols are exported, and the attributes that record it on them.
  tf_export.ESTIMATOR_API_NAME = 'estimator'
  for attributes, suffix in ((tf_export.API_ATTRS, ''), (tf_export.API_ATTRS_V1, '_v1')):
    attributes['estimator'] = tf_export._Attributes(
      f'_estimator_api_names{suffix}', f'_estimator_api_constants{suffix}'
    )
  # The module by which strategies trained between processes was removed for good. This one in its
  # place does what that did for a strategy within one process.
  coordinator: Any = types.ModuleType(_TRAINING)
  coordinator.should_run_distribute_coordinator = lambda config: False
  coordinator.init_run_config = _init_run_config
  sys.modules[_TRAINING] = coordinator
  distribute: Any = importlib.import_module('tensorflow.python.distribute')
  distribute.estimator_training = coordinator


def _init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
  config._init_distributed_setting_from_environment_var(tf_config)
  config._maybe_overwrite_session_config_for_distributed_training()
