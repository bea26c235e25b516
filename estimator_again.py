"""`tf.estimator` for TensorFlow 2.16 and later, which dropped it; on 2.15 it is its own.

  from estimator_again import estimator             # in place of tf.estimator
  import estimator_again; estimator_again.install() # before TensorFlow: tf.estimator is there again
  python -m estimator_again program.py ARGS         # runs a program as it stands

The package tensorflow-estimator is still published, and TensorFlow still has what it builds on: v1
sessions, hooks and savers. What else it looks for on import is put back here. Programs that use
Keras or `tf.compat.v1.layers` also need tf-keras. docs/estimator.md has more.
"""

import functools
import os
import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # Both are loaded when they are first asked for, and TensorFlow with them.
  from tensorflow import estimator
  from tensorflow.compat.v1 import estimator as estimator_v1

__all__ = ['NotTestedError', 'estimator', 'estimator_v1', 'install']

_PACKAGE = 'tensorflow_estimator'
_COORDINATOR = 'tensorflow.python.distribute.estimator_training'
_TESTED = '2.21.'  # Another release may import, and then fail in the middle of a training.


class NotTestedError(ImportError):
  """This TensorFlow has no Estimator, and the package was not tried with it."""


def __getattr__(name: str) -> Any:
  """Loads `estimator` and `estimator_v1` when they are first used."""
  if name not in ('estimator', 'estimator_v1'):
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  tf = import_module('tensorflow')
  if hasattr(tf, 'estimator'):
    return (tf if name == 'estimator' else tf.compat.v1).estimator
  _put_back(tf.__version__)
  return import_module(f'{_PACKAGE}._api.{"v2" if name == "estimator" else "v1"}.estimator')


def install() -> None:
  """Gives TensorFlow its `estimator` back, under each name by which a program may import it.

  Called before TensorFlow is imported it also brings Keras 2, where tf-keras is installed.
  """
  if 'tensorflow' not in sys.modules and find_spec('tf_keras'):
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  tf = import_module('tensorflow')
  sys.modules['tensorflow.contrib'] = _Gone('tf.contrib', 'left TensorFlow with 2.0')
  if hasattr(tf, 'estimator'):
    return
  v1, v2 = __getattr__('estimator_v1'), __getattr__('estimator')
  tf.compat.v1.estimator, tf.compat.v2.estimator = v1, v2
  # What Python imports by these names are other modules than the two above.
  for name, api in {'': v2, '.compat.v1': v1, '.compat.v2': v2}.items():
    sys.modules[f'tensorflow{name}.estimator'] = api
    setattr(import_module(f'tensorflow{name}'), 'estimator', api)  # noqa: B010


@functools.cache
def _put_back(version: str) -> None:
  """Restores what the package looks for in TensorFlow; raises NotTestedError."""
  package = find_spec(_PACKAGE)
  if package is None or not version.startswith(_TESTED):
    raise NotTestedError(
      f'TensorFlow {version} with{"" if package else "out"} tensorflow-estimator was not tested; '
      f'install TensorFlow 2.15.1, or {_TESTED}0 with tensorflow-estimator 2.15.0'
    )
  tf_export: Any = import_module('tensorflow.python.util.tf_export')
  # The name under which its symbols are exported, and the attributes that record it on them.
  tf_export.ESTIMATOR_API_NAME = 'estimator'
  for attributes, suffix in ((tf_export.API_ATTRS, ''), (tf_export.API_ATTRS_V1, '_v1')):
    attributes['estimator'] = tf_export._Attributes(
      f'_estimator_api_names{suffix}', f'_estimator_api_constants{suffix}'
    )
  coordinator: Any = ModuleType(_COORDINATOR)
  coordinator.init_run_config = _init_run_config
  coordinator.should_run_distribute_coordinator = lambda config: False
  distribute: Any = import_module('tensorflow.python.distribute')
  distribute.estimator_training = sys.modules[_COORDINATOR] = coordinator
  bare = ModuleType(_PACKAGE)  # Its own `__init__` imports the API of v1, which takes a while.
  bare.__spec__, bare.__path__ = package, list(package.submodule_search_locations or ())
  sys.modules[_PACKAGE] = bare
  tpu = _Gone('tf.estimator.tpu', 'needs TensorFlow 2.15, the last that has it')
  sys.modules[f'{_PACKAGE}._api.v1.estimator.tpu'] = tpu


def _init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
  """What the coordinator's module did for a strategy of tf.distribute within one process."""
  chosen = config._experimental_distribute
  config._train_distribute = config._train_distribute or (chosen and chosen.train_distribute)
  config._eval_distribute = config._eval_distribute or (chosen and chosen.eval_distribute)
  tasks = {*tf_config.get('cluster', {})} or (chosen and chosen.remote_cluster)
  if config._train_distribute and tasks and 'master' not in tasks:
    raise ValueError('train_distribute in a cluster needs TensorFlow 2.15, the last that has it')
  config._init_distributed_setting_from_environment_var(tf_config)
  config._maybe_overwrite_session_config_for_distributed_training()


class _Gone(ModuleType):
  """Stands for a module that TensorFlow has no more: one line says so where it is used."""

  def __init__(self, name: str, why: str):
    super().__init__(name)
    self._why = f'{why}; docs/estimator.md has what takes its place'

  def __getattr__(self, name: str) -> NoReturn:
    # What imports a part asks for `__path__`, and would say less of an AttributeError.
    raise (ImportError if name == '__path__' else AttributeError)(f'{self.__name__} {self._why}')


if __name__ == '__main__':
  sys.modules['estimator_again'] = sys.modules[__name__]  # For a program that imports it, too.
  if not sys.argv[1:]:
    sys.exit('usage: python -m estimator_again program.py ARGS')
  del sys.argv[0]
  sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
  install()
  runpy.run_path(sys.argv[0], run_name='__main__')
