"""Chooses the role of this process, once."""

from cifar10.cluster.all_reduce import MultiWorker
from cifar10.cluster.parameter_server import Replica, SyncReplica
from cifar10.cluster.roles import Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.options.run_options import RunOptions


def choose(cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None) -> Role:
  """The role of a task under these options; arguments are as for `Role`."""
  kind: type[Role] = Role  # Of an evaluator, too.
  waits = cluster.num_workers > 1 and (options.sync or options.distribute is not None)
  if cluster.is_distributed and options.distribute:
    kind = MultiWorker
  elif cluster.is_distributed:
    kind = SyncReplica if waits else Replica
  role = kind(cluster, options, monitor)
  role.gradients_per_update = cluster.num_workers - options.backup_workers if waits else 0
  return role
