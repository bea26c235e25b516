"""The functions of the commands that `pip install .` creates; pyproject.toml names them."""

import importlib
from collections.abc import Callable
from typing import NoReturn

from cifar10.core import errors


def _script(module: str) -> Callable[[], NoReturn]:
  """Returns a function that runs a module's `main` like a script, and exits."""

  def run() -> NoReturn:
    errors.run_process(lambda: importlib.import_module(module).main())

  return run


generate = _script('generate_cifar10_tfrecords')
train = _script('cifar10_main')
cluster = _script('cifar10.local_cluster')
data_service = _script('cifar10.data_service')
report = _script('cifar10.report')
control = _script('cifar10.control')
checkpoint = _script('cifar10.checkpoint')
