"""Chooses the role of this process, once."""

from cifar10.cluster.all_reduce import MultiWorker
from cifar10.cluster.parameter_server import Replica, SyncReplica
from cifar10.cluster.roles import Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.task_roles import Evaluator
from cifar10.cluster.tasks import Cluster
from cifar10.options.run_options import RunOptions


def choose(cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None) -> Role:
  """The role of a task under these options; arguments are as for `Role`."""
  kind: type[Role] = Role
  waits = False
  if cluster.task_type == 'evaluator':
    kind = Evaluator
  elif cluster.is_distributed and options.distribute:
    kind, waits = MultiWorker, True
  elif cluster.is_distributed:
    waits = options.sync and cluster.num_workers > 1
    kind = SyncReplica if waits else Replica
  role = kind(cluster, options, monitor)
  role.gradients_per_update = cluster.num_workers - options.backup_workers if waits else 0
  return role
