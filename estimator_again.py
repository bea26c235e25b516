"""`tf.estimator` for TensorFlow 2.16 and later, which dropped it; on 2.15 it is its own.

  from estimator_again import estimator             # in place of tf.estimator
  import estimator_again; estimator_again.install() # before TensorFlow: tf.estimator is there again
  python -m estimator_again program.py ARGS         # runs a program as it stands

The package tensorflow-estimator is still published, and TensorFlow still has the sessions, hooks
and savers that it builds on. What else it looks for is put back here. See docs/estimator.md.
"""

import functools
import os
import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

_PACKAGE = 'tensorflow_estimator'
_TESTED = '2.21.'  # Another release may import, and then fail in the middle of a training.


class NotTestedError(ImportError):
  """This TensorFlow has no Estimator, and the package was not tried with it."""

  code = 2  # Of the process that it ends.


def __getattr__(name: str) -> Any:
  """Loads `estimator` and `estimator_v1` when they are first used."""
  if name not in ('estimator', 'estimator_v1'):
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  tf = import_module('tensorflow')
  if hasattr(tf, 'estimator'):
    return (tf if name == 'estimator' else tf.compat.v1).estimator
  _put_back(tf.__version__)
  return import_module(f'{_PACKAGE}._api.v{1 if name == "estimator_v1" else 2}.estimator')


def install() -> None:
  """Gives TensorFlow its `estimator` back, and Keras 2 if tf-keras is installed.

  Keras 2 only where TensorFlow is not imported yet.
  """
  if 'tensorflow' not in sys.modules and find_spec('tf_keras'):
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  tf = import_module('tensorflow')
  sys.modules['tensorflow.contrib'] = _Gone('tf.contrib')
  if hasattr(tf, 'estimator'):
    return
  v1, v2 = __getattr__('estimator_v1'), __getattr__('estimator')
  for outer in (tf, tf.compat.v1, tf.compat.v2):  # Each has both, by attributes.
    outer.compat.v1.estimator, outer.compat.v2.estimator = v1, v2
  # What Python imports by these names are other modules than the two above.
  for name, api in {'': v2, '.compat.v1': v1, '.compat.v2': v2}.items():
    sys.modules[f'tensorflow{name}.estimator'] = api
    setattr(import_module(f'tensorflow{name}'), 'estimator', api)  # noqa: B010
  for name in [*sys.modules]:  # Programs have also imported its modules by these names.
    if name.startswith(f'{_PACKAGE}.python.estimator'):
      sys.modules[name.replace(_PACKAGE, 'tensorflow', 1)] = sys.modules[name]


@functools.cache
def _put_back(version: str) -> None:
  """Restores what the package looks for in TensorFlow; raises NotTestedError."""
  package = find_spec(_PACKAGE)
  if package is None or not version.startswith(_TESTED):
    given = f'TensorFlow {version} with{"" if package else "out"} tensorflow-estimator'
    remedy = f'install TensorFlow 2.15.1, or {_TESTED}0 with tensorflow-estimator 2.15.0'
    raise NotTestedError(f'{given} was not tested; {remedy}')
  tf_export: Any = import_module('tensorflow.python.util.tf_export')
  tf_export.ESTIMATOR_API_NAME = 'estimator'  # Under which its symbols are exported.
  for attributes, suffix in ((tf_export.API_ATTRS, ''), (tf_export.API_ATTRS_V1, '_v1')):
    names = (f'_estimator_api_{what}{suffix}' for what in ('names', 'constants'))
    attributes['estimator'] = tf_export._Attributes(*names)
  distribute: Any = import_module('tensorflow.python.distribute')
  distribute.estimator_training = SimpleNamespace(  # What trained between processes is gone.
    init_run_config=_init_run_config, should_run_distribute_coordinator=lambda config: False
  )
  sys.modules[f'{_PACKAGE}._api.v1.estimator.tpu'] = _Gone('tf.estimator.tpu')


def _init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
  """Completes a RunConfig that has a strategy of tf.distribute."""
  if config.train_distribute and 'master' not in (tf_config.get('cluster') or ['master']):
    raise ValueError('train_distribute in a cluster needs TensorFlow 2.15, the last that has it')
  config._init_distributed_setting_from_environment_var(tf_config)
  config._maybe_overwrite_session_config_for_distributed_training()


class _Gone(ModuleType):
  """Stands for a module that is gone: one line says so where it is used."""

  def __getattr__(self, name: str) -> NoReturn:
    # What imports a part asks for `__path__`, and would say less of an AttributeError.
    said = f'{self.__name__} is gone; docs/estimator.md has what takes its place'
    raise ImportError(said) if name == '__path__' else AttributeError(said)


if __name__ == '__main__':
  del sys.argv[0]
  if not sys.argv:
    sys.exit('usage: python -m estimator_again program.py ARGS')
  sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
  install()
  runpy.run_path(sys.argv[0], run_name='__main__')
