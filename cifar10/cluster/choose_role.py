"""Chooses the role of this process, once."""

from cifar10.cluster.all_reduce import Mirrored, MultiWorker
from cifar10.cluster.parameter_server import Replica, SyncReplica
from cifar10.cluster.roles import Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.task_roles import Evaluator
from cifar10.cluster.tasks import Cluster
from cifar10.options.run_options import RunOptions


def choose(cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None) -> Role:
  """The role of a task under these options; arguments are as for `Role`."""
  kind: type[Role] = Role
  if cluster.task_type == 'evaluator':
    kind = Evaluator
  elif options.distribute:
    kind = MultiWorker if cluster.is_distributed else Mirrored
  elif cluster.is_distributed:
    kind = SyncReplica if options.sync and cluster.num_workers > 1 else Replica
  role = kind(cluster, options, monitor)
  role.gradients_per_update = gradients_per_update(cluster, options)
  return role


def gradients_per_update(cluster: Cluster, options: RunOptions) -> int:
  """Returns how many workers' gradients make a synchronous update; 0: asynchronous updates."""
  waits = options.sync or options.distribute is not None
  return cluster.num_workers - options.backup_workers if waits and cluster.num_workers > 1 else 0
