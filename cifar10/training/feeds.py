"""Selects where training batches come from: record files, a Python source or a data service."""

from cifar10.cluster.tasks import Cluster
from cifar10.data.info import DatasetInfo
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training.feed import Feed
from cifar10.training.service_feed import ServiceFeed
from cifar10.training.source_feed import SourceFeed


def make(hparams: HParams, options: RunOptions, cluster: Cluster, data: DatasetInfo) -> Feed:
  """Returns this process's feed; raises InputError if a source cannot be found."""
  kind: type[Feed] = Feed
  if options.data_service:
    kind = ServiceFeed
  elif hparams.source:
    kind = SourceFeed
  return kind(hparams, options, cluster, data.num_classes)
