"""For programs of `tf.estimator` in a cluster: the call after which every task ends.

TensorFlow's own parameter servers never end, and its evaluators wait for the last step, though the
training stopped before. See docs/estimator.md.
"""

import contextlib
import json
import math
import os
import socket
import sys
import time
from typing import Any


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, patience: int = 600) -> Any:
  """As `tf.estimator.train_and_evaluate`, and parameter servers and evaluators end, too.

  They end when no chief or worker listens at its address and either `max_steps` are saved or for
  `patience` seconds none has listened and no checkpoint has come (a lone chief listens nowhere).
  Let it exceed the time between two checkpoints, and that in which a killed task is back.
  """
  training: Any = sys.modules[type(train_spec).__module__]  # Which has that function.
  cluster = json.loads(os.environ.get('TF_CONFIG', '{}')).get('cluster', {})
  jobs = ('chief', 'master', 'worker')
  trainers = [address.rpartition(':') for job in jobs for address in cluster.get(job, [])]
  saved, seen_at = None, time.monotonic()

  def is_over() -> bool:
    nonlocal saved, seen_at
    if saved != (saved := estimator.latest_checkpoint()):
      seen_at = time.monotonic()
    for host, _, port in trainers:
      address = host.strip('[]'), int(port)
      with contextlib.suppress(OSError), socket.create_connection(address, timeout=5):
        seen_at = time.monotonic()
        return False
    step = estimator.get_variable_value('global_step') if saved else -1
    return step >= (train_spec.max_steps or math.inf) or time.monotonic() > seen_at + patience

  listener = training._ContinuousEvalListener()
  listener.after_eval = lambda result: result.status == 'evaluated' or not is_over()
  executor = training._TrainingExecutor(estimator, train_spec, eval_spec, None, listener)
  if estimator.config.task_type != 'ps':
    return executor.run()
  server = executor._start_std_server(estimator.config)
  while server and not is_over():
    time.sleep(1)
