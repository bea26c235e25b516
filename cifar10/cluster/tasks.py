"""The tasks of a run, and which of them this process is."""

import dataclasses
import json
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Cluster:
  """The tasks of a run. Without TF_CONFIG: a chief alone."""

  # host:port of each 'chief', 'worker' and 'ps' task; an evaluator does not train.
  addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  task_type: str = 'chief'
  task_index: int = 0
  has_evaluator: bool = False  # whether TF_CONFIG lists one

  @property
  def is_distributed(self) -> bool:
    """Tells whether this process is one of several that train together."""
    return self.task_type != 'evaluator' and sum(map(len, self.addresses.values())) > 1

  @property
  def is_chief(self) -> bool:
    """Tells whether this process initialises, saves and writes summaries."""
    return self.task_type == 'chief'

  @property
  def num_workers(self) -> int:
    """Returns the number of replicas that compute gradients: the chief and the workers."""
    return 1 + len(self.addresses.get('worker', ()))

  @property
  def worker(self) -> int:
    """Returns this replica's number among the workers: 0 for the chief, index + 1 for a worker."""
    return 0 if self.is_chief else self.task_index + 1

  @property
  def num_ps(self) -> int:
    """Returns the number of parameter servers."""
    return len(self.addresses.get('ps', ()))

  @property
  def name(self) -> str:
    """Returns this task's name for logs: 'worker 1'."""
    return f'{self.task_type} {self.task_index}'

  @property
  def job(self) -> str:
    """Returns the start of this task's device names: '/job:worker/task:1'; '' for one process."""
    return f'/job:{self.task_type}/task:{self.task_index}' if self.is_distributed else ''

  @property
  def device_filters(self) -> list[str]:
    """Returns the tasks that this one's sessions need: without filters each waits for all tasks."""
    if not self.is_distributed:
      return []
    return [self.job] if self.task_type == 'ps' else ['/job:ps', self.job]

  @property
  def group_leader(self) -> str:
    """The device name of who numbers the steps of an all-reduce; '' where there is none."""
    return '/job:chief/replica:0/task:0' if self.is_distributed and not self.num_ps else ''

  @property
  def tf_config(self) -> str:
    """Returns TF_CONFIG for the Estimator: with a chief, without an evaluator.

    Without tasks it trains and evaluates in one process, which an evaluator would do beside it.
    """
    if not (self.is_distributed or (self.is_chief and self.has_evaluator)):
      return '{}'
    task = {'type': self.task_type, 'index': self.task_index}
    # Upon this word the Estimator starts no server of its own (roles.py has why).
    return json.dumps({'cluster': self.addresses, 'task': task, 'environment': 'google'})
