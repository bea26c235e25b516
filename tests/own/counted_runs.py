"""Counts the runs of TensorFlow's own train_and_evaluate, in whichever process imports this."""

import os

from tiny_network import Tiny  # noqa: F401  (for --network)

import estimator_again

estimator_again.estimator  # noqa: B018  (it loads the package, on every TensorFlow)

from tensorflow_estimator.python.estimator import training  # noqa: E402

_run = training._TrainingExecutor.run


def _counted(executor):
  config = executor._estimator.config
  with open(os.environ['COUNTED_RUNS'], 'a', encoding='utf-8') as file:
    file.write(f'{config.task_type} {config.task_id}\n')
  return _run(executor)


training._TrainingExecutor.run = _counted
